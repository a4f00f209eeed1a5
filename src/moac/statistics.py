"""Means over trials with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student


@dataclass(frozen=True)
class Mean:
    """An estimate over trials and its 95 % interval, whose ends are NaN where too few trials were run to have one."""

    value: float  # the estimate
    low: float  # the lower end of the interval
    high: float  # the upper end of the interval
    trials: int  # how many trials it was estimated from

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def mapped(self, function: Callable[[float], float]) -> Mean:
        """The estimate of a monotone function of the quantity."""
        low, high = sorted((function(self.low), function(self.high)))
        return Mean(function(self.value), low, high, self.trials)


def mean(values: Any) -> Mean:
    """The mean of what is finite, with Student's interval; a single value has none."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Mean(np.nan, np.nan, np.nan, 0)
    centre = float(known.mean())
    if len(known) == 1:
        return Mean(centre, np.nan, np.nan, 1)
    half = float(student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return Mean(centre, centre - half, centre + half, len(known))
