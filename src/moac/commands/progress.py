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
        self._run, self._first, self._began, self._last = run, iteration, time.monotonic(), 0.0
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
        numbers = self._numbers(snapshot, now - self._began)
        self._bar.update(self._task, completed=snapshot.iteration, numbers=numbers)
        ended = snapshot.iteration == self._total
        if self._bar.disable and (now - self._last >= _PLAIN_EVERY or ended):
            self._last = now
            left = (now - self._began) * (self._total - snapshot.iteration) / max(snapshot.iteration - self._first, 1)
            sys.stderr.write(f"iteration {snapshot.iteration}/{self._total}  {numbers}  {left:.0f} s left\n")

    def _numbers(self, snapshot: training.Snapshot, seconds: float) -> str:
        steps = (snapshot.iteration - self._first) * self._run.env_steps_per_iteration
        speed = f"{steps / max(seconds, 1e-9) / 1e6:.2f} M steps/s"
        history = snapshot.history
        if not len(history.iteration):
            return speed
        mean = training.mean_over_trials
        returns = " ".join(f"{value:.4f}" for value in mean(history.returns[:, -1]))
        gap, norm = float(mean(history.gap[:, -1])), float(mean(history.gradient_norm_squared[:, -1]))
        return f"J {returns}  gap {gap:.1e}  |g|² {norm:.1e}  {speed}"
