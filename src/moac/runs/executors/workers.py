"""A process that runs tasks one at a time, watched from outside: it can be too slow, too large, or gone.

Spawned, never forked: JAX's threads do not survive a fork. A call and its answer are bytes, so that who watches need
not import what the task does.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, final

from moac.runs.executors.machine import resident
from moac.runs.executors.outcomes import Failure, Limits, Outcome

_LOOK_EVERY = 0.05
_GRACE = 5.0
"""Seconds to write a checkpoint when a task is stopped."""
_starting = threading.Lock()


@final
@dataclass(frozen=True)
class Lost:
    """A process that ended by itself."""

    exit_code: int | None

    def __str__(self) -> str:
        code = self.exit_code
        if code is None or code >= 0:
            return f"its process ended with exit code {code}."
        name = signal.Signals(-code).name
        why = ", as the kernel does when memory runs out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{why}."


@final
class Worker:
    """One process, started when it is needed and again when it was ended."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: BaseProcess | None = None
        self._pipe: Any = None
        self.stopping = False

    def run(self, call: bytes, limits: Limits) -> bytes | Lost:
        """The answer to a call, which is a failure where a limit was reached; or that the process was lost."""
        try:
            process = self._ready()
            self._pipe.send_bytes(call)
        except (EOFError, OSError):
            return self._lost()
        deadline = time.monotonic() + (math.inf if limits.timeout is None else limits.timeout)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return self._ended(Failure("timeout", f"it ran longer than {limits.timeout:g} s."))
            ended = self._wait(_LOOK_EVERY if limits.memory else left)
            if ended is not None:
                return ended
            if limits.memory and resident(process.pid or 0) > limits.memory:
                return self._ended(Failure("memory", f"it used more than {limits.memory / 1e6:g} MB."))

    def stop(self) -> None:
        """Ask the process to end, as Ctrl-C does; one that does not is killed."""
        self.stopping = True
        process = self._process
        if process is None or process.exitcode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGINT)
        if not connection.wait([process.sentinel], _GRACE):
            process.kill()

    def close(self) -> None:
        """Let an idle process go."""
        if self._process is None:
            return
        self._pipe.close()
        self._process.join(_GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        atexit.unregister(self.close)
        self._process = None

    def _ready(self) -> BaseProcess:
        """A process that waits for a call."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=serve, args=(theirs,), name="moac-worker")
            with _starting, _variables(self._environment):
                self._process.start()
            theirs.close()
            atexit.register(self.close)
            self._pipe.recv_bytes()
        return self._process

    def _wait(self, seconds: float) -> bytes | Lost | None:
        """The answer, or that there will be none; None where neither is known yet."""
        process: Any = self._process
        ready = connection.wait([self._pipe, process.sentinel], None if math.isinf(seconds) else seconds)
        if self._pipe in ready:
            try:
                return self._pipe.recv_bytes()
            except (EOFError, OSError):
                return self._lost()
        return self._lost() if ready else None

    def _lost(self) -> Lost:
        process: Any = self._process
        process.join(_GRACE)
        found = Lost(process.exitcode)
        self.close()
        return found

    def _ended(self, failure: Failure) -> bytes:
        """End a process that went too far; the next call starts another."""
        stopping = self.stopping
        self.stop()
        self.stopping = stopping
        self.close()
        return pickle.dumps((None, failure))


def attempt(worker: Worker, call: bytes, limits: Limits) -> bytes:
    """The answer to a call, tried again where the process was lost."""
    lost: Lost | None = None
    for _ in range(1 + limits.retries):
        found = worker.run(call, limits)
        if isinstance(found, bytes):
            return found
        lost = found
        if worker.stopping:
            break
    return pickle.dumps((None, Failure("lost", str(lost))))


def outcome(index: int, answer: bytes) -> Outcome[Any]:
    """What a worker's answer says."""
    value, failure = pickle.loads(answer)  # noqa: S301 - from a process of our own
    return Outcome(index, value, failure)


def serve(pipe: Any) -> None:
    """Answer calls until the pipe closes; the process's standard output belongs to whoever started it."""
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        pipe.send_bytes(b"ready")
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _answer(call: bytes) -> bytes:
    try:
        function, item = pickle.loads(call)  # noqa: S301 - from the process that started this one
        return pickle.dumps((function(item), None))
    except Exception as error:
        return pickle.dumps((None, Failure.raised(error)))


def _end_with_parent() -> None:
    """Nobody is left to take the answer, and somebody else may have started the same task."""
    parent: Any = multiprocessing.parent_process()
    connection.wait([parent.sentinel])
    os._exit(1)


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Generator[None]:
    """With these variables for what is started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
