"""Where tasks run: in this process, in processes of this machine, or on a Ray cluster.

A task is a function of a module and one picklable item. It may be run again, anywhere: what it writes, it writes
atomically, and what is large it is told by path. All executors answer with the same outcomes. `opened` owns what an
executor starts.
"""

from __future__ import annotations

import math
import pickle
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, final

from moac.machine import cores

NAMES = ("serial", "process", "ray")
T = TypeVar("T")
R = TypeVar("R")
Kind = Literal["raised", "timeout", "memory", "lost"]


class TaskFailedError(ValueError):
    """A task that failed for a reason that cannot be raised here as it was."""


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


@final
@dataclass(frozen=True)
class Failure:
    """Why a task has no value.

    Attributes:
        kind: it raised, ran past its time or its memory, or its process was lost.
        message: one line, the same from every executor.
        trace: where it was raised.
        error: what was raised; None where it does not come whole out of another process.
    """

    kind: Kind
    message: str
    trace: str = ""
    error: Exception | None = None

    @classmethod
    def raised(cls, error: Exception) -> Failure:
        """Of an error that a task raised."""
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return cls("raised", message, "".join(traceback.format_exception(error)), error)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, the error is bytes of its own: what cannot be read of it must not hide the rest."""
        try:
            carried = pickle.dumps(self.error)
        except Exception:
            carried = pickle.dumps(None)
        return _received, (self.kind, self.message, self.trace, carried)


def _received(kind: Kind, message: str, trace: str, carried: bytes) -> Failure:
    try:
        return Failure(kind, message, trace, pickle.loads(carried))  # noqa: S301 - from a process of our own
    except Exception:
        return Failure(kind, message, trace)


@final
@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What came of one item.

    Attributes:
        index: of the item.
        value: of the function; None where it failed.
        failure: None where it did not.
    """

    index: int
    value: R | None
    failure: Failure | None = None


class Executor(Protocol):
    """Runs a function on items."""

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end: in any order, a failure among them.

        Where the caller leaves early, what still runs is stopped by the next `map` or by `close`.
        """
        ...

    def close(self) -> None:
        """Stop what `map` has left running, and leave what it has joined or started."""
        ...


@final
class Serial:
    """One task after the other, in this process: easy to debug, and what the other executors are compared with."""

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, in order."""
        for index, item in enumerate(items):
            try:
                value = function(item)
            except Exception as error:
                yield Outcome(index, None, Failure.raised(error))
            else:
                yield Outcome(index, value)

    def close(self) -> None:
        """Nothing is kept."""


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


def ended(outcomes: Iterable[Outcome[R]]) -> Iterator[tuple[int, R]]:
    """Index and value of each outcome as it comes; the first failure is raised."""
    for outcome in outcomes:
        if outcome.failure is not None:
            raise outcome.failure.error or TaskFailedError(outcome.failure.message)
        yield outcome.index, cast(R, outcome.value)


def results(outcomes: Iterable[Outcome[R]]) -> list[R]:
    """The values in the order of the items; the first failure is raised."""
    values = dict(ended(outcomes))
    return [values[index] for index in sorted(values)]
