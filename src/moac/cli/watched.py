"""A run among several, as a person sees it."""

from __future__ import annotations

import sys
from typing import Any, final

from moac import training
from moac.cli.interrupts import Interrupts
from moac.cli.progress import Display
from moac.runs.runner import Task


@final
class Watched:
    """Shows a run, under its name, and stops it when the user asks."""

    def __init__(self, asked: Interrupts, task: Task, prepared: training.Run, iteration: int) -> None:
        sys.stderr.write(f"{task.label}\n")
        self._asked, self._display = asked, Display(prepared, iteration)

    def __enter__(self) -> Watched:
        self._display.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._display.__exit__(*raised)

    def show(self, snapshot: training.Snapshot) -> None:
        """One more snapshot."""
        self._display.show(snapshot)
        self._asked.check()
