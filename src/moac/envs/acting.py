"""Drawing on the host: actions, with no compiled call per step wherever NumPy can compute the policy; preferences.

An index comes from a uniform number and the cumulative probabilities of the actions, a vector from normal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from moac.compiling import kept_for_few
from moac.policies import OnHost, Reparametrised, SoftmaxTable, log_probs
from moac.policies.encoding import ActionBox
from moac.types import Params, Policy

Actor = Callable[[Any, Any, Any], np.ndarray[Any, Any]]
"""π on the host: n observations, n uniform numbers and normal numbers [n, k], which are None where actions are indices,
↦ one action each, indices [n] or vectors [n, k]."""
UNIFORM = "dirichlet:1"
"""Evenly on the simplex."""
_STREAM = 0x70726566  # sets the draws of preferences apart from all others of a seed
_CORNER, _CENTRE = 0.25, 0.1  # shares of the episodes for which `corners` draws one of the M corners, or the centre


def of_policy(policy: Policy, theta: Params, continuous: bool) -> Actor:
    """The actor of any policy; without the protocols `OnHost` or `Reparametrised`, one compiled call acts for all."""
    host = jax.tree.map(np.asarray, theta)
    if continuous and isinstance(policy, Reparametrised):
        return lambda x, uniform, normal: policy.act(host, x, normal)
    if not continuous and isinstance(policy, OnHost):
        return lambda x, uniform, normal: _chosen(policy.logits(host, x), uniform)
    return lambda x, uniform, normal: np.asarray(_sampled(policy, host, x, (uniform * 2.0**32).astype(np.uint32)))


def of_table(logits: Float[np.ndarray, "S A"]) -> Actor:
    """The actor of a table of logits, over states."""
    return lambda x, uniform, normal: _chosen(logits[x], uniform)


def noise(generators: list[np.random.Generator], box: ActionBox | None) -> tuple[Any, Any]:
    """The uniform and the normal numbers of one action from each generator."""
    uniform = np.array([generator.random() for generator in generators])
    return uniform, None if box is None else np.stack([g.standard_normal(box.size) for g in generators])


def table(policy: Policy, theta: Params, num_states: int, num_actions: int) -> Float[np.ndarray, "S A"]:
    """Logits of all actions in all states."""
    if isinstance(policy, SoftmaxTable):
        return np.asarray(theta)
    return np.asarray(_tabulated(policy, num_states, num_actions, theta))


def cumulative(logits: Float[np.ndarray, "n A"]) -> Float[np.ndarray, "n A-1"]:
    """Running sums of softmax probabilities in double precision, without the last, which is 1."""
    weight = logits.astype(np.float64)
    weight -= np.maximum.reduce(weight, axis=1, keepdims=True)
    np.exp(weight, out=weight)
    total = np.add.accumulate(weight, axis=1, out=weight)
    return total[:, :-1] / total[:, -1:]


def _chosen(logits: Float[np.ndarray, "n A"], uniform: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return (uniform[:, None] >= cumulative(logits)).sum(axis=1)


@kept_for_few(3)
def _tabulated(policy: Policy, num_states: int, num_actions: int, theta: Params) -> Any:
    """log π(a|s) for all states and actions."""
    return log_probs(policy, theta, jnp.arange(num_states), num_actions)


@kept_for_few(1)
def _sampled(policy: Policy, theta: Params, observations: Any, seeds: Any) -> Any:
    """One action per observation, each with a key of its own."""
    draw = jax.vmap(lambda x, seed: policy.sample(theta, x, jax.random.key(seed)))
    return draw(observations, seeds)


def preferences(draw: str | None, num_objectives: int, seed: int) -> Callable[[], Float[np.ndarray, " M"] | None]:
    """A function that draws one p at each call, by `Config.preference_draw`; None where nothing is to be drawn."""
    if draw is None:
        return lambda: None
    M, generator = num_objectives, np.random.default_rng([_STREAM, seed])
    kind, _, alpha = draw.partition(":")

    def drawn() -> Float[np.ndarray, " M"]:
        place = generator.random() if kind == "corners" else 1.0
        if place < _CORNER:
            return np.eye(M)[generator.integers(M)]
        return np.full(M, 1 / M) if place < _CORNER + _CENTRE else generator.dirichlet(np.full(M, float(alpha or 1)))

    return drawn
