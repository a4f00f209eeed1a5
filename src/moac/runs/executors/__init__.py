"""Where tasks run: in this process, in processes of this machine, or on a Ray cluster. Imports nothing of ours.

A task is a function of a module and one picklable item. It may be run again, anywhere: what it writes, it writes
atomically, and what is large it is told by path. All executors answer with the same outcomes. `opened` owns what an
executor starts.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout

from moac.machine import cores, one_thread
from moac.runs.executors.outcomes import Executor, Failure, Limits, Outcome, TaskFailedError, ended, results
from moac.runs.executors.process import Process
from moac.runs.executors.serial import Serial

NAMES = ("serial", "process", "ray")


__all__ = [
    "NAMES",
    "Executor",
    "Failure",
    "Limits",
    "Outcome",
    "Process",
    "Serial",
    "TaskFailedError",
    "cores",
    "ended",
    "one_thread",
    "opened",
    "results",
]


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
        _check_serial(workers, limits)
        return Serial()
    if name == "process":
        return Process(workers or cores(), limits)
    from moac.runs.executors.cluster import Ray

    return Ray(address, workers, limits)


def _check_serial(workers: int | None, limits: Limits) -> None:
    """Refuse what takes a process of its own."""
    for option, value in (("workers", workers), ("timeout", limits.timeout), ("memory", limits.memory)):
        if value is not None:
            raise ValueError(f"`{option}` must be left out with the serial executor: choose process or ray.")
