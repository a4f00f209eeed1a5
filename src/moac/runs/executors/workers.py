"""A worker process that runs tasks one at a time, watched from outside: it can be too slow, too large, or gone.

Each is the only worker of a `ProcessPoolExecutor`, so that its end concerns its own task alone. Processes are spawned,
never forked: JAX's threads do not survive a fork. A call and its answer are bytes, so that the process that watches
need not import what the task does. Nothing here is cleaned up by a finaliser: whoever makes a worker closes it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NoReturn, final

from moac.machine import one_thread, resident, variables
from moac.runs.executors.outcomes import Failure, Limits, Outcome

GRACE = 5.0
"""Seconds to write a checkpoint when a task is stopped."""
_LOOK_EVERY = 0.05


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
class _OneCore(SpawnProcess):
    """A process that starts with the variables which keep it to one core."""

    def start(self) -> None:
        """Start it; the variables of this process are the same afterwards."""
        with variables(one_thread()):
            SpawnProcess.start(self)


@final
class _Spawning(SpawnContext):
    """Starts processes of one core, and keeps the last one: a pool does not show which processes it has."""

    def __init__(self) -> None:
        self.process: SpawnProcess | None = None

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # noqa: N802 - multiprocessing's name  # pyright: ignore[reportIncompatibleVariableOverride]
        """A process that a pool asks for."""
        self.process = _OneCore(*arguments, **options)
        return self.process


@final
class Worker:
    """One process, started when it is needed and again when it was ended.

    One thread runs calls; another may interrupt and kill what runs.
    """

    def __init__(self) -> None:
        self._context = _Spawning()
        self._pool: ProcessPoolExecutor | None = None
        self._ready: Future[None] = Future()
        self._answer: Future[bytes] | None = None
        self._stopping, self._lock = False, threading.Lock()

    def attempt(self, call: bytes, limits: Limits) -> bytes:
        """The answer to a call, tried again where the process was lost; a failure where a limit was reached."""
        lost = Lost(None)
        for _ in range(1 + limits.retries):
            answered = self._run(call, limits)
            if isinstance(answered, bytes):
                return answered
            lost = answered
            if self._stopping:
                break
        return failed(Failure("lost", str(lost)))

    def stop(self) -> None:
        """Start nothing more, until told otherwise, and ask what runs to end, as Ctrl-C does."""
        with self._lock:
            self._stopping = True
        self._interrupt()

    def kill(self, seconds: float) -> None:
        """End what runs, if it has not ended by itself within some seconds."""
        answer, process = self._answer, self._context.process
        if answer is not None and wait([answer], seconds).not_done and process is not None:
            process.kill()

    def resume(self) -> None:
        """Take calls again."""
        self._stopping = False

    def close(self) -> None:
        """Wait for the end of the process, which is idle or has ended; a later call starts another."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = self._answer = None

    def _run(self, call: bytes, limits: Limits) -> bytes | Lost:
        """The answer to a call, which is a failure where a limit was reached; or that the process was lost."""
        try:
            answer = self._sent(call)
        except BrokenProcessPool:
            return self._lost()
        if answer is None:
            return Lost(None)
        reached = self._reached(answer, limits)
        if reached is not None:
            self._interrupt()
            self.kill(GRACE)
            self.close()
            return failed(reached)
        return self._lost() if answer.exception() else answer.result()

    def _sent(self, call: bytes) -> Future[bytes] | None:
        """The answer that will come; None where nothing more is to be started."""
        with self._lock:
            if self._stopping:
                return None
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, self._context, _begin)
                self._ready = self._pool.submit(_nothing)
            self._answer = self._pool.submit(answer, call)
            return self._answer

    def _reached(self, answer: Future[bytes], limits: Limits) -> Failure | None:
        """The limit that is reached before the answer comes. Starting a process is no part of a task's time."""
        wait([self._ready])
        deadline = time.monotonic() + (math.inf if limits.timeout is None else limits.timeout)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return Failure("timeout", f"it ran longer than {limits.timeout:g} s.")
            seconds = min(left, _LOOK_EVERY if limits.memory else math.inf)
            if wait([answer], None if math.isinf(seconds) else seconds).done:
                return None
            process = self._context.process
            if limits.memory and process is not None and resident(process.pid or 0) > limits.memory:
                return Failure("memory", f"it used more than {limits.memory / 1e6:g} MB.")

    def _interrupt(self) -> None:
        answer, process = self._answer, self._context.process
        if answer is None or answer.done() or process is None or process.pid is None:
            return
        if self._ready.done() and process.is_alive():
            os.kill(process.pid, signal.SIGINT)
        else:
            process.kill()  # its task has not begun

    def _lost(self) -> Lost:
        """How the process ended."""
        process = self._context.process
        self.close()
        return Lost(None if process is None else process.exitcode)


def outcome(index: int, answered: bytes) -> Outcome[Any]:
    """What a worker's answer says."""
    value, failure = pickle.loads(answered)  # noqa: S301 - from a process of our own
    return Outcome(index, value, failure)


def answer(call: bytes) -> bytes:
    """Run one task in the worker process. Only a task is interrupted by Ctrl-C, and that ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        function, item = pickle.loads(call)  # noqa: S301 - from the process that started this one
        return pickle.dumps((function(item), None))
    except Exception as error:
        return failed(Failure.raised(error))
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def failed(failure: Failure) -> bytes:
    """The answer that a failure is."""
    return pickle.dumps((None, failure))


def _begin() -> None:
    """Prepare the worker process; its standard output belongs to whoever started it."""
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> NoReturn:
    """Nobody is left to take the answer, and somebody else may have started the same task."""
    parent: Any = multiprocessing.parent_process()
    connection.wait([parent.sentinel])
    os._exit(1)


def _nothing() -> None:
    """The first call of a process, which says that it is ready."""
