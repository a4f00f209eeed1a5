"""Where tasks run: in this process, in processes of this machine, or on a Ray cluster, with the same outcomes.

Each worker process is the only one of a `ProcessPoolExecutor`, so that its end concerns its own task alone; time,
memory and end are watched from outside. Processes are spawned, never forked: JAX's threads do not survive a fork. A
call and its answer are bytes, so that the process that watches need not import what the task does. Nothing here is
cleaned up by a finaliser, which may run at any moment, in any thread, with any lock held: `opened` closes what it made.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from queue import SimpleQueue
from typing import Any, TypeVar

from moac import tasks
from moac.choices import shown
from moac.tasks import Executor, Failure, Limits, Outcome, Serial, TaskFailedError, ended, results

__all__ = ["NAMES", "Executor", "Failure", "Limits", "Serial", "TaskFailedError", "ended", "opened", "results"]

NAMES = ("serial", "process", "ray")
T = TypeVar("T")
R = TypeVar("R")
_GRACE = 5.0  # seconds to write a checkpoint when a task is stopped
_LOOK_EVERY = 0.05


@contextmanager
def opened(
    name: str, *, workers: int | None = None, address: str | None = None, limits: Limits | None = None
) -> Generator[Executor]:
    """The executor of that name, closed at the end: what still runs is stopped, and its processes end.

    What its libraries print meanwhile goes to stderr. One `map` at a time.

    Args:
        name: `serial`, `process` or `ray`.
        workers: processes; None is one per core, on a running cluster as many as it has.
        address: of a running Ray cluster; None is the one of this machine.
        limits: what a task may use; not for `serial`, which has no process to end.
    """
    executor = _made(name, workers, address, limits or Limits())
    with redirect_stdout(sys.stderr):
        try:
            yield executor
        finally:
            executor.close()


def _made(name: str, workers: int | None, address: str | None, limits: Limits) -> Executor:
    if name not in NAMES:
        raise ValueError(f"`executor` must be one of {', '.join(NAMES)}, got {shown(name)}.")
    if workers is not None and workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}.")
    if address is not None and name != "ray":
        raise ValueError(f"`address` must be left out with the {name} executor: it is that of a Ray cluster.")
    if name == "serial":
        for option, value in (("workers", workers), ("timeout", limits.timeout), ("memory", limits.memory)):
            if value is not None:
                raise ValueError(f"`{option}` must be left out with the serial executor: choose process or ray.")
        return Serial()
    if name == "process":
        return Process(workers or tasks.cores(), limits)
    from moac.runs.cluster import Ray

    return Ray(address or "auto", workers, limits)


class Process:
    """So many workers, each with one task at a time; a thread of this process watches each."""

    def __init__(self, workers: int, limits: Limits) -> None:
        self._limits = limits
        self._workers = [Worker() for _ in range(workers)]
        self._watchers: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end."""
        self._stop()
        todo, answers = iter(range(len(items))), SimpleQueue[tuple[int, bytes]]()

        def watch(worker: Worker) -> None:
            for index in todo:  # which all watchers share
                answers.put((index, self._answer(worker, function, items[index])))

        self._watchers = ThreadPoolExecutor(len(self._workers))
        for worker in self._workers:
            self._watchers.submit(watch, worker)
        for _ in items:
            yield outcome(*answers.get())

    def close(self) -> None:
        """Stop what runs, as after Ctrl-C, and let all processes go."""
        self._stop()
        for worker in self._workers:
            worker.close()

    def _answer(self, worker: Worker, function: Callable[[Any], Any], item: Any) -> bytes:
        try:
            call = pickle.dumps((function, item))
        except Exception as error:
            return failed(Failure.raised(error))
        return worker.attempt(call, self._limits)

    def _stop(self) -> None:
        """Stop what runs: all workers are asked at once, and killed at the same time."""
        if self._watchers is None:
            return
        for worker in self._workers:
            worker.stop()
        until = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.kill(max(0.0, until - time.monotonic()))
        self._watchers.shutdown()
        self._watchers = None
        for worker in self._workers:
            worker.stopping = False


