"""Chunks of training by measured time."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

SECONDS = 0.5
"""A chunk is meant to take so long: half of what may pass between two snapshots, since machines are shared."""
_GROWTH = 4


@final
@dataclass(eq=False)
class Pace:
    """How many iterations the next chunk may have.

    The first chunk has one iteration, since nothing is known yet of what an iteration costs, and since it is compiled
    in that time. A chunk that ended early, because an evaluation was due, tells less of that cost than its fixed part:
    it makes later chunks shorter only where it took too long itself.

    Attributes:
        longest: iterations of the next chunk, at most.
    """

    longest: int = 1

    @contextmanager
    def timed(self, iterations: int) -> Generator[None]:
        """Measure a chunk of so many iterations, and set the length of the next by it."""
        began = time.perf_counter()
        yield
        self.adapt(iterations, time.perf_counter() - began)

    def adapt(self, iterations: int, seconds: float) -> None:
        """Set the length of the next chunk, where one of so many iterations took so many seconds."""
        fitting = int(min(SECONDS / max(seconds, 1e-9), _GROWTH) * iterations)
        if iterations == self.longest or fitting < iterations:
            self.longest = max(1, fitting)
