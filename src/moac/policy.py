"""Softmax policies over a table and over linear features, of states and of vectors.

Each also gives its score ψ = ∇ log π as outer products, which is all that the actor needs of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from moac.features import Basis, Features
from moac.types import Key, Observation, Params, Policy


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factor:
    """∂ log π_l/∂W = inputs_l ⊗ signal_l for each sample l; a one-hot input is given as its index.

    Attributes:
        inputs: [B, d] floats, or [B] integers.
        signal: [B, k].
    """

    inputs: Float[Array, "B d"] | Int[Array, " B"]
    signal: Float[Array, "B k"]


@runtime_checkable
class Factored(Policy, Protocol):
    """A policy whose score is an outer product: cheap gradients for any number of objectives."""

    def factors(self, theta: Params, observation: Observation, action: Any) -> Factor:
        """The factors of ψ for a batch."""
        ...


@runtime_checkable
class Tabulated(Policy, Protocol):
    """A policy that knows its probabilities in all states at once."""

    def tabulate(self, theta: Params) -> Float[Array, "S A"]:
        """π(a|s) for every state and action of a finite model."""
        ...


@runtime_checkable
class Accumulating(Policy, Protocol):
    """A policy that sums its scores itself, where that is cheaper than forming them."""

    def accumulate(
        self, theta: Params, observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l signalⁱ_l ψ_l, one pytree like θ for each i."""
        ...


@final
@dataclass(frozen=True)
class SoftmaxTable:
    """π(a|s) ∝ exp θ[s, a]. Starts uniform."""

    num_states: int
    num_actions: int

    def init(self, key: Key) -> Float[Array, "S A"]:
        """θ = 0."""
        del key
        return jnp.zeros((self.num_states, self.num_actions))

    def sample(self, theta: Float[Array, "S A"], observation: Observation, key: Key) -> Int[Array, ""]:
        """a ~ π(·|s)."""
        return jax.random.categorical(key, theta[observation])

    def log_prob(self, theta: Float[Array, "S A"], observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|s)."""
        return jax.nn.log_softmax(theta[observation])[action]

    def tabulate(self, theta: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """π(a|s) for all states."""
        return jax.nn.softmax(theta)

    def factors(self, theta: Float[Array, "S A"], observation: Observation, action: Any) -> Factor:
        """ψ = e_s ⊗ (e_a − π(·|s))."""
        logits = theta.at[observation].get(mode="promise_in_bounds")
        return Factor(observation, _softmax_signal(logits, action))

    def accumulate(
        self, theta: Float[Array, "S A"], observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l δ_l e_{s,a} less π(a|s) times its sum over actions: one scattered number per sample and objective."""
        pi, place = self.tabulate(theta), observation * self.num_actions + action
        empty = jnp.zeros(theta.size, theta.dtype)
        sums = [empty.at[place].add(column, mode="promise_in_bounds").reshape(theta.shape) for column in signal.T]
        return tuple(total - pi * jnp.sum(total, axis=1, keepdims=True) for total in sums)


@final
@dataclass(frozen=True)
class SoftmaxLinear:
    """π(a|s) ∝ exp φ(s)ᵀθ[:, a]. Starts uniform."""

    features: Features
    num_actions: int

    def init(self, key: Key) -> Float[Array, "d A"]:
        """θ = 0."""
        del key
        return jnp.zeros((self.features.size, self.num_actions))

    def sample(self, theta: Float[Array, "d A"], observation: Observation, key: Key) -> Int[Array, ""]:
        """a ~ π(·|s)."""
        return jax.random.categorical(key, self.features.apply(theta, observation))

    def log_prob(self, theta: Float[Array, "d A"], observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|s)."""
        return jax.nn.log_softmax(self.features.apply(theta, observation))[action]

    def factors(self, theta: Float[Array, "d A"], observation: Observation, action: Any) -> Factor:
        """ψ = φ(s) ⊗ (e_a − π(·|s))."""
        phi = self.features.apply(jnp.eye(self.features.size, dtype=theta.dtype), observation)
        return Factor(phi, _softmax_signal(self.features.apply(theta, observation), action))


@final
@dataclass(frozen=True)
class SoftmaxBasis:
    """π(a|x) ∝ exp φ(x)ᵀθ[:, a] for vectors x. Starts uniform. θ and x may be NumPy arrays in `logits`."""

    features: Basis
    num_actions: int

    def init(self, key: Key) -> Float[Array, "d A"]:
        """θ = 0."""
        del key
        return jnp.zeros((self.features.size, self.num_actions))

    def logits(self, theta: Any, observation: Observation) -> Any:
        """φ(x)ᵀθ over any leading axes."""
        return self.features.apply(theta, observation)

    def sample(self, theta: Float[Array, "d A"], observation: Observation, key: Key) -> Int[Array, ""]:
        """a ~ π(·|x)."""
        return jax.random.categorical(key, self.logits(theta, observation))

    def log_prob(self, theta: Float[Array, "d A"], observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|x)."""
        return jax.nn.log_softmax(self.logits(theta, observation))[action]

    def accumulate(
        self, theta: Float[Array, "d A"], observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l signalⁱ_l φ(x_l) ⊗ (e_a − π(·|x_l)), by the transpose of φ: a scatter where φ is sparse."""
        logits, pull = jax.vjp(lambda table: self.logits(table, observation), theta)
        score = _softmax_signal(logits, action)
        return tuple(pull(score * column[:, None])[0] for column in signal.T)


@runtime_checkable
class OnHost(Policy, Protocol):
    """A discrete policy whose logits NumPy can compute: no compiled call is needed to act."""

    def logits(self, theta: Any, observation: Observation) -> Any:
        """Logits [..., A], in the namespace of θ's arrays."""
        ...


def _softmax_signal(logits: Float[Array, "B A"], action: Int[Array, " B"]) -> Float[Array, "B A"]:
    return jax.nn.one_hot(action, logits.shape[-1], dtype=logits.dtype) - jax.nn.softmax(logits)
