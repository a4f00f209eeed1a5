"""Multi-layer perceptrons, written so that the score of a policy splits into outer products, one per layer.

Everything works on NumPy arrays as on JAX's: acting happens on the host, learning in a compiled program.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moac.policies.protocols import Factor
from moac.types import Key, Observation, vectors

Weights = tuple[Any, ...]
"""One matrix per layer. The last row of a matrix is the bias, except where the input is the index of a state."""


@dataclass(frozen=True)
class Inputs(ABC):
    """What a network sees of an observation."""

    size: int  # how many numbers, or how many states

    @abstractmethod
    def see(self, observation: Observation) -> Any:
        """Vectors [..., d], or indices [...] of rows, in the namespace of the observation's arrays."""


class States(Inputs):
    """The index of a state: the first layer looks up a row, which is a product with a one-hot vector."""

    def see(self, observation: Observation) -> Any:
        """The index."""
        return observation


@dataclass(frozen=True)
class Vectors(Inputs):
    """x ∈ [0, 1]^d as reach·(2x − 1): where x is scaled by `reach` deviations, the network sees deviations."""

    reach: float = 1.0

    def see(self, observation: Observation) -> Any:
        """reach·(2x − 1)."""
        return self.reach * (2 * observation - 1)


@dataclass(frozen=True)
class Digits(Inputs):
    """Whole numbers, each as a one-hot vector of its own, one after the other.

    They come as x ∈ [0, 1]^d, where 1 is the largest value, or as the index of a state, whose digits they are.
    """

    radix: tuple[int, ...] = ()  # how many values each number has; `size` is their sum

    def see(self, observation: Observation) -> Any:
        """Ones and zeros [..., Σ radix]."""
        radix, number = np.array(self.radix), np.arange(len(self.radix)).repeat(self.radix)
        if np.issubdtype(observation.dtype, np.integer):
            stride = np.cumprod([1, *self.radix[:0:-1]])[::-1].copy()
            digits = observation[..., None] // stride % radix
        else:
            digits = observation.__array_namespace__().rint(observation * np.maximum(radix - 1, 1).astype(np.float32))
        value = np.concatenate([np.arange(n) for n in self.radix])
        return (digits[..., number] == value).astype(np.float32)


@dataclass(frozen=True)
class WithPreference(Inputs):
    """What comes before the last numbers as `inner` sees it, then these numbers, p ∈ Δ_M, as they are."""

    inner: Inputs

    @classmethod
    def after(cls, inner: Inputs, num_objectives: int) -> WithPreference:
        """M further inputs."""
        return cls(inner.size + num_objectives, inner)

    def see(self, observation: Observation) -> Any:
        """(inner(x), p)."""
        M = self.size - self.inner.size
        seen = self.inner.see(observation[..., :-M])
        return observation.__array_namespace__().concatenate([seen, observation[..., -M:]], axis=-1)


class Plain(Inputs):
    """x ∈ R^d as it is; of a request with candidates, its x."""

    def see(self, observation: Observation) -> Any:
        """x."""
        return vectors(observation)


class Passed(NamedTuple):
    """A forward pass."""

    outputs: Any  # [..., k] of the last layer
    inputs: tuple[Any, ...]  # of every layer; vectors without the constant that the bias belongs to


@dataclass(frozen=True)
class Network:
    """x ↦ W_Lᵀ tanh(… tanh(W_1ᵀ x)), with biases."""

    inputs: Inputs  # what it sees
    hidden: tuple[int, ...]  # width of each hidden layer; none makes it linear
    outputs: int  # width of the last layer
    last_scale: float = 1.0  # the last layer starts with weights this much smaller than the others

    def init(self, key: Key) -> Weights:
        """Normal weights of variance 1 / (number of inputs); biases start at zero."""
        keys = jax.random.split(key, len(self.hidden) + 1)
        return tuple(self._matrix(keys[layer], layer) for layer in range(len(keys)))

    def __call__(self, weights: Weights, observation: Observation) -> Any:
        """Outputs [..., k]."""
        return self.passed(weights, observation).outputs

    def passed(self, weights: Weights, observation: Observation, shifts: Weights | None = None) -> Passed:
        """The forward pass; `shifts` [..., k] are added to each layer's output before it is squashed."""
        x, seen = self.inputs.see(observation), []
        xp = weights[0].__array_namespace__()
        for layer, W in enumerate(weights):
            seen.append(x)
            x = dense(W, x)
            x = x if shifts is None else x + shifts[layer]
            x = xp.tanh(x) if layer < len(self.hidden) else x
        return Passed(x, tuple(seen))

    def no_shifts(self, weights: Weights, count: int) -> Weights:
        """Zeros [count, k] for each layer: the derivative by them is each layer's signal."""
        return tuple(jnp.zeros((count, W.shape[1]), W.dtype) for W in weights)

    def _matrix(self, key: Key, layer: int) -> Any:
        """One layer's weights; the index of a state has one input that is 1, and needs no bias."""
        widths = (self.inputs.size, *self.hidden, self.outputs)
        rows, columns = widths[layer], widths[layer + 1]
        indexed = layer == 0 and isinstance(self.inputs, States)
        scale = self.last_scale if layer == len(self.hidden) else 1.0
        drawn = jax.random.normal(key, (rows, columns)) * (scale / math.sqrt(1 if indexed else max(rows, 1)))
        return drawn if indexed else jnp.concatenate([drawn, jnp.zeros((1, columns))])


def dense(W: Any, x: Any) -> Any:
    """xᵀW without its last row, plus the last row; the row x of W where x is an index."""
    if np.dtype(getattr(x, "dtype", type(x))).kind in "iu":  # quicker than `issubdtype`, at every step
        return W[x]
    return x @ W[:-1] + W[-1]


def factors_of(
    log_probs: Callable[[Weights], tuple[Any, Passed]], shifts: Weights, more_inputs: tuple[Any, ...] = ()
) -> tuple[Factor, ...]:
    """One factor per layer: its inputs, and the derivative of log π by zeros added to its output.

    Samples do not meet in a network, so one backward pass of Σ_l log π_l gives the signals of all samples.

    Args:
        log_probs: shifts ↦ log π [B], and the forward pass.
        shifts: zeros [B, k], one for each layer and for what `more_inputs` belong to.
        more_inputs: inputs of further factors, which are not layers of the network.
    """

    def total(shifts: Weights) -> tuple[Any, tuple[Any, ...]]:
        log_prob, passed = log_probs(shifts)
        return jnp.sum(log_prob), passed.inputs

    signals, inputs = jax.grad(total, has_aux=True)(shifts)
    seen = (*map(with_constant, inputs), *more_inputs)
    return tuple(Factor(x, signal) for x, signal in zip(seen, signals, strict=True))


def with_constant(x: Any) -> Any:
    """Vectors with a 1 for the bias at their end; indices as they are."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)
