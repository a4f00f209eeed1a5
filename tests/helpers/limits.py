"""A limit of the time that a piece of a test may take."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator
from typing import Any


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
