"""From the whole line into the bounds of an action, and back.

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
from typing import Any, final

import numpy as np
from jaxtyping import Float

_NEAR = 1e-6
"""Actions count as at least this share of the range, or this much, away from a bound."""


@final
@dataclass(frozen=True)
class Squash:
    """The bounds of k numbers.

    Attributes:
        low: smallest values; may be infinite.
        high: largest values; may be infinite.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __call__(self, u: Any) -> Any:
        """u [..., k] ↦ a."""
        xp = u.__array_namespace__()
        root = xp.sqrt(1 + u * u)
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
    def _centre(self) -> Float[np.ndarray, " k"]:
        """c, b, or 0."""
        pairs = zip(self.low, self.high, strict=True)
        return np.array([_middle(low, high) for low, high in pairs], dtype=np.float32)

    @cached_property
    def _gain(self) -> Float[np.ndarray, " k"]:
        """r, ±1, or 1."""
        pairs = zip(self.low, self.high, strict=True)
        return np.array([_reach(low, high) for low, high in pairs], dtype=np.float32)


def _middle(low: float, high: float) -> float:
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return next((bound for bound in (low, high) if math.isfinite(bound)), 0.0)


def _reach(low: float, high: float) -> float:
    if math.isfinite(low) and math.isfinite(high):
        return (high - low) / 2
    return -1.0 if math.isfinite(high) else 1.0
