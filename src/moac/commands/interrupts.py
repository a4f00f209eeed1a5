"""Ctrl-C as a request: the work in hand is finished and kept. A second one does not wait."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, final


@final
class Interrupts:
    """While entered, the first Ctrl-C is noted, to be raised by `check` where it does no harm.

    Raised at any moment, as Python does, a KeyboardInterrupt can vanish in a callback of a library.
    """

    def __init__(self) -> None:
        self._asked = False
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was asked for, if any was."""
        if self._asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.check()
        self._asked = True
        sys.stderr.write("stopping at the next checkpoint; once more to stop at once\n")
