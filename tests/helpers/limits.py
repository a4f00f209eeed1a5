"""A limit of the time that a piece of a test may take, and of how much a slow test tries."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from typing import Any

THOROUGH = os.environ.get("MOAC_THOROUGH") == "1"
"""Whether slow tests try all that they could; without it the slow suite ends within half an hour."""


def count(many: int) -> int:
    """How many of so many inputs to try: a tenth, unless the suite is to be thorough."""
    return many if THOROUGH else many // 10


class OverTimeError(BaseException):
    """It took longer than it may; no `except` of what is tested takes it for one of its own errors."""


@contextlib.contextmanager
def limited(seconds: float) -> Generator[None]:
    """Raise OverTimeError in what has not ended after so many seconds, also where it waits for a file."""

    def over(number: int, frame: Any) -> None:
        raise OverTimeError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
