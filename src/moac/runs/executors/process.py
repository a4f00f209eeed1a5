"""Processes of this machine, one thread each."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar, final

from moac.runs.executors.outcomes import Failure, Limits, Outcome
from moac.runs.executors.workers import GRACE, Worker, failed, outcome

T = TypeVar("T")
R = TypeVar("R")


@final
class Process:
    """So many processes, each with one task at a time; a thread of this process watches each.

    Workers and threads belong to this object and end when it is closed. A `map` that is abandoned cleans up nothing:
    it may be finalised at any moment, in any thread, with any lock held.

    Args:
        workers: how many.
        limits: of a task.
    """

    def __init__(self, workers: int, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._workers = [Worker() for _ in range(workers)]
        self._watchers: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end. Left early, its tasks are stopped by the next `map` or by `close`."""
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
        until = time.monotonic() + GRACE
        for worker in self._workers:
            worker.kill(max(0.0, until - time.monotonic()))
        self._watchers.shutdown()
        self._watchers = None
        for worker in self._workers:
            worker.resume()
