"""A Gaussian policy for continuous actions, squashed into their bounds.

The squashing maps the whole line into the bounds of an action:

    both bounds finite    a = c + r z,  z = u/√(1 + u²)          da/du = r (1 + u²)^(−3/2)
    one bound finite      a = b ± x,    x = u + √(1 + u²)        da/du = ± x/√(1 + u²)
    none                  a = u                                  da/du = 1

Algebraic, not tanh: near a bound single precision still knows u = 100 from u = 101, where tanh forgets u beyond 9, so
that the log-probability of an action can be computed from the action alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac.policies.networks import Inputs, Network, Passed, Weights, factors_of
from moac.policies.protocols import Factor
from moac.types import Key, Observation

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_MIDDLE, _REACH = -2.0, 3.0  # log σ = −2 + 3 tanh ρ lies in (−5, 1): it can neither vanish nor run away

_NEAR = 1e-6  # actions count as at least this share of the range, or this much, away from a bound


@dataclass(frozen=True)
class Squash:
    """The map from k real numbers into their bounds."""

    low: tuple[float, ...]  # smallest values; may be infinite
    high: tuple[float, ...]  # largest values; may be infinite

    def __call__(self, u: Any) -> Any:
        """u [..., k] ↦ a."""
        xp = u.__array_namespace__()
        root = xp.sqrt(1 + u * u)
        if self._both.all():  # most often so, and this is called at every step
            return self._centre + self._gain * (u / root)
        positive = xp.where(u >= 0, u + root, 1 / (root + xp.abs(u)))
        inside = xp.where(self._both, u / root, xp.where(self._one, positive, u))
        return (self._centre + self._gain * inside).astype(u.dtype)

    def inverse(self, a: Any) -> Any:
        """a [..., k] ↦ u."""
        xp = a.__array_namespace__()
        inside = ((a - self._centre) / self._gain).astype(a.dtype)
        z = xp.clip(inside, -1 + _NEAR, 1 - _NEAR)
        x = xp.maximum(inside, _NEAR)
        return xp.where(self._both, z / xp.sqrt((1 - z) * (1 + z)), xp.where(self._one, (x - 1 / x) / 2, inside))

    def log_slope(self, u: Any) -> Any:
        """log |da/du| [..., k]."""
        xp = u.__array_namespace__()
        square = xp.log1p(u * u)
        one = xp.arcsinh(u) - square / 2
        gain = np.log(np.abs(self._gain)).astype(u.dtype)
        return gain + xp.where(self._both, -1.5 * square, xp.where(self._one, one, 0 * u))

    @cached_property
    def _both(self) -> np.ndarray[Any, Any]:
        return np.isfinite(self.low) & np.isfinite(self.high)

    @cached_property
    def _one(self) -> np.ndarray[Any, Any]:
        return np.isfinite(self.low) ^ np.isfinite(self.high)

    @cached_property
    def _finite(self) -> Float[np.ndarray, "2 k"]:
        """The bounds, with 0 for one that is infinite."""
        bounds = np.array([self.low, self.high], dtype=np.float64)
        return np.where(np.isfinite(bounds), bounds, 0.0)

    @cached_property
    def _centre(self) -> Float[np.ndarray, " k"]:
        """c, b, or 0."""
        total = self._finite.sum(axis=0)
        return np.where(self._both, total / 2, total).astype(np.float32)

    @cached_property
    def _gain(self) -> Float[np.ndarray, " k"]:
        """r, ±1, or 1."""
        reach, sign = np.diff(self._finite, axis=0)[0] / 2, np.where(np.isfinite(self.high), -1.0, 1.0)
        return np.where(self._both, reach, sign).astype(np.float32)


class _Law(NamedTuple):
    mean: Any
    log_sigma: Any


@dataclass(frozen=True)
class GaussianMLP:
    """a = squash(u), u ~ N(m(x), σ²), with m from a network; σ is shared by all states, or the network gives it too.

    θ holds the network's matrices, and where σ is shared a last leaf [1, k] for it.
    """

    inputs: Inputs  # what the network sees
    hidden: tuple[int, ...]  # its hidden layers
    bounds: Squash  # of the actions
    state_scale: bool = False  # whether σ depends on the state
    spread: float = math.exp(-0.5)  # σ at the start

    @property
    def size(self) -> int:
        """k, numbers of an action."""
        return len(self.bounds.low)

    @cached_property
    def network(self) -> Network:
        """Gives the means, and where they depend on the state the scales."""
        return Network(self.inputs, self.hidden, self.size * (2 if self.state_scale else 1), last_scale=0.01)

    def init(self, key: Key) -> Weights:
        """Means near 0 and σ = `spread` everywhere."""
        layers, rho = self.network.init(key), math.atanh((math.log(self.spread) - _MIDDLE) / _REACH)
        if self.state_scale:
            last = layers[-1]
            return (*layers[:-1], last.at[-1, self.size :].add(rho))
        return (*layers, jnp.full((1, self.size), rho, float))  # a strong type, as updates give it

    def act(self, theta: Weights, observation: Observation, normal: Any) -> Any:
        """squash(m + σ·normal) for standard normal numbers [..., k]."""
        law = self._law(theta, observation)
        xp = law.mean.__array_namespace__()
        return self.bounds(law.mean + xp.exp(law.log_sigma) * normal.astype(law.mean.dtype))

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
