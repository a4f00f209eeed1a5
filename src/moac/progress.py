"""How far work has come, on stderr: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moac import training

_PLAIN_EVERY = 5.0  # seconds between two lines of progress, where stderr is no terminal
_BESIDE = 15  # characters that per cent, time left and the spaces between the columns of a bar take


def say(line: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"{line}\n")


class Progress:
    """How far work has come, stage by stage: a bar in a terminal, a line every few seconds elsewhere."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console
        from rich.table import Column

        columns = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn())
        numbers = progress.TextColumn("{task.fields[numbers]}", markup=False)
        left = progress.TimeRemainingColumn(table_column=Column(no_wrap=True))  # in a narrow terminal the bar gives way
        self._bar = progress.Progress(
            *columns, progress.TaskProgressColumn(), numbers, left,
            console=Console(stderr=True), disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._stage, self._task, self._last = "", None, 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._bar.stop()

    def show(self, stage: str, done: int, total: int, numbers: str = "") -> None:
        """How far a stage has come."""
        begins, self._stage = stage != self._stage, stage
        if self._bar.disable:
            self._line(begins, done, total, numbers)
            return
        numbers = _fitted(numbers, self._bar.console.width - len(stage) - _BESIDE)
        if begins or self._task is None:
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


@contextmanager
def of_run(run: training.Run, iteration: int) -> Generator[Callable[[training.Snapshot], None]]:
    """Gives what shows the snapshots of a run, which starts at that iteration, as they come."""
    began, total, timed = time.monotonic(), run.settings.num_iterations, list[tuple[int, float]]()

    def speed(done: int, now: float) -> str:
        if not timed or now <= timed[0][1]:
            return f"first result after {now - began:.1f} s"
        first, since = timed[0]
        steps = (done - first) * run.env_steps_per_iteration / (now - since)
        told = f"{steps / 1e6:.2f} M steps/s" if steps >= 1e5 else f"{steps:.0f} steps/s"
        shown = done in (first, total) or sys.stderr.isatty()  # a bar has a column for it
        left = "" if shown else f"  {(now - since) * (total - done) / (done - first):.0f} s left"
        return told + left

    def show(snapshot: training.Snapshot) -> None:
        done, now = snapshot.iteration, time.monotonic()
        display.show("iteration", done, total, f"{_numbers(snapshot)}{speed(done, now)}")
        if not timed:  # what came before was mostly compilation
            timed.append((done, now))

    with Progress() as display:
        if sys.stderr.isatty():
            display.show("iteration", iteration, total, "compiling …")
        yield show


def _numbers(snapshot: training.Snapshot) -> str:
    history = snapshot.history
    if not len(history.iteration):
        return ""
    from moac.statistics import without_rounding
    from moac.training import mean_over_trials as mean  # which needs JAX

    returns = " ".join(f"{value:z.4f}" for value in mean(history.returns[:, -1]))
    gap, norm = (float(without_rounding(mean(x[:, -1]))) for x in (history.gap, history.gradient_norm_squared))
    shown = f"gap {gap:.2g}  " if gap == gap else ""  # NaN where no model is known
    last = int(history.iteration[-1])
    logged = "" if last == snapshot.iteration else f"logged at {last}: "
    return f"{logged}J {returns}  {shown}‖g‖² {norm:.2g}  "


def _fitted(numbers: str, room: int) -> str:
    """The numbers beside a bar in a terminal; where they are too many, those in the middle are left out."""
    parts = numbers.split("  ")
    while len("  ".join(parts)) > room and len(parts) > 1:
        parts.pop(len(parts) // 2)
    return "  ".join(parts)


def labelled_progress(check: Callable[[], Any] = lambda: None) -> Callable[..., Any]:
    """Shows each of several runs under its name; `check` raises where the user has asked to stop."""

    @contextmanager
    def shown(task: Any, run: training.Run, iteration: int) -> Generator[Callable[[training.Snapshot], Any]]:
        say(task.label)
        with of_run(run, iteration) as show:
            yield lambda snapshot: (show(snapshot), check())

    return shown


@contextmanager
def watched(progress: bool, check: Callable[[], Any] | None) -> Generator[tuple[Any, Any]]:
    """What several runs, and the stages after them, are shown to: on stderr, or to `check` alone."""
    heed = check or (lambda: None)
    if progress:
        with Progress() as display:
            yield labelled_progress(heed), lambda *told: (display.show(*told), heed())
    else:
        yield lambda *_: nullcontext(lambda snapshot: heed()), lambda *_: heed()
