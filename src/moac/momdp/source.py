"""A finite model as a source of training: what it is, and what a trained policy is worth on it."""

from __future__ import annotations

import contextlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.config import Setting
from moac.momdp import chain, oracle, sampling, support
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
    """π of K policies in float64, rows summing to one."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), theta)
        pi = np.asarray(_tabulated(model, policy, wide))
    return pi / pi.sum(axis=2, keepdims=True)


@partial(jax.jit, static_argnums=(0, 1))
def _tabulated(model: FiniteMOMDP, policy: Policy, theta: Params) -> Any:
    return jax.vmap(lambda one: sampling.probabilities(model, policy, one))(theta)


def evaluate(model: FiniteMOMDP, policy: Policy, theta: Params, setting: Setting) -> Evaluation:
    """Exact values; NaN where the oracle has none (too many states or objectives, several recurrent classes)."""
    if model.num_states > oracle.MAX_STATES:
        count = len(jax.tree.leaves(theta)[0])
        return _evaluation(model, [{} for _ in range(count)])
    pi = action_probabilities(model, policy, theta)
    try:
        exact = oracle.of_policy(model, pi, setting)
        return Evaluation(exact.returns, exact.gap, exact.direction_gap, _regret(exact), "exact")
    except ValueError:
        return _evaluation(model, [_what_is_known(model, one, setting) for one in pi])


def _what_is_known(model: FiniteMOMDP, pi: Float[np.ndarray, "S A"], setting: Setting) -> dict[str, Any]:
    known: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        exact = oracle.of_policy(model, pi, setting)
        known |= {"returns": exact.returns, "gap": exact.gap, "regret": _regret(exact)}
        known["direction_gap"] = exact.direction_gap
    return known


def _regret(exact: oracle.Exact) -> Any:
    return exact.regret if exact.model.num_objectives <= support.MAX_OBJECTIVES else np.full(exact.gap.shape, np.nan)


def _evaluation(model: FiniteMOMDP, rows: list[dict[str, Any]]) -> Evaluation:
    nothing = np.full(model.num_objectives, np.nan)
    columns = (np.array([row.get(name, np.nan) for row in rows]) for name in ("gap", "direction_gap", "regret"))
    return Evaluation(np.stack([row.get("returns", nothing) for row in rows]), *columns, kind="exact")
