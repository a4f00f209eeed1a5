"""Softmax policies over a table, over linear features of states and of vectors, and over a network.

Each also gives its score ψ = ∇ log π as outer products, or sums it up, which is all that the actor needs of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from moac.policies.features import Features, OneHot, Table
from moac.policies.networks import Inputs, Network, Passed, Weights, factors_of, with_constant
from moac.policies.protocols import Factor
from moac.types import Key, Observation, Params

SHARP = 1e4
"""Times the logits: one that is 0.01 below the largest is then never chosen."""


class Softmax(ABC):
    """π(a|s) ∝ exp of logits."""

    @abstractmethod
    def logits(self, theta: Any, observation: Observation) -> Any:
        """Logits [..., A] over any leading axes; of vectors and networks in the namespace of θ's arrays."""

    def sample(self, theta: Params, observation: Observation, key: Key) -> Int[Array, ""]:
        """a ~ π(·|s)."""
        return jax.random.categorical(key, self.logits(theta, observation))

    def log_prob(self, theta: Params, observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|s)."""
        return jax.nn.log_softmax(self.logits(theta, observation))[action]

    def entropy(self, theta: Params, observation: Observation) -> Float[Array, "..."]:
        """−Σ π log π over any leading axes."""
        log_pi = jax.nn.log_softmax(self.logits(theta, observation))
        return -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)

    def sharpened(self, theta: Any) -> Any:
        """θ of nearly the greedy policy, where logits are linear in θ."""
        return jax.tree.map(lambda leaf: SHARP * leaf, theta)


@dataclass(frozen=True)
class SoftmaxTable(Softmax):
    """π(a|s) ∝ exp θ[s, a]. Starts uniform."""

    num_states: int
    num_actions: int

    def init(self, key: Key) -> Float[Array, "S A"]:
        """θ = 0."""
        del key
        return jnp.zeros((self.num_states, self.num_actions))

    def logits(self, theta: Any, observation: Observation) -> Any:
        """θ[s]."""
        return theta[observation]

    def tabulate(self, theta: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """π(a|s) for all states."""
        return jax.nn.softmax(theta)

    def factors(self, theta: Float[Array, "S A"], observation: Observation, action: Any) -> tuple[Factor, ...]:
        """ψ = e_s ⊗ (e_a − π(·|s))."""
        logits = theta.at[observation].get(mode="promise_in_bounds")
        return (Factor(observation, _softmax_signal(logits, action)),)

    def accumulate(
        self, theta: Float[Array, "S A"], observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l δ_l e_{s,a} less π(a|s) times its sum over actions: one scattered number per sample and objective."""
        pi, place = self.tabulate(theta), observation * self.num_actions + action
        empty = jnp.zeros(theta.size, theta.dtype)
        sums = [empty.at[place].add(column, mode="promise_in_bounds").reshape(theta.shape) for column in signal.T]
        return tuple(total - pi * jnp.sum(total, axis=1, keepdims=True) for total in sums)


@dataclass(frozen=True)
class Linear(Softmax):
    """π(a|s) ∝ exp φ(s)ᵀθ[:, a]. Starts uniform."""

    features: Features
    num_actions: int

    def init(self, key: Key) -> Float[Array, "d A"]:
        """θ = 0."""
        del key
        return jnp.zeros((self.features.size, self.num_actions))

    def logits(self, theta: Any, observation: Observation) -> Any:
        """φ(s)ᵀθ."""
        return self.features.apply(theta, observation)

    def factors(self, theta: Float[Array, "d A"], observation: Observation, action: Any) -> tuple[Factor, ...]:
        """ψ = φ(s) ⊗ (e_a − π(·|s))."""
        phi = self.features.apply(jnp.eye(self.features.size, dtype=theta.dtype), observation)
        return (Factor(phi, _softmax_signal(self.logits(theta, observation), action)),)


class SoftmaxLinear(Linear):
    """With features of states."""

    features: OneHot | Table


class SoftmaxBasis(Linear):
    """With features of vectors, which NumPy can compute too."""

    def accumulate(
        self, theta: Float[Array, "d A"], observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l signalⁱ_l φ(x_l) ⊗ (e_a − π(·|x_l)), by the transpose of φ: a scatter where φ is sparse."""
        logits, transpose = jax.vjp(lambda table: self.logits(table, observation), theta)
        score = _softmax_signal(logits, action)
        return tuple(transpose(score * column[:, None])[0] for column in signal.T)


@dataclass(frozen=True)
class SoftmaxMLP(Softmax):
    """π(a|x) ∝ exp of a network's outputs. Starts nearly uniform."""

    inputs: Inputs  # what the network sees
    hidden: tuple[int, ...]  # its hidden layers
    num_actions: int  # A

    @cached_property
    def network(self) -> Network:
        """Gives the logits."""
        return Network(self.inputs, self.hidden, self.num_actions, last_scale=0.01)

    def init(self, key: Key) -> Weights:
        """One matrix per layer; small weights in the last."""
        return self.network.init(key)

    def logits(self, theta: Any, observation: Observation) -> Any:
        """The network's outputs."""
        return self.network(theta, observation)

    def sharpened(self, theta: Any) -> Any:
        """θ of nearly the greedy policy: logits are linear in the last layer."""
        return (*theta[:-1], SHARP * theta[-1])

    def tempered(self, theta: Any, T: Any) -> Weights:
        """θ of softmax(logits / T)."""
        *others, last = theta
        return (*others, np.asarray(last / np.float32(T)))

    def popular(self, theta: Any, log_share: Float[np.ndarray, " K"]) -> Weights:
        """θ whose last biases are the log-popularity of actions."""
        *others, last = theta
        return (*others, last.at[-1].set(log_share))

    def shifted(self, theta: Any, bias: Float[np.ndarray, " K"]) -> tuple[SoftmaxMLP, Weights]:
        """The policy with a number of its own added to the logit of each action."""
        *others, last = (np.array(layer, np.float32) for layer in theta)
        last[-1] += bias.astype(np.float32)
        return self, (*others, last)

    def last_layer(self, theta: Any, observation: Observation) -> tuple[Any, Any]:
        """The last layer's inputs, with the constant of its bias, and π(·|s) of all actions."""
        passed = self.network.passed(tuple(map(jnp.asarray, theta)), observation)
        return with_constant(passed.inputs[-1]), jax.nn.softmax(passed.outputs)

    def factors(self, theta: Weights, observation: Observation, action: Any) -> tuple[Factor, ...]:
        """One per layer."""

        def log_probs(shifts: Weights) -> tuple[Any, Passed]:
            passed = self.network.passed(theta, observation, shifts)
            chosen = jnp.take_along_axis(jax.nn.log_softmax(passed.outputs), action[:, None], axis=1)
            return chosen[:, 0], passed

        return factors_of(log_probs, self.network.no_shifts(theta, len(action)))


def _softmax_signal(logits: Float[Array, "B A"], action: Int[Array, " B"]) -> Float[Array, "B A"]:
    return jax.nn.one_hot(action, logits.shape[-1], dtype=logits.dtype) - jax.nn.softmax(logits)
