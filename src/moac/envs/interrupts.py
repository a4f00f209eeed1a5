"""Ctrl-C of the user, told apart from a KeyboardInterrupt that an environment raises by itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from functools import partial
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_arrived: list[int] = []
"""Signals that have arrived while somebody listens."""
_installed: dict[int, Callable[..., Any]] = {}
"""The handlers that note signals; empty while nobody listens."""


@contextlib.contextmanager
def listening() -> Generator[None]:
    """While entered, signals are noted before their handlers see them; listening again inside costs nothing.

    Python runs handlers in the main thread alone: in another thread no KeyboardInterrupt is of a signal.
    """
    if _installed or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if callable(handler):
            _installed[number] = partial(_note, handler)
            signal.signal(number, _installed[number])
    try:
        yield
    finally:
        for number, own in _installed.items():
            if signal.getsignal(number) is own:
                signal.signal(number, before[number])
        _installed.clear()
        _arrived.clear()


def is_of_user(error: BaseException) -> bool:
    """Whether an error is the interruption that a signal has asked for."""
    return isinstance(error, KeyboardInterrupt) and bool(_arrived)


def _note(handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
    _arrived.append(number)
    handler(number, frame)
