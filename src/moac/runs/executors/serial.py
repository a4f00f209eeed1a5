"""One task after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, final

from moac.runs.executors.outcomes import Failure, Outcome

T = TypeVar("T")
R = TypeVar("R")


@final
class Serial:
    """Starts nothing: easy to debug, and what the other executors are compared with."""

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
