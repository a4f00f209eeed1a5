"""Processes of this machine, one thread each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Any, TypeVar, final

from moac.runs.executors.machine import one_thread
from moac.runs.executors.outcomes import Limits, Outcome
from moac.runs.executors.workers import Worker, attempt, outcome

T = TypeVar("T")
R = TypeVar("R")


@final
class Process:
    """So many processes, each with one task at a time; a thread of this process watches each.

    Args:
        workers: how many.
        limits: of a task.
    """

    def __init__(self, workers: int, limits: Limits | None = None) -> None:
        self._workers, self._limits = workers, limits or Limits()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end. Left early, as by Ctrl-C, it stops what runs."""
        if not items:
            return
        workers = [Worker(one_thread()) for _ in range(min(self._workers, len(items)))]
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def one(index: int) -> tuple[int, bytes]:
            worker = idle.get()
            try:
                return index, attempt(worker, pickle.dumps((function, items[index])), self._limits)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(len(workers))
        try:
            for done in as_completed([pool.submit(one, index) for index in range(len(items))]):
                yield outcome(*done.result())
        finally:
            _end(pool, workers)

    def close(self) -> None:
        """Nothing is kept: workers end with `map`."""


def _end(pool: ThreadPoolExecutor, workers: list[Worker]) -> None:
    """Stop what runs, then let all go."""
    pool.shutdown(wait=False, cancel_futures=True)
    stopping: Any = ThreadPoolExecutor(len(workers))
    with stopping:
        list(stopping.map(Worker.stop, workers))
    pool.shutdown(wait=True)
    for worker in workers:
        worker.close()