class Worker:
    """One process, started when it is needed and again when it was ended.

    One thread runs calls; another may interrupt and kill what runs. While it is `stopping`, nothing more is started.
    """

    def __init__(self) -> None:
        self._context = _Spawning()
        self._pool: ProcessPoolExecutor | None = None
        self._ready: Future[int] = Future()
        self._answer: Future[bytes] | None = None
        self.stopping, self._lock = False, threading.Lock()

    def attempt(self, call: bytes, limits: Limits) -> bytes:
        """The answer to a call, tried again where the process was lost; a failure where a limit was reached."""
        lost = ""
        for _ in range(1 + limits.retries):
            answered = self._run(call, limits)
            if isinstance(answered, bytes):
                return answered
            lost = answered
            if self.stopping:
                break
        return failed(Failure("lost", lost))

    def stop(self) -> None:
        """Start nothing more, and ask what runs to end, as Ctrl-C does."""
        with self._lock:
            self.stopping = True
        self._interrupt()

    def kill(self, seconds: float) -> None:
        """End what runs, if it has not ended by itself within some seconds."""
        answer, process = self._answer, self._context.process
        if answer is not None and wait([answer], seconds).not_done and process is not None:
            process.kill()

    def close(self) -> None:
        """Wait for the end of the process, which is idle or has ended; a later call starts another."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = self._answer = None

    def _run(self, call: bytes, limits: Limits) -> bytes | str:
        """The answer to a call, which is a failure where a limit was reached; or how the process was lost."""
        try:
            answer = self._sent(call)
        except BrokenProcessPool:
            return self._lost()
        if answer is None:
            return "it was stopped before it began."
        reached = self._reached(answer, limits)
        if reached is not None:
            self._interrupt()
            self.kill(_GRACE)
            self.close()
            return failed(reached)
        return self._lost() if answer.exception() else answer.result()

    def _sent(self, call: bytes) -> Future[bytes] | None:
        """The answer that will come; None where nothing more is to be started."""
        with self._lock:
            if self.stopping:
                return None
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, self._context, _begin)
                with tasks.variables(tasks.one_thread()):
                    self._ready = self._pool.submit(os.getpid)  # starts the process, which is then ready
            self._answer = self._pool.submit(_answer, call)
            return self._answer

    def _reached(self, answer: Future[bytes], limits: Limits) -> Failure | None:
        """The limit that is reached before the answer comes. Starting a process is no part of a task's time."""
        wait([self._ready])
        deadline = time.monotonic() + (limits.timeout or math.inf)
        while (left := deadline - time.monotonic()) > 0:
            seconds = min(left, _LOOK_EVERY if limits.memory else math.inf)
            if wait([answer], None if math.isinf(seconds) else seconds).done:
                return None
            process = self._context.process
            if limits.memory and process is not None and tasks.resident(process.pid or 0) > limits.memory:
                return Failure("memory", f"it used more than {limits.memory / 1e6:g} MB.")
        return Failure("timeout", f"it ran longer than {limits.timeout:g} s.")

    def _interrupt(self) -> None:
        answer, process = self._answer, self._context.process
        if answer is None or answer.done() or process is None or process.pid is None:
            return
        if self._ready.done() and process.is_alive():
            os.kill(process.pid, signal.SIGINT)
        else:
            process.kill()  # its task has not begun

    def _lost(self) -> str:
        """How the process ended by itself."""
        process = self._context.process
        self.close()
        code = None if process is None else process.exitcode
        if code is None or code >= 0:
            return f"its process ended with exit code {code}."
        name = signal.Signals(-code).name
        why = ", as the kernel does when memory runs out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{why}."


class _Spawning(SpawnContext):
    """Keeps the last process that it started: a pool does not show which it has."""

    def __init__(self) -> None:
        self.process: SpawnProcess | None = None

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # noqa: N802 - multiprocessing's name  # pyright: ignore[reportIncompatibleVariableOverride]
        """A process that a pool asks for."""
        self.process = SpawnProcess(*arguments, **options)
        return self.process


def outcome(index: int, answered: bytes) -> Outcome[Any]:
    """What a worker's answer says."""
    return Outcome(index, *tasks.unpickled(answered))


def failed(failure: Failure) -> bytes:
    """The answer that a failure is."""
    return pickle.dumps((None, failure))


def _begin() -> None:
    """Prepare the worker process; its standard output belongs to whoever started it."""
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone: nobody is left to take an answer."""
    parent: Any = multiprocessing.parent_process()
    connection.wait([parent.sentinel])
    os._exit(1)


def _answer(call: bytes) -> bytes:
    """Run one task in the worker process. Only a task is interrupted by Ctrl-C, and that ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        function, item = tasks.unpickled(call)
        return pickle.dumps((function(item), None))
    except Exception as error:
        return failed(Failure.raised(error))
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
