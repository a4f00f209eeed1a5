"""How far work has come, on stderr: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moac import training

_PLAIN_EVERY = 5.0
"""Seconds between two lines of progress, where stderr is no terminal."""


def say(line: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"{line}\n")


class Progress:
    """How far work has come, stage by stage: a bar in a terminal, a line every few seconds elsewhere."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        columns = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn())
        numbers = progress.TextColumn("{task.fields[numbers]}", markup=False)
        self._bar = progress.Progress(
            *columns, progress.TaskProgressColumn(), numbers, progress.TimeRemainingColumn(),
            console=Console(stderr=True), disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._stage, self._task, self._last = "", None, 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, stage: str, done: int, total: int, numbers: str = "") -> None:
        """How far a stage has come."""
        begins, self._stage = stage != self._stage, stage
        if self._bar.disable:
            self._line(begins, done, total, numbers)
        elif begins or self._task is None:
            self._bar.start()  # only now: another display may have been shown since this one was entered
            self._task = self._bar.add_task(stage, total=total, completed=done, numbers=numbers)
        else:
            self._bar.update(self._task, completed=done, total=total, numbers=numbers)

    def say(self, line: str) -> None:
        """A line of its own, above the bar."""
        if self._bar.disable:
            say(line)
        else:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _line(self, begins: bool, done: int, total: int, numbers: str) -> None:
        now = time.monotonic()
        if begins or now - self._last >= _PLAIN_EVERY or (numbers and done == total):
            self._last = now
            share = f"{self._stage}: {100 * done // max(total, 1)} %"
            say(f"{self._stage} {done}/{total}  {numbers}" if numbers else self._stage if begins else share)


class TrainingProgress:
    """Shows snapshots of a run as they come, and heeds a request to stop between two of them.

    Args:
        run: the run.
        iteration: at which it starts.
        check: raises where the user has asked to stop.
    """

    def __init__(self, run: training.Run, iteration: int, check: Callable[[], None] | None = None) -> None:
        self._run, self._check, self._began = run, check, time.monotonic()
        self._total = run.settings.num_iterations
        self._timed: tuple[int, float] | None = None
        self._progress = Progress()
        if sys.stderr.isatty():
            self._progress.show("iteration", iteration, self._total, "compiling …")

    def __enter__(self) -> TrainingProgress:
        self._progress.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._progress.__exit__(*raised)

    def show(self, snapshot: training.Snapshot) -> None:
        """One more snapshot."""
        now = time.monotonic()
        numbers = f"{self._numbers(snapshot)}{self._speed(snapshot.iteration, now)}"
        self._progress.show("iteration", snapshot.iteration, self._total, numbers)
        if self._timed is None:  # what came before was mostly compilation
            self._timed = snapshot.iteration, now
        if self._check is not None:
            self._check()

    def _numbers(self, snapshot: training.Snapshot) -> str:
        history = snapshot.history
        if not len(history.iteration):
            return ""
        from moac.training import mean_over_trials as mean  # which needs JAX

        returns = " ".join(f"{value:.4f}" for value in mean(history.returns[:, -1]))
        gap, norm = float(mean(history.gap[:, -1])), float(mean(history.gradient_norm_squared[:, -1]))
        shown = f"gap {gap:.1e}  " if gap == gap else ""  # NaN where no model is known
        return f"J {returns}  {shown}‖g‖² {norm:.1e}  "

    def _speed(self, iteration: int, now: float) -> str:
        if self._timed is None or now <= self._timed[1]:
            return f"first result after {now - self._began:.1f} s"
        first, since = self._timed
        steps = (iteration - first) * self._run.env_steps_per_iteration / (now - since)
        speed = f"{steps / 1e6:.2f} M steps/s" if steps >= 1e5 else f"{steps:.0f} steps/s"
        if iteration in (first, self._total):
            return speed
        return f"{speed}  {(now - since) * (self._total - iteration) / (iteration - first):.0f} s left"


def labelled_progress(check: Callable[[], None] | None = None) -> Callable[..., TrainingProgress]:
    """Shows each of several runs under its name; `check` as in `TrainingProgress`."""

    def show(task: Any, run: training.Run, iteration: int) -> TrainingProgress:
        say(task.label)
        return TrainingProgress(run, iteration, check)

    return show


@contextmanager
def watched(progress: bool, check: Callable[[], None] | None) -> Generator[tuple[Any, Any]]:
    """What several runs, and the stages after them, are shown to: on stderr, or to `check` alone."""
    if progress:
        with Progress() as display:
            yield labelled_progress(check), display.show
        return
    heed = (lambda *_: None) if check is None else (lambda *_: check())
    yield lambda *_: nullcontext(SimpleNamespace(show=heed)), heed
