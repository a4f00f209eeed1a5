"""Ctrl-C and SIGTERM as a request: the work in hand is finished and kept. A second one does not wait."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Generator
from types import FrameType, TracebackType
from typing import Any, final

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@final
class Terminated(KeyboardInterrupt):
    """SIGTERM, which is treated like Ctrl-C."""


def code(error: KeyboardInterrupt) -> int:
    """The exit code of a command that was stopped: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def terminable() -> Generator[None]:
    """While entered, SIGTERM raises `Terminated`, so that whatever is open is put in order first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@final
class Interrupts:
    """While entered, the first Ctrl-C or SIGTERM is noted, to be raised by `check` where it does no harm.

    Raised at any moment, as Python does, a KeyboardInterrupt can vanish in a callback of a library.

    Attributes:
        asked: what was noted; None while nothing was.
    """

    def __init__(self) -> None:
        self.asked: KeyboardInterrupt | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was asked for, if any was."""
        if self.asked is not None:
            raise self.asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.check()
        self.asked = _error(number)
        sys.stderr.write("stopping at the next checkpoint; once more to stop at once\n")


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    raise _error(number)


def _error(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
