"""Ctrl-C and SIGTERM as a request: the work in hand is finished and kept. A second one does not wait."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from types import FrameType, TracebackType
from typing import final

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_END = b"\0"
"""In place of the number of a signal: no more will come."""
_PATIENCE = 1.0
"""Seconds that a second signal waits for the work to end in order."""


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

    Raised at any moment, as Python does, a KeyboardInterrupt can vanish in a callback of a library. And Python runs
    handlers between two instructions only, for which a compiled program can make it wait. A thread therefore hears of
    every signal as it arrives: it acknowledges the first at once, and where the second is not obeyed in time it ends
    the process, which loses no more than SIGKILL does.

    Attributes:
        asked: what was noted; None while nothing was.
    """

    def __init__(self) -> None:
        self.asked: KeyboardInterrupt | None = None
        self._noted, self._left = 0, threading.Event()
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._entered.enter_context(self._listening())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was asked for, if any was."""
        if self.asked is not None:
            raise self.asked

    @contextlib.contextmanager
    def _listening(self) -> Generator[None]:
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        listener = threading.Thread(target=self._listen, args=(reading,), daemon=True)
        with reading, writing:
            listener.start()
            previous = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
            handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
            try:
                yield
            finally:
                self._left.set()
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(previous)
                writing.send(_END)
                listener.join()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._noted += 1
        self.asked = self.asked or _error(number)
        if self._noted == 2:
            raise self.asked

    def _listen(self, reading: socket.socket) -> None:
        """Heed the signals whose numbers arrive."""
        heard = (number for (number,) in iter(lambda: reading.recv(1), _END) if number in _SIGNALS)
        for count, number in enumerate(heard):
            if count == 0:
                _say("stopping after this chunk; again to stop at once")
            elif not self._left.wait(_PATIENCE):
                _say("moac: stopped at once; what was written before is kept")
                os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    raise _error(number)


def _say(text: str) -> None:
    """A line on stderr, if there still is one."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _error(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
