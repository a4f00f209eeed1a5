"""How strong something unobserved must be to explain a change: the marginal sensitivity model (Tan, JASA 2006).

What is unobserved may multiply the odds with which the log showed the item by anything in [1/Γ, Γ]. So a weight π/b
lies between π (1 + (1/b − 1)/Γ) and π (1 + (1/b − 1) Γ), each under the cap, and the estimate between the least and the
largest Σ z r / Σ z over such weights z: a linear-fractional programme, solved by a sort (Zhao, Small & Bhattacharya,
JRSS B 2019). Γ is where that range, or that of the draws of users, first holds the log's own mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.offline.ncis import estimates
from moac.offline.ncis.rows import Logged
from moac.offline.ncis.sums import Options

LARGEST = 10.0
"""Γ beyond which nothing is looked for."""
_STEPS, _STEPS_OF_DRAWS = 30, 12
"""Bisections of log Γ, for the estimate and for the interval."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Γ at which each signal's change to the log could be nothing but what is unobserved."""

    point: Float[np.ndarray, " M"]  # where the estimate's range holds 0; 10 where that is 10 or more
    interval: Float[np.ndarray, " M"]  # where its interval does: 1 where it does anyway
    # for scale: the observed covariate without which b's odds would move most, and by which factor
    strongest: tuple[str, float] | None = None


def bounds(
    ratio: Float[np.ndarray, " N"], propensity: Any, reward: Any, gamma: float, cap: float
) -> Float[np.ndarray, "M 2"]:
    """The least and the largest value of each signal, for one policy's ratios π/b on rows with b of logged actions."""
    count = reward.shape[1]
    ends = [_Programme(ratio, propensity, sign * reward, cap).least(np.full(count, gamma)) for sign in (1.0, -1.0)]
    return np.stack([ends[0], -ends[1]], axis=1)


class _Programme:
    """min Σ z r / Σ z over weights z in the box of each row, for each column of r: small rewards weigh most."""

    def __init__(self, ratio: Any, propensity: Any, reward: Any, cap: float) -> None:
        self.cap, self.order = cap, np.argsort(reward, axis=0, kind="stable")
        self.reward = np.take_along_axis(reward, self.order, axis=0)
        # π (1 + (1/b − 1) g) = π + (π/b − π) g
        self.policy = np.take(ratio * propensity, self.order)
        self.rest = np.maximum(np.take(ratio, self.order) - self.policy, 0.0)

    def least(self, gamma: Float[np.ndarray, " M"]) -> Any:
        """The values [M]."""
        return self._solved(gamma)[0]

    def parts(self, gamma: Float[np.ndarray, " M"]) -> tuple[Any, Any]:
        """The values, and what a row more or less of each kind would change [N, M], in the rows' order."""
        value, at, (high, low) = self._solved(gamma)
        z = np.where(np.arange(len(high))[:, None] < at, high, low)
        parts = np.empty_like(z)
        np.put_along_axis(parts, self.order, z * (self.reward - value) / z.sum(axis=0), axis=0)
        return value, parts

    def _solved(self, gamma: Float[np.ndarray, " M"]) -> tuple[Any, Any, tuple[Any, Any]]:
        high, low = (np.minimum(self.cap, self.policy + self.rest * g) for g in (gamma, 1 / gamma))
        weight, product = (_split_sums(high * r, low * r) for r in (np.ones_like(self.reward), self.reward))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(weight > 0, product / weight, np.inf)
        at = values.argmin(axis=0)
        return np.take_along_axis(values, at[None], axis=0)[0], at, (high, low)


def _split_sums(first: Any, second: Any) -> Any:
    """Σ_{i<k} first_i + Σ_{i≥k} second_i for k = 0, …, N."""
    zero = np.zeros((1, first.shape[1]))
    return second.sum(axis=0) + np.concatenate([zero, np.cumsum(first - second, axis=0)])


def analyse(
    log: Logged, ratio: Float[np.ndarray, "R N"], options: Options, noise: Any = None, strongest: Any = None
) -> Sensitivity:
    """Γ of each signal; of several training seeds each against its own worst case, which makes Γ smaller.

    Draws of users are those of the estimate; in each the value follows the worst case of all users to first order.
    """
    mean, cap = log.reward.mean(axis=0), float(options.cap)
    w = np.minimum(cap, ratio)
    sign = np.where((w @ log.reward / w.sum(axis=1, keepdims=True)).mean(axis=0) >= mean, 1.0, -1.0)
    programmes = [_Programme(one, log.propensity, sign * log.reward, cap) for one in ratio]
    base = sign * (log.reward - mean) / len(log.reward)

    def remaining(gamma: Any) -> Any:
        """What is left of the change, in its own direction."""
        return np.mean([programme.least(gamma) for programme in programmes], axis=0) - sign * mean

    def lower(gamma: Any) -> Any:
        values, every = zip(*(programme.parts(gamma) for programme in programmes), strict=True)
        left, parts = np.mean(values, axis=0) - sign * mean, np.mean(every, axis=0) - base
        by_user = log.user_sums(parts)
        draws = left + estimates.resampled([by_user], options.draws, options.seed)[0]  # all users together add nothing
        draws = draws if noise is None else draws + sign * noise
        return np.quantile(draws, (1 - options.level) / 2, axis=0)

    point = _first_zero(remaining, len(mean), _STEPS)
    return Sensitivity(point, np.minimum(point, _first_zero(lower, len(mean), _STEPS_OF_DRAWS)), strongest)


def _first_zero(decreasing: Any, count: int, steps: int) -> Any:
    """Γ in [1, 10] at which each of `count` decreasing functions is 0, by bisection of log Γ; an end where none is."""
    low, high = np.zeros(count), np.full(count, math.log(LARGEST))
    at_one, at_most = decreasing(np.ones(count)) <= 0, decreasing(np.exp(high)) > 0
    for _ in range(steps):
        middle = (low + high) / 2
        left = decreasing(np.exp(middle)) > 0
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(at_one, 1.0, np.where(at_most, LARGEST, np.exp((low + high) / 2)))
