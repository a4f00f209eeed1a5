"""`moac train` and `moac resume`."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float
from rich.table import Table

from moac import api, files, momdp, settings, statistics, training
from moac.cli import devices, interrupts, report
from moac.cli.config_options import Stepping
from moac.cli.console import plain
from moac.cli.problems import problem_of, problem_of_run
from moac.cli.progress import Display
from moac.config import Average, Config
from moac.envs.quiet import quiet
from moac.runs import runner, sinks
from moac.runs.directory import RunDirectory, reopen
from moac.training import result
from moac.types import SourceError

_RESTARTED = "its environments could not be brought back: they start new episodes, with seeds of their own.\n"


@final
@dataclass(frozen=True)
class Order:
    """What `moac train` was asked to do."""

    env: str
    config: Config
    trials: int
    seed: int
    out: Path | None
    stepping: Stepping


@final
@dataclass(frozen=True)
class Output:
    """How a run tells of itself.

    Attributes:
        json: the summary as one JSON object on stdout, in place of a table.
        checkpoint_every: seconds between checkpoints.
        sinks: where its numbers go as well, by name.
    """

    json: bool
    checkpoint_every: float
    sinks: tuple[str, ...] = ()


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


def run(order: Order, output: Output) -> int:
    """Train, save, and say how it went."""
    sinks.check(output.sinks)
    with quiet():
        problem = problem_of(order.env, order.stepping)
        if not problem.compiled:
            devices.for_hosted()
        prepared = result.prepare(problem, order.config, order.trials, order.seed)
        directory = RunDirectory.create(_out(order), prepared, order.env)
        if not problem.compiled:
            sys.stderr.write(f"{order.env}: {settings.reasons(problem, order.config)}\n")
        with directory.held():
            return _complete(directory, prepared, None, output)


def resume(path: Path, output: Output, trust: bool = False) -> int:
    """Continue a stopped run; of a finished one, show the summary again. `trust` as in `problem_of_run`."""
    sinks.check(output.sinks)
    with quiet():
        return _resume(path, output, trust)


def _resume(path: Path, output: Output, trust: bool) -> int:
    problem = problem_of_run(path, RunDirectory(path).description["problem"], trust)
    if not problem.compiled:
        devices.for_hosted()
    directory, prepared = reopen(path, problem)
    if directory.finished:
        outcome = directory.outcome(prepared)
        if (path / "figures" / "training.svg").exists() and not (path / "report.html").exists():
            with directory.held():  # it was killed just before
                files.remove_unfinished(path)
                report.write(path)
        sys.stderr.write(f"{path} has finished: nothing to resume.\n")
        _report(directory, outcome, Spent(0.0, 0), output)
        return 0
    with directory.held():
        snapshot = directory.checkpoints().newest(prepared)
        done = 0 if snapshot is None else snapshot.iteration
        sys.stderr.write(f"{path} continues after iteration {done} of {training.total_iterations(prepared)}.\n")
        return _complete(directory, prepared, snapshot, output)


def _out(order: Order) -> Path:
    if order.out is not None:
        return order.out
    name = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', order.env)}-seed{order.seed}"
    taken = (Path("runs") / (name if k == 1 else f"{name}-{k}") for k in range(1, 1_000_000))
    return next(path for path in taken if not path.exists())


def _complete(
    directory: RunDirectory, prepared: training.Run, snapshot: training.Snapshot | None, output: Output
) -> int:
    """Train to the end and report; Ctrl-C, SIGTERM and a full disk leave a run that can be resumed."""
    began, first = time.monotonic(), 0 if snapshot is None else snapshot.iteration
    asked = interrupts.Interrupts()
    try:
        final = _trained(directory, prepared, snapshot, output, asked)
        outcome = result.Result.of(prepared, final)
        directory.finish(outcome, api.training_figures(outcome))
        report.write(directory.path)
    except SourceError as error:
        if asked.asked is None:  # else its worker processes were stopped with us
            raise ValueError(f"{error} What was trained is kept: moac resume {directory.path}") from error
        return _stop(directory, asked.asked)
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise ValueError(f"{said}. What was trained is kept: moac resume {directory.path}") from error
    except KeyboardInterrupt as error:
        return _stop(directory, error)
    _report(directory, outcome, Spent(time.monotonic() - began, outcome.iteration - first), output)
    return 0


def _trained(
    directory: RunDirectory,
    prepared: training.Run,
    snapshot: training.Snapshot | None,
    output: Output,
    asked: interrupts.Interrupts,
) -> training.Snapshot:
    """The last snapshot; a signal is heeded between two of them."""
    with asked, Display(prepared, 0 if snapshot is None else snapshot.iteration) as display:

        def seen(latest: training.Snapshot) -> None:
            if latest.restarted_after is not None:
                sys.stderr.write(_RESTARTED)
            display.show(latest)
            asked.check()

        return runner.train(directory, prepared, snapshot, output.checkpoint_every, seen, output.sinks)


def _stop(directory: RunDirectory, error: KeyboardInterrupt) -> int:
    sys.stderr.write(f"moac: stopped; continue with: moac resume {directory.path}\n")
    return interrupts.code(error)


def _report(directory: RunDirectory, outcome: result.Result, spent: Spent, output: Output) -> None:
    if output.json:
        sys.stdout.write(json.dumps(files.finite(summary(directory, outcome, spent))) + "\n")
        return
    console = plain(100)
    console.print(_table(outcome))
    for line in (*_on_hull(outcome), *_stopped(outcome)):
        console.print(line, highlight=False)
    figure = directory.path / "figures" / "training.png"
    if figure.exists():
        console.print(f"figure: {figure}", highlight=False, soft_wrap=True)
    console.print(f"report: {directory.path / 'report.html'}", highlight=False, soft_wrap=True)


def summary(directory: RunDirectory, outcome: result.Result, spent: Spent) -> dict[str, Any]:
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


def _table(outcome: result.Result) -> Table:
    history, mean, spec = outcome.history, training.mean_over_trials, outcome.run.source.spec
    trials, bounds = outcome.run.num_trials, interval(outcome.returns)
    about = "1 trial" if trials == 1 else f"mean of {trials} trials"
    table = Table(title=f"{spec.name}, {about}, {outcome.iteration} iterations", title_justify="left")
    for name in ("", f"iteration {history.iteration[0]}", f"iteration {history.iteration[-1]}"):
        table.add_column(name, justify="right")
    if bounds is not None:
        table.add_column("95 % interval", justify="right")
    table.add_column("λ", justify="right")
    for i, name in enumerate(spec.objective_names):
        shown = () if bounds is None else (f"[{bounds[i][0]:.4f}, {bounds[i][1]:.4f}]",)
        before, after = mean(history.returns[:, 0, i]), mean(history.returns[:, -1, i])
        table.add_row(name, f"{before:.4f}", f"{after:.4f}", *shown, f"{mean(history.weights[:, -1, i]):.3f}")
    table.add_section()
    for name, values in (("exact gap", history.gap), ("‖g_t‖²", history.gradient_norm_squared)):
        if not np.isfinite(values).any():
            continue
        table.add_row(name, f"{mean(values[:, 0]):.2e}", f"{mean(values[:, -1]):.2e}")
    return table


def _on_hull(outcome: result.Result) -> list[str]:
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


def _stopped(outcome: result.Result) -> list[str]:
    """How many trials stopped early, and when the first of them did."""
    stopped = outcome.stopped[outcome.stopped > 0]
    if not len(stopped):
        return []
    count = f"{len(stopped)} of {len(outcome.stopped)} trials stopped"
    return [f"{count}, the first at iteration {stopped.min()}: an update was not finite. Try smaller step sizes."]
