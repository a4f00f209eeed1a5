"""Tasks, what came of them, and who runs them: the vocabulary of executors, whatever they start.

A task is a function of a module and one picklable item. It may be run again, anywhere: what it writes, it writes
atomically, and what is large it is told by path.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, final

T = TypeVar("T")
R = TypeVar("R")
Kind = Literal["raised", "timeout", "memory", "lost"]


class TaskFailedError(ValueError):
    """A task that failed for a reason that cannot be raised here as it was."""


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


def unpickled(content: bytes) -> Any:
    """What a process of ours has pickled; nothing else is ever unpickled."""
    return pickle.loads(content)  # noqa: S301


def _received(kind: Kind, message: str, trace: str, carried: bytes) -> Failure:
    try:
        return Failure(kind, message, trace, unpickled(carried))
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
