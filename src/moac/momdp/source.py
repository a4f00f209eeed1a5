"""A finite model as a source of training: what it is, and what a trained policy is worth on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac.config import Setting
from moac.momdp import chain, oracle, sampling, support
from moac.policies import SoftmaxTable
from moac.types import Evaluation, Params, Policy, Spec

if TYPE_CHECKING:
    from moac.momdp.model import FiniteMOMDP


@lru_cache(maxsize=16)
def spec(model: FiniteMOMDP) -> Spec:
    """The model's description, one object per model."""
    return Spec(
        model.name,
        model.objective_names,
        model.num_states,
        model.num_actions,
        most_visited(model),
        float(np.abs(model.reward[model.probability > 0]).max()) or 1.0,
        model.fingerprint,
        model.observations,
        no_average=chain.several_classes(model),
    )


def most_visited(model: FiniteMOMDP) -> int:
    """The state that the uniform policy visits most; for a model beyond the oracle's size, the likeliest start."""
    if model.num_states > oracle.MAX_STATES:
        return int(np.argmax(model.start_distribution))
    uniform = np.full((1, model.num_states, model.num_actions), 1 / model.num_actions)
    try:
        return int(np.argmax(chain.stationary_distribution(model, uniform)[0]))
    except ValueError:  # several recurrent classes
        return int(np.argmax(model.start_distribution))


def action_probabilities(model: FiniteMOMDP, policy: Policy, theta: Params) -> Float[np.ndarray, "K S A"]:
    """π of K policies in float64, rows summing to one.

    Blocks of one size share one compiled program, so that rounding does not depend on how many policies there are.
    """
    pi = _in_blocks(partial(_tabulated, model, policy), theta)
    return pi / pi.sum(axis=2, keepdims=True)


def _in_blocks(function: Callable[..., Any], *trees: Any) -> np.ndarray[Any, Any]:
    """A function of K policies applied in float64 to blocks of one size, the last one padded."""
    count = len(jax.tree.leaves(trees)[0])
    parts: list[np.ndarray[Any, Any]] = []
    with jax.enable_x64(True):
        for first in range(0, count, oracle.BLOCK):
            picked = np.minimum(np.arange(first, first + oracle.BLOCK), count - 1)
            block = jax.tree.map(lambda x, i=picked: jnp.asarray(np.asarray(x)[i], jnp.float64), trees)
            parts.append(np.asarray(function(*block)))
    return np.concatenate(parts)[:count]


@partial(jax.jit, static_argnums=(0, 1))
def _tabulated(model: FiniteMOMDP, policy: Policy, theta: Params) -> Any:
    return jax.vmap(lambda one: sampling.probabilities(model, policy, one))(theta)


@partial(jax.jit, static_argnums=(0, 1))
def _pulled(model: FiniteMOMDP, policy: Policy, theta: Params, gradient: Float[Array, "n M S A"]) -> Any:
    """∇_θ Jⁱ [n, M, P, 1] = Σ ν π Advⁱ ∇_θ log π, from the gradient with respect to the logits, which is ν π Advⁱ."""

    def pull(one: Params, G: Float[Array, "M S A"]) -> Any:
        def log_pi(one: Params) -> Any:
            return jnp.log(jnp.maximum(sampling.probabilities(model, policy, one), 1e-300))

        rows = jax.vmap(lambda g: jax.vjp(log_pi, one)[1](g)[0])(G)
        return jnp.concatenate([leaf.reshape(len(G), -1) for leaf in jax.tree.leaves(rows)], axis=1)[..., None]

    return jax.vmap(pull)(theta, gradient)


def evaluate(model: FiniteMOMDP, policy: Policy, theta: Params, setting: Setting) -> Evaluation:
    """Exact values; NaN where the oracle has none (too many states or objectives, several recurrent classes)."""
    if model.num_states > oracle.MAX_STATES:
        count = len(jax.tree.leaves(theta)[0])
        return _evaluation(model, [{} for _ in range(count)])
    pi = action_probabilities(model, policy, theta)
    count = len(pi)
    try:
        exact = oracle.of_policy(model, _whole_blocks(pi), setting)
        if isinstance(policy, SoftmaxTable):
            known = (exact.returns, exact.gap, exact.direction_gap, _regret(exact))
            return Evaluation(*(values[:count] for values in known), kind="exact")
        gap = _gap(model, policy, theta, exact.gradient[:count])
        direction_gap = _gap(model, policy, theta, exact.direction[:count])
        return Evaluation(exact.returns[:count], gap, direction_gap, _regret(exact)[:count], kind="exact")
    except ValueError:
        alone = (jax.tree.map(lambda x, n=n: np.asarray(x)[n : n + 1], theta) for n in range(count))
        rows = [_what_is_known(policy, one, (model, pi[n : n + 1], setting)) for n, one in enumerate(alone)]
        return _evaluation(model, rows)


def _gap(model: FiniteMOMDP, policy: Policy, theta: Params, gradient: Float[np.ndarray, "n M S A"]) -> Any:
    """The gap [K] with respect to θ; for a table θ is the logits."""
    if not isinstance(policy, SoftmaxTable):
        gradient = _in_blocks(partial(_pulled, model, policy), theta, gradient)
    return oracle.shortest(gradient).squared_norm


def _whole_blocks(pi: Float[np.ndarray, "K S A"]) -> Float[np.ndarray, "n S A"]:
    """Padded to whole blocks of the oracle, so that rounding does not depend on how many policies there are."""
    return np.concatenate([pi, np.repeat(pi[-1:], -len(pi) % oracle.BLOCK, axis=0)])


def _what_is_known(policy: Policy, theta: Params, case: tuple[FiniteMOMDP, Any, Setting]) -> dict[str, Any]:
    """Of one policy (leading axis 1)."""
    known: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        exact = oracle.of_policy(*case)
        known |= {"returns": exact.returns[0], "regret": _regret(exact)[0]}
        known["gap"] = _gap(case[0], policy, theta, exact.gradient)[0]
        known["direction_gap"] = _gap(case[0], policy, theta, exact.direction)[0]
    return known


def _regret(exact: oracle.Exact) -> Any:
    return exact.regret if exact.model.num_objectives <= support.MAX_OBJECTIVES else np.full(exact.gap.shape, np.nan)


def _evaluation(model: FiniteMOMDP, rows: list[dict[str, Any]]) -> Evaluation:
    nothing = np.full(model.num_objectives, np.nan)
    columns = (np.array([row.get(name, np.nan) for row in rows]) for name in ("gap", "direction_gap", "regret"))
    return Evaluation(np.stack([row.get("returns", nothing) for row in rows]), *columns, kind="exact")
