"""Means over trials with their 95 % intervals, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.stats import t as student


@final
@dataclass(frozen=True)
class Mean:
    """A mean over trials and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def is_positive(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0

    @property
    def is_negative(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.high < 0


def mean(values: Any) -> Mean:
    """The mean of what is finite, with Student's interval; a single value has none."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Mean(np.nan, np.nan, np.nan)
    centre = float(known.mean())
    if len(known) == 1:
        return Mean(centre, np.nan, np.nan)
    half = float(student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return Mean(centre, centre - half, centre + half)
