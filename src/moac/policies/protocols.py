"""Optional protocols of policies: what a policy may offer beyond `init`, `sample` and `log_prob`.

A policy offers a protocol by having its method; ours have all that apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from moac.types import Observation, Params, Policy


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factor:
    """∂ log π_l/∂W = inputs_l ⊗ signal_l for each sample l; a one-hot input is given as its index."""

    inputs: Float[Array, "B d"] | Int[Array, " B"]  # [B, d] floats, or [B] integers
    signal: Float[Array, "B k"]  # [B, k]


@runtime_checkable
class Factored(Policy, Protocol):
    """A policy whose score is an outer product for each leaf of θ: cheap gradients for any number of objectives."""

    def factors(self, theta: Params, observation: Observation, action: Any) -> tuple[Factor, ...]:
        """The factors of ψ for a batch, one per leaf of θ [d, k], in the order of `jax.tree.leaves`."""
        ...


@runtime_checkable
class Tabulated(Policy, Protocol):
    """A policy that knows its probabilities in all states: finite models sample from one table per iteration."""

    def tabulate(self, theta: Params) -> Float[Array, "S A"]:
        """π(a|s) for every state and action of a finite model."""
        ...


@runtime_checkable
class Accumulating(Policy, Protocol):
    """A policy that sums its scores itself, where that is cheaper than forming them as factors."""

    def accumulate(
        self, theta: Params, observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l signalⁱ_l ψ_l, one pytree like θ for each i."""
        ...


@runtime_checkable
class PartlyFactored(Policy, Protocol):
    """A policy whose score is an outer product for the first leaves of θ only, and sums the rest itself."""

    def partial_factors(
        self, theta: Params, observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[tuple[Factor, ...], tuple[Array, ...]]:
        """Factors of the first leaves of θ, a tuple, and Σ_l signalⁱ_l ψ_l of the others, with a leading axis M."""
        ...


@runtime_checkable
class Listing(Policy, Protocol):
    """A policy over the candidates that a request brings, or over all actions at once."""

    def log_probs(self, theta: Params, observation: Observation) -> Float[Array, "... C"]:
        """log π of all that can be chosen, in the order of the list."""
        ...


@runtime_checkable
class OnHost(Policy, Protocol):
    """A discrete policy whose logits NumPy can compute: no compiled call per environment step."""

    def logits(self, theta: Any, observation: Observation) -> Any:
        """Logits [..., A] over any leading axes, in the namespace of θ's arrays."""


@runtime_checkable
class Sharpening(Policy, Protocol):
    """A policy whose likeliest action can be made nearly certain: explorations try that too."""

    def sharpened(self, theta: Any) -> Any:
        """θ, over any leading axes, of the policy that takes it; actions that are equally likely stay so."""


@runtime_checkable
class Reparametrised(Policy, Protocol):
    """A continuous policy that turns standard normal numbers into actions; NumPy can compute it."""

    def act(self, theta: Any, observation: Observation, normal: Any) -> Any:
        """Actions [..., k] over any leading axes, in the namespace of θ's arrays."""


@runtime_checkable
class Entropic(Policy, Protocol):
    """A policy that knows its entropy: the gradient of the entropy bonus is exact, not sampled."""

    def entropy(self, theta: Params, observation: Observation) -> Float[Array, "..."]:
        """H(π(·|s)) over any leading axes."""
        ...


def log_probs(policy: Policy, theta: Params, observations: Any, num_actions: int) -> Float[Array, "n A"]:
    """log π(a|s) of all A actions after each of n observations, or of their candidates; for any policy."""
    if isinstance(policy, Listing):
        return policy.log_probs(theta, observations)
    over_actions = jax.vmap(policy.log_prob, in_axes=(None, None, 0))
    return jax.vmap(over_actions, in_axes=(None, 0, None))(theta, observations, jnp.arange(num_actions))
