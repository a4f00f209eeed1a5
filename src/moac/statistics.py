"""Means over trials with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDING = 1e-24
"""A squared gradient below this is zero but for rounding."""


@dataclass(frozen=True)
class Mean:
    """An estimate over trials and its 95 % interval, whose ends are NaN where too few trials were run to have one."""

    value: float  # the estimate
    low: float  # the lower end of the interval
    high: float  # the upper end of the interval
    trials: int  # how many trials it was estimated from

    def __str__(self) -> str:
        interval = "" if np.isnan(self.low) else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.value:.3g}{interval}"

    def mapped(self, function: Callable[[float], float]) -> Mean:
        """The estimate of a monotone function of the quantity."""
        low, high = sorted((function(self.low), function(self.high)))
        return Mean(function(self.value), low, high, self.trials)


def without_rounding(squares: Any) -> Any:
    """Squared norms; 0 where only rounding is left of them."""
    return np.where(np.abs(squares) < ROUNDING, 0.0, squares)[()]


def mean(values: Any) -> Mean:
    """The mean of what is finite, with Student's interval; a single value has none."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Mean(np.nan, np.nan, np.nan, 0)
    centre = float(known.mean())
    if len(known) == 1:
        return Mean(centre, np.nan, np.nan, 1)
    from scipy.stats import t as student  # takes a second to import, and one trial does without

    half = float(student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return Mean(centre, centre - half, centre + half, len(known))
