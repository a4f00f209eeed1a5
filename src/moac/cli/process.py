"""The process of a command: JAX devices and compiled programs, Ctrl-C and SIGTERM. Imports JAX when it is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

from moac.tasks import cores, one_thread


def use_all_cores() -> None:
    """One CPU device per core; compilations cached in the user's cache folder unless `MOAC_CACHE=off`."""
    import jax

    with contextlib.suppress(RuntimeError):  # JAX has started: a caller in Python keeps the devices it has
        jax.config.update("jax_num_cpu_devices", cores())
    _keep_programs()


def use_one_core() -> None:
    """This process and those it starts use one core each and share cached compilations.

    It must be called before NumPy and JAX count their threads.
    """
    os.environ.update(one_thread())
    for name, value in _keep_programs().items():
        os.environ.setdefault(name.upper(), str(value))


def dispatch_synchronously() -> None:
    """Run compiled calls in the thread that makes them: with small ones, handing them over costs as much as they do.

    Only training that samples on the host makes such calls one by one; it has no effect once JAX has started.
    """
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _keep_programs() -> dict[str, Any]:
    """Tell JAX where to keep compiled programs; the settings by name, none where `MOAC_CACHE=off`."""
    import jax

    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = os.environ.get("MOAC_CACHE", str(caches / "moac"))
    if folder == "off":
        return {}
    settings = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.3}
    for name, value in settings.items():
        jax.config.update(name, value)
    return settings


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_END = b"\0"  # in place of the number of a signal: no more will come
_PATIENCE = 1.0  # seconds that a second signal waits for the work to end in order


class Terminated(KeyboardInterrupt):
    """SIGTERM, which is treated like Ctrl-C."""


def exit_code(error: KeyboardInterrupt) -> int:
    """The exit code of a command that was stopped: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def continued(how: str) -> Generator[None]:
    """While entered, an interruption ends the command with a line that says how to go on from what is kept."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise type(error)(f"stopped; {how}") from error


@contextlib.contextmanager
def terminable() -> Generator[None]:
    """While entered, Ctrl-C and SIGTERM raise a KeyboardInterrupt, so that whatever is open is put in order first.

    An error that comes out after one comes of it: a library that is being imported makes it an ImportError.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[KeyboardInterrupt] = []

    def stop(number: int, _: FrameType | None) -> None:
        raised.append(_error(number))
        raise raised[-1]

    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    except Exception as error:
        if raised:
            raise raised[0] from error
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Interrupts:
    """While entered, the first Ctrl-C or SIGTERM is noted, to be raised by `check` where it does no harm.

    Raised at any moment, as Python does, a KeyboardInterrupt can vanish in a callback of a library. And Python runs
    handlers between two instructions only, for which a compiled program can make it wait. A thread therefore hears of
    every signal as it arrives: it acknowledges the first at once, and where the second is not obeyed in time it ends
    the process, which loses no more than SIGKILL does.
    """

    def __init__(self) -> None:
        self.asked: KeyboardInterrupt | None = None  # what was noted
        self._noted, self._left = 0, threading.Event()
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._entered.enter_context(self._listening())
        return self

    def __exit__(self, *raised: Any) -> None:
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
            # From here on a first signal is noted and not raised, so that what follows is undone in order.
            handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
            previous = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
            try:
                listener.start()
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
                _say("stopping at the next checkpoint; press Ctrl-C again to stop at once")
            elif not self._left.wait(_PATIENCE):
                _say("moac: stopped at once; what was written before is kept")
                os._exit(128 + number)


def _say(text: str) -> None:
    """A line on stderr, if there still is one."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _error(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
