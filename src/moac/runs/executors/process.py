"""Processes of this machine with one thread and one task each, watched from outside: their time, memory and end.

Each worker is the only one of a `ProcessPoolExecutor`, so that its end concerns its own task alone. Processes are
spawned, never forked: JAX's threads do not survive a fork. A call and its answer are bytes, so that the process that
watches need not import what the task does. Nothing here is cleaned up by a finaliser: whoever makes a worker closes it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from queue import SimpleQueue
from typing import Any, NoReturn, TypeVar, final

from moac.machine import one_thread, resident, variables
from moac.runs.executors import Limits
from moac.tasks import Failure, Outcome, unpickled

T = TypeVar("T")
R = TypeVar("R")
_GRACE = 5.0
"""Seconds to write a checkpoint when a task is stopped."""
_LOOK_EVERY = 0.05


@final
class Process:
    """So many workers, each with one task at a time; a thread of this process watches each.

    Workers and threads belong to this object and end when it is closed. A `map` that is abandoned cleans up nothing:
    it may be finalised at any moment, in any thread, with any lock held.

    Args:
        workers: how many.
        limits: of a task.
    """

    def __init__(self, workers: int, limits: Limits) -> None:
        self._limits = limits
        self._workers = [Worker() for _ in range(workers)]
        self._watchers: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end."""
        self._stop()
        self._watchers = ThreadPoolExecutor(len(self._workers))
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            idle.put(worker)
        answers: SimpleQueue[tuple[int, bytes]] = SimpleQueue()

        def one(index: int) -> None:
            worker = idle.get()
            try:
                answers.put((index, self._answer(worker, function, items[index])))
            finally:
                idle.put(worker)

        for index in range(len(items)):
            self._watchers.submit(one, index)
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
        self._watchers.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()
        until = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.kill(max(0.0, until - time.monotonic()))
        self._watchers.shutdown()
        self._watchers = None
        for worker in self._workers:
            worker.resume()


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
        lost = ""
        for _ in range(1 + limits.retries):
            answered = self._run(call, limits)
            if isinstance(answered, bytes):
                return answered
            lost = answered
            if self._stopping:
                break
        return failed(Failure("lost", lost))

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

    def _run(self, call: bytes, limits: Limits) -> bytes | str:
        """The answer to a call, which is a failure where a limit was reached; or how the process was lost."""
        try:
            answer = self._sent(call)
        except BrokenProcessPool:
            return self._lost()
        if answer is None:
            return _how_it_ended(None)
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
            if self._stopping:
                return None
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, self._context, _begin)
                self._ready = self._pool.submit(_nothing)
            self._answer = self._pool.submit(_answer, call)
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

    def _lost(self) -> str:
        process = self._context.process
        self.close()
        return _how_it_ended(None if process is None else process.exitcode)


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


def _how_it_ended(exit_code: int | None) -> str:
    """A sentence on a process that ended by itself."""
    if exit_code is None or exit_code >= 0:
        return f"its process ended with exit code {exit_code}."
    name = signal.Signals(-exit_code).name
    why = ", as the kernel does when memory runs out" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{why}."


def outcome(index: int, answered: bytes) -> Outcome[Any]:
    """What a worker's answer says."""
    value, failure = unpickled(answered)
    return Outcome(index, value, failure)


def failed(failure: Failure) -> bytes:
    """The answer that a failure is."""
    return pickle.dumps((None, failure))


def end_with_parent(end: Callable[[], Any]) -> None:
    """Call `end` when the process that started this one is gone: nobody is left to take an answer."""

    def watch() -> None:
        parent: Any = multiprocessing.parent_process()
        connection.wait([parent.sentinel])
        end()

    threading.Thread(target=watch, daemon=True).start()


def _begin() -> None:
    """Prepare the worker process; its standard output belongs to whoever started it."""
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(_exit)


def _exit() -> NoReturn:
    os._exit(1)


def _nothing() -> None:
    """The first call of a process, which says that it is ready."""


def _answer(call: bytes) -> bytes:
    """Run one task in the worker process. Only a task is interrupted by Ctrl-C, and that ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        function, item = unpickled(call)
        return pickle.dumps((function(item), None))
    except Exception as error:
        return failed(Failure.raised(error))
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
