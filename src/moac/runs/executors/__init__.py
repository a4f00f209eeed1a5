"""Where tasks run: in this process, in processes of this machine, or on a Ray cluster.

All executors answer with the same outcomes (`moac.tasks`). `opened` owns what an executor starts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import final

from moac.machine import cores
from moac.tasks import Executor, Failure, Outcome, Serial, TaskFailedError, ended, results

NAMES = ("serial", "process", "ray")

__all__ = [
    "NAMES",
    "Executor",
    "Failure",
    "Limits",
    "Outcome",
    "Serial",
    "TaskFailedError",
    "ended",
    "opened",
    "results",
]


@final
@dataclass(frozen=True)
class Limits:
    """What a task may use.

    Attributes:
        timeout: seconds; None is no limit.
        memory: bytes of its process; None is no limit.
        retries: how often a task is tried again whose process or machine was lost. One that raised, or reached a
            limit, is not.
    """

    timeout: float | None = None
    memory: int | None = None
    retries: int = 2

    def __post_init__(self) -> None:
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise ValueError(f"`timeout` must be positive and finite, got {self.timeout}.")
        if self.memory is not None and self.memory <= 0:
            raise ValueError(f"`memory` must be positive, got {self.memory}.")
        if self.retries < 0:
            raise ValueError(f"`retries` must be at least 0, got {self.retries}.")


@contextmanager
def opened(
    name: str, *, workers: int | None = None, address: str | None = None, limits: Limits | None = None
) -> Generator[Executor]:
    """The executor of that name, closed at the end: what still runs is stopped, and its processes end.

    What its libraries print meanwhile goes to stderr. One `map` at a time.

    Args:
        name: `serial`, `process` or `ray`.
        workers: processes; None is one per core, on a running cluster as many as it has.
        address: of a running Ray cluster; None starts one on this machine.
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
        raise ValueError(f"`executor` must be one of {', '.join(NAMES)}, got {name!r}.")
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
        from moac.runs.executors.process import Process

        return Process(workers or cores(), limits)
    from moac.runs.executors.cluster import Ray

    return Ray(address, workers, limits)
