"""What a person sees while a run goes on: a bar in a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from moac import training

_PLAIN_EVERY = 5.0


@final
class Display:
    """Shows snapshots of a run as they come."""

    def __init__(self, run: training.Run, iteration: int) -> None:
        self._run, self._began, self._last = run, time.monotonic(), -_PLAIN_EVERY
        self._timed: tuple[int, float] | None = None
        self._total = training.total_iterations(run)
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"), TimeRemainingColumn(),
            console=console, transient=False, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task = self._bar.add_task("training", total=self._total, completed=iteration, numbers="compiling …")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, snapshot: training.Snapshot) -> None:
        """One more snapshot."""
        now = time.monotonic()
        numbers = f"{self._numbers(snapshot)}{self._speed(snapshot.iteration, now)}"
        self._bar.update(self._task, completed=snapshot.iteration, numbers=numbers)
        ended = snapshot.iteration == self._total
        if self._bar.disable and (now - self._last >= _PLAIN_EVERY or ended):
            self._last = now
            left = self._left(snapshot.iteration, now)
            sys.stderr.write(f"iteration {snapshot.iteration}/{self._total}  {numbers}{left}\n")
        if self._timed is None:  # what came before was mostly compilation
            self._timed = snapshot.iteration, now

    def _numbers(self, snapshot: training.Snapshot) -> str:
        history, mean = snapshot.history, training.mean_over_trials
        if not len(history.iteration):
            return ""
        returns = " ".join(f"{value:.4f}" for value in mean(history.returns[:, -1]))
        gap, norm = float(mean(history.gap[:, -1])), float(mean(history.gradient_norm_squared[:, -1]))
        shown = f"gap {gap:.1e}  " if gap == gap else ""  # NaN where no model is known
        return f"J {returns}  {shown}‖g‖² {norm:.1e}  "

    def _speed(self, iteration: int, now: float) -> str:
        if self._timed is None or now <= self._timed[1]:
            return f"first result after {now - self._began:.1f} s"
        steps = (iteration - self._timed[0]) * self._run.env_steps_per_iteration / (now - self._timed[1])
        return f"{steps / 1e6:.2f} M steps/s" if steps >= 1e5 else f"{steps:.0f} steps/s"

    def _left(self, iteration: int, now: float) -> str:
        if self._timed is None or iteration in (self._timed[0], self._total):
            return ""
        done, since = self._timed
        return f"  {(now - since) * (self._total - iteration) / (iteration - done):.0f} s left"
