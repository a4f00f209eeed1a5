"""A Gaussian policy for continuous actions, squashed into their bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.policies.networks import Inputs, Network, Passed, Weights
from moac.policies.protocols import Factor
from moac.policies.score import factors_of
from moac.policies.squash import Squash
from moac.types import Key, Observation

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_MIDDLE, _REACH, _START = -2.0, 3.0, math.atanh(0.5)
"""log σ = −2 + 3 tanh ρ lies in (−5, 1) and starts at −0.5: it can neither vanish nor run away."""


class _Law(NamedTuple):
    mean: Any
    log_sigma: Any


@final
@dataclass(frozen=True)
class GaussianMLP:
    """a = squash(u), u ~ N(m(x), σ²), with m from a network; σ is shared by all states, or the network gives it too.

    θ holds the network's matrices, and where σ is shared a last leaf [1, k] for it.

    Attributes:
        inputs: what the network sees.
        hidden: its hidden layers.
        bounds: of the actions.
        state_scale: whether σ depends on the state.
    """

    inputs: Inputs
    hidden: tuple[int, ...]
    bounds: Squash
    state_scale: bool = False

    @property
    def size(self) -> int:
        """k, numbers of an action."""
        return len(self.bounds.low)

    @cached_property
    def network(self) -> Network:
        """Gives the means, and where they depend on the state the scales."""
        return Network(self.inputs, self.hidden, self.size * (2 if self.state_scale else 1), last_scale=0.01)

    def init(self, key: Key) -> Weights:
        """Means near 0 and σ = e^(−1/2) everywhere."""
        layers = self.network.init(key)
        if self.state_scale:
            last = layers[-1]
            return (*layers[:-1], last.at[-1, self.size :].add(_START))
        return (*layers, jnp.full((1, self.size), _START))

    def act(self, theta: Weights, observation: Observation, normal: Any) -> Any:
        """squash(m + σ·normal) for standard normal numbers [..., k]."""
        law = self._law(theta, observation)
        return self.bounds(law.mean + _exp(law.log_sigma) * normal.astype(law.mean.dtype))

    def sample(self, theta: Weights, observation: Observation, key: Key) -> Float[Array, " k"]:
        """a ~ π(·|x)."""
        return self.act(theta, observation, jax.random.normal(key, (self.size,)))

    def log_prob(self, theta: Weights, observation: Observation, action: Any) -> Float[Array, ""]:
        """log N(u; m, σ²) − log |da/du|, summed over the k numbers."""
        return self._log_prob(self._law(theta, observation), jnp.asarray(action))

    def entropy(self, theta: Weights, observation: Observation) -> Float[Array, "..."]:
        """Of u, before it is squashed: Σ log σ + k/2·(1 + log 2π)."""
        law = self._law(theta, observation)
        return jnp.sum(law.log_sigma + 0.5 + _HALF_LOG_2PI + 0 * law.mean, axis=-1)

    def factors(self, theta: Weights, observation: Observation, action: Any) -> tuple[Factor, ...]:
        """One per layer, and one for the shared scale."""
        count = len(action)

        def log_probs(shifts: Weights) -> tuple[Any, Passed]:
            passed = self.network.passed(self._layers(theta), observation, shifts)
            law = self._split(passed.outputs, None if self.state_scale else theta[-1] + shifts[-1])
            return self._log_prob(law, action), passed

        shifts = self.network.no_shifts(self._layers(theta), count)
        if self.state_scale:
            return factors_of(log_probs, shifts)
        ones = jnp.ones((count, 1), theta[-1].dtype)
        return factors_of(log_probs, (*shifts, jnp.zeros((count, self.size), theta[-1].dtype)), (ones,))

    def _layers(self, theta: Weights) -> Weights:
        return theta if self.state_scale else theta[:-1]

    def _law(self, theta: Weights, observation: Observation) -> _Law:
        outputs = self.network(self._layers(theta), observation)
        return self._split(outputs, None if self.state_scale else theta[-1].reshape(self.size))

    def _split(self, outputs: Any, shared: Any) -> _Law:
        k = self.size
        xp = outputs.__array_namespace__()
        rho = outputs[..., k:] if shared is None else shared
        return _Law(outputs[..., :k], _MIDDLE + _REACH * xp.tanh(rho))

    def _log_prob(self, law: _Law, action: Any) -> Any:
        u = self.bounds.inverse(action)
        z = (u - law.mean) * jnp.exp(-law.log_sigma)
        return jnp.sum(-0.5 * z * z - law.log_sigma - _HALF_LOG_2PI - self.bounds.log_slope(u), axis=-1)


def _exp(x: Any) -> Any:
    return x.__array_namespace__().exp(x)
