"""Acting on the host, without a compiled call per step.

An index comes from a uniform number and the cumulative probabilities of the actions, a vector from normal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from moac.envs.walks import Noise
from moac.policies import OnHost, Reparametrised, SoftmaxTable
from moac.types import Params, Policy


class Actor(Protocol):
    """π on the host."""

    def act(self, x: Any, noise: Noise) -> np.ndarray[Any, Any]:
        """One action for each of n observations: indices [n], or vectors [n, k]."""
        ...


@final
@dataclass(frozen=True, eq=False)
class TableActor:
    """π(·|s) ∝ exp of a row of logits.

    Attributes:
        logits: [S, A].
    """

    logits: Float[np.ndarray, "S A"]

    def rows(self, states: Int[np.ndarray, " n"]) -> list[list[float]]:
        """Cumulative probabilities of all actions but the last, one row per state, for `bisect`."""
        return cumulative(self.logits[states]).tolist()

    def act(self, x: Int[np.ndarray, " n"], noise: Noise) -> Int[np.ndarray, " n"]:
        """One action per state."""
        return _chosen(self.logits[x], noise.uniform)


@final
@dataclass(frozen=True, eq=False)
class VectorActor:
    """π(·|x) of a policy whose logits NumPy can compute.

    Attributes:
        policy: the policy.
        theta: its parameters, NumPy arrays.
    """

    policy: OnHost
    theta: Params

    def act(self, x: Float[np.ndarray, "n d"], noise: Noise) -> Int[np.ndarray, " n"]:
        """One action per observation."""
        return _chosen(self.policy.logits(self.theta, x), noise.uniform)


@final
@dataclass(frozen=True, eq=False)
class NormalActor:
    """Continuous actions of a policy that turns normal numbers into them, by NumPy.

    Attributes:
        policy: the policy.
        theta: its parameters, NumPy arrays.
    """

    policy: Reparametrised
    theta: Params

    def act(self, x: Any, noise: Noise) -> Float[np.ndarray, "n k"]:
        """One action per observation."""
        return self.policy.act(self.theta, x, noise.normal)


@final
@dataclass(frozen=True, eq=False)
class CompiledActor:
    """Any policy: one compiled call for all copies of a step.

    Attributes:
        policy: the policy.
        theta: its parameters.
    """

    policy: Policy
    theta: Params

    def act(self, x: Any, noise: Noise) -> np.ndarray[Any, Any]:
        """One action per observation; the uniform numbers seed the keys."""
        seeds = (noise.uniform * 2.0**32).astype(np.uint32)
        return np.asarray(_sampler(self.policy)(self.theta, x, seeds))


def of_states(policy: Policy, theta: Params, size: tuple[int, int]) -> TableActor:
    """The actor of a policy over S states and A actions."""
    if isinstance(policy, SoftmaxTable):
        return TableActor(np.asarray(theta))
    return TableActor(np.asarray(_tabulated(policy, size)(theta)))


def of_vectors(policy: Policy, theta: Params) -> VectorActor | CompiledActor:
    """The actor of a policy over vectors."""
    host = jax.tree.map(np.asarray, theta)
    return VectorActor(policy, host) if isinstance(policy, OnHost) else CompiledActor(policy, host)


def of_continuous(policy: Policy, theta: Params) -> NormalActor | CompiledActor:
    """The actor of a policy with continuous actions, over states or vectors."""
    host = jax.tree.map(np.asarray, theta)
    return NormalActor(policy, host) if isinstance(policy, Reparametrised) else CompiledActor(policy, host)


def cumulative(logits: Float[np.ndarray, "n A"]) -> Float[np.ndarray, "n A-1"]:
    """Running sums of softmax probabilities in double precision, without the last, which is 1."""
    weight = logits.astype(np.float64)
    weight -= np.maximum.reduce(weight, axis=1, keepdims=True)
    np.exp(weight, out=weight)
    total = np.add.accumulate(weight, axis=1, out=weight)
    return total[:, :-1] / total[:, -1:]


def _chosen(logits: Float[np.ndarray, "n A"], uniform: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return (uniform[:, None] >= cumulative(logits)).sum(axis=1)


@lru_cache(maxsize=16)
def _tabulated(policy: Policy, size: tuple[int, int]) -> Any:
    """θ ↦ log π(a|s) for all states and actions."""
    over_actions = jax.vmap(policy.log_prob, in_axes=(None, None, 0))
    over_states = jax.vmap(over_actions, in_axes=(None, 0, None))
    return jax.jit(lambda theta: over_states(theta, jnp.arange(size[0]), jnp.arange(size[1])))


@lru_cache(maxsize=16)
def _sampler(policy: Policy) -> Any:
    def sample(theta: Params, x: Any, seeds: Any) -> Any:
        return jax.vmap(lambda one, seed: policy.sample(theta, one, jax.random.key(seed)))(x, seeds)

    return jax.jit(sample)
