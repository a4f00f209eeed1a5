"""What a person sees while data is worked on: a bar in a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_PLAIN_EVERY = 5.0


@final
class Stages:
    """Shows stages of work as they go on, one after the other."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
            console=Console(stderr=True), disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._stage, self._task, self._last = "", None, 0.0

    def __enter__(self) -> Stages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        """How far a stage has come."""
        if self._bar.disable:
            self._plain(stage, done, total)
        elif stage != self._stage or self._task is None:
            self._bar.start()  # only now: another display may have been shown since this one was entered
            self._task = self._bar.add_task(stage, total=total, completed=done)
        else:
            self._bar.update(self._task, completed=done, total=total)
        self._stage = stage

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self._bar.disable:
            sys.stderr.write(f"{text}\n")
        else:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _plain(self, stage: str, done: int, total: int) -> None:
        """A line when a stage begins, and every few seconds."""
        now = time.monotonic()
        if stage != self._stage or now - self._last >= _PLAIN_EVERY:
            self._last = now
            sys.stderr.write(f"{stage}\n" if stage != self._stage else f"{stage}: {100 * done // max(total, 1)} %\n")
