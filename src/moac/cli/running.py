"""A run trained to its end in its directory, and what `moac train` and `moac resume` say of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from moac import api, momdp, statistics, training
from moac.cli import process
from moac.cli.console import TrainingProgress, print_json, print_lines, print_paths, print_tables
from moac.config import Average
from moac.report import pages
from moac.report.pages import run as run_page
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.training.result import Result
from moac.types import SourceError

if TYPE_CHECKING:
    from moac.cli.train import Training


def complete(
    directory: RunDirectory, prepared: training.Run, snapshot: training.Snapshot | None, command: Training
) -> int:
    """Train to the end and report; Ctrl-C, SIGTERM and a full disk leave a run that can be resumed."""
    began, first = time.monotonic(), 0 if snapshot is None else snapshot.iteration
    interrupts, resume = process.Interrupts(), f"moac resume {directory.path}"
    with process.continued(f"continue with: {resume}"):
        try:
            with interrupts, TrainingProgress(prepared, first, interrupts.check) as progress:
                every, show = command.checkpoint_every, progress.show
                last = runner.train(directory, prepared, snapshot, every, show, command.sink)
            outcome = Result.of(prepared, last)
            directory.finish(outcome, api.training_figures(outcome))
            pages.write(directory.path)
        except SourceError as error:
            interrupts.check()  # its worker processes were stopped with us
            raise ValueError(f"{error} What was trained is kept: {resume}") from error
        except OSError as error:
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise ValueError(f"{said}. What was trained is kept: {resume}") from error
    tell(directory, outcome, command.json, time.monotonic() - began, outcome.iteration - first)
    return 0


def tell(directory: RunDirectory, outcome: Result, as_json: bool, seconds: float = 0.0, iterations: int = 0) -> None:
    """Print the summary of a run, and where its figure and report are.

    Args:
        directory: of the run.
        outcome: its result.
        as_json: print one JSON object.
        seconds: that this command, as opposed to those before it, has trained.
        iterations: likewise.
    """
    if as_json:
        print_json(summary(directory, outcome, seconds, iterations))
        return
    page = run_page.of_run(directory.path)
    print_lines([page.title, page.summary])
    print_tables(page.tables)
    print_lines(_on_hull(outcome) if page.notice is None else [*_on_hull(outcome), page.notice])
    figure = directory.path / "figures" / "training.png"
    print_paths(**({"figure": figure} if figure.exists() else {}), report=directory.path / "report.html")


def summary(directory: RunDirectory, outcome: Result, seconds: float, iterations: int) -> dict[str, Any]:
    """The JSON object of `train` and `resume`; seconds and speed are this command's alone."""
    steps = iterations * outcome.run.env_steps_per_iteration
    history, mean = outcome.history, training.mean_over_trials
    return {
        "env": directory.description["problem"]["env"],
        "setting": "average" if isinstance(outcome.config.setting, Average) else "discounted",
        "objectives": list(outcome.run.source.spec.objective_names),
        "trials": outcome.run.num_trials,
        "iterations": outcome.iteration,
        "env_steps": outcome.env_steps,
        "seconds": seconds,
        "env_steps_per_second": steps / max(seconds, 1e-9),
        "returns": mean(outcome.returns),
        "returns_kind": history.kind,
        "returns_interval": interval(outcome.returns),
        "stationarity_gap": mean(history.gap[:, -1]),
        "regret": mean(history.regret[:, -1]),
        "weights": mean(history.weights[:, -1]),
        "stopped_trials": int((outcome.stopped > 0).sum()),
        "run_dir": str(directory.path),
    }


def interval(values: Float[np.ndarray, "K M"]) -> list[list[float]] | None:
    """The 95 % interval of the mean over trials, one pair per objective; None for a single trial."""
    known = values[np.isfinite(values).all(axis=1)]
    if len(known) < 2:
        return None
    return [[mean.low, mean.high] for mean in map(statistics.mean, np.ascontiguousarray(known.T))]


def _on_hull(outcome: Result) -> list[str]:
    """How many trials end within 1 % of a corner of the exact hull."""
    model, setting = outcome.run.source, outcome.config.setting
    if not isinstance(model, momdp.FiniteMOMDP) or setting is None or not np.isfinite(outcome.returns).any():
        return []
    try:
        points = momdp.support_of(model, setting).points
    except ValueError:  # too many objectives or states for the exact answer
        return []
    reach = 0.01 * np.ptp(points, axis=0).max()
    distance = np.linalg.norm(outcome.returns[:, None] - points, axis=2)
    near = distance.min(axis=1) <= reach
    nearest = points[distance.argmin(axis=1)]
    lines = [f"{int(near.sum())} of {len(near)} trials ended on a corner of the exact hull (within {reach:.2g})"]
    for point in np.unique(nearest[near], axis=0):
        count = int((near & (nearest == point).all(axis=1)).sum())
        lines.append(f"  {count:4d} at ({', '.join(f'{value + 0.0:.4f}' for value in point)})")
    return lines
