"""How an estimate is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

CAPS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, math.inf)
"""Of the sweep."""


@final
@dataclass(frozen=True)
class Options:
    """How an estimate is made; all of it is declared before a number is seen.

    Attributes:
        cap: c of w = min(c, π/π_b); infinity is SNIPS.
        caps: other caps, to see how much the answer depends on it; infinity is always among them.
        draws: of the bootstrap over users.
        level: of intervals.
        seed: of the draws.
        resample_seeds: False: intervals are of these very policies' mean. True: training seeds are resampled beside the
            users, for what the method would give with other seeds; with few of them such intervals are too short.
    """

    cap: float = 10.0
    caps: tuple[float, ...] = CAPS
    draws: int = 1000
    level: float = 0.95
    seed: int = 0
    resample_seeds: bool = False

    def __post_init__(self) -> None:
        for cap in (self.cap, *self.caps):
            if not cap > 0:
                raise ValueError(f"`cap` must be positive, got {cap}.")
        if not 0 < self.level < 1:
            raise ValueError(f"`level` must be between 0 and 1, got {self.level}.")
        if self.draws < 100:
            raise ValueError(f"`draws` must be at least 100 for an interval, got {self.draws}.")
        if self.seed < 0:
            raise ValueError(f"`seed` must not be negative, got {self.seed}.")

    @property
    def all_caps(self) -> tuple[float, ...]:
        """Those of the sweep and the one in use, ascending; the last is infinity."""
        return tuple(sorted({float(cap) for cap in (self.cap, *self.caps, math.inf)}))
