"""A run trained to its end in its directory, and what `moac train` and `moac resume` say of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float

from moac import api, momdp, statistics, training
from moac.cli import process
from moac.cli.console import TrainingProgress, print_json, print_lines, print_paths, print_table
from moac.config import Average
from moac.report import pages
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.training.result import Result
from moac.types import SourceError

if TYPE_CHECKING:
    from moac.cli.train import Training


@final
@dataclass(frozen=True)
class Spent:
    """What this command, as opposed to those before it, has done.

    Attributes:
        seconds: it took.
        iterations: it trained.
    """

    seconds: float
    iterations: int


def complete(
    directory: RunDirectory, prepared: training.Run, snapshot: training.Snapshot | None, command: Training
) -> int:
    """Train to the end and report; Ctrl-C, SIGTERM and a full disk leave a run that can be resumed."""
    began, first = time.monotonic(), 0 if snapshot is None else snapshot.iteration
    interrupts, resume = process.Interrupts(), f"moac resume {directory.path}"
    with process.continued(f"continue with: {resume}"):
        try:
            outcome = Result.of(prepared, _trained(directory, prepared, snapshot, command, interrupts))
            directory.finish(outcome, api.training_figures(outcome))
            pages.write(directory.path)
        except SourceError as error:
            interrupts.check()  # its worker processes were stopped with us
            raise ValueError(f"{error} What was trained is kept: {resume}") from error
        except OSError as error:
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise ValueError(f"{said}. What was trained is kept: {resume}") from error
    tell(directory, outcome, Spent(time.monotonic() - began, outcome.iteration - first), command.json)
    return 0


def _trained(
    directory: RunDirectory,
    prepared: training.Run,
    snapshot: training.Snapshot | None,
    command: Training,
    interrupts: process.Interrupts,
) -> training.Snapshot:
    """The last snapshot; a signal is heeded between two of them."""
    iteration = 0 if snapshot is None else snapshot.iteration
    with interrupts, TrainingProgress(prepared, iteration, interrupts.check) as progress:

        def show(latest: training.Snapshot) -> None:
            progress.show(latest)

        return runner.train(directory, prepared, snapshot, command.checkpoint_every, show, command.sink)


def tell(directory: RunDirectory, outcome: Result, spent: Spent, as_json: bool) -> None:
    """Print the summary of a run, and where its figure and report are."""
    if as_json:
        print_json(summary(directory, outcome, spent))
        return
    print_table(*_table(outcome))
    print_lines((*_on_hull(outcome), *_stopped(outcome)))
    figure = directory.path / "figures" / "training.png"
    print_paths(**({"figure": figure} if figure.exists() else {}), report=directory.path / "report.html")


def summary(directory: RunDirectory, outcome: Result, spent: Spent) -> dict[str, Any]:
    """The JSON object of `train` and `resume`; seconds and speed are this command's alone."""
    steps = spent.iterations * outcome.run.env_steps_per_iteration
    history, mean = outcome.history, training.mean_over_trials
    return {
        "env": directory.description["problem"]["env"],
        "setting": "average" if isinstance(outcome.config.setting, Average) else "discounted",
        "objectives": list(outcome.run.source.spec.objective_names),
        "trials": outcome.run.num_trials,
        "iterations": outcome.iteration,
        "env_steps": outcome.env_steps,
        "seconds": spent.seconds,
        "env_steps_per_second": steps / max(spent.seconds, 1e-9),
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


def _table(outcome: Result) -> tuple[str, list[str], list[list[str] | None]]:
    """Title, header and rows: first and last returns, intervals and weights; then gap and norm where they are known."""
    history, mean, spec = outcome.history, training.mean_over_trials, outcome.run.source.spec
    trials, bounds = outcome.run.num_trials, interval(outcome.returns)
    about = "1 trial" if trials == 1 else f"mean of {trials} trials"
    first, last = (f"iteration {history.iteration[k]}" for k in (0, -1))
    header = ["", first, last, *(() if bounds is None else ("95 % interval",)), "λ"]
    rows: list[list[str] | None] = []
    for i, name in enumerate(spec.objective_names):
        shown = () if bounds is None else (f"[{bounds[i][0]:.4f}, {bounds[i][1]:.4f}]",)
        before, after = mean(history.returns[:, 0, i]), mean(history.returns[:, -1, i])
        rows.append([name, f"{before:.4f}", f"{after:.4f}", *shown, f"{mean(history.weights[:, -1, i]):.3f}"])
    rows.append(None)
    for name, values in (("exact gap", history.gap), ("‖g_t‖²", history.gradient_norm_squared)):
        if np.isfinite(values).any():
            blank = [""] * (len(header) - 3)
            rows.append([name, f"{mean(values[:, 0]):.2e}", f"{mean(values[:, -1]):.2e}", *blank])
    return f"{spec.name}, {about}, {outcome.iteration} iterations", header, rows


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


def _stopped(outcome: Result) -> list[str]:
    """How many trials stopped early, and when the first of them did."""
    stopped = outcome.stopped[outcome.stopped > 0]
    if not len(stopped):
        return []
    count = f"{len(stopped)} of {len(outcome.stopped)} trials stopped"
    return [f"{count}, the first at iteration {stopped.min()}: an update was not finite. Try smaller step sizes."]
