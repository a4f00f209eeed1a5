"""`moac train` and `moac resume`."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from moac.commands import devices
from moac.config import Average, Config

devices.set_up()

from moac import momdp, result, training  # noqa: E402 - the devices are counted before JAX starts
from moac.commands.problems import model_of  # noqa: E402
from moac.commands.progress import Display  # noqa: E402
from moac.experiments import files, run_directory  # noqa: E402

_CHECKPOINT_EVERY = 2.0
_INTERRUPTED = 130


@final
@dataclass(frozen=True)
class Order:
    """What `moac train` was asked to do."""

    env: str
    config: Config
    trials: int
    seed: int
    out: Path | None
    json: bool


def run(order: Order) -> int:
    """Train, save, and say how it went."""
    model = model_of(order.env)
    prepared = result.prepare(model, order.config, order.trials, order.seed)
    directory = run_directory.RunDirectory.create(_out(order), prepared, order.env)
    return _drive(directory, prepared, None, order.env, order.json)


def resume(path: Path, as_json: bool) -> int:
    """Continue a stopped run."""
    env = run_directory.RunDirectory(path).description()["problem"]["env"]
    if env is None:
        raise ValueError(f"{path} was saved from Python: resume it with moac.resume(path, problem).")
    directory, prepared = run_directory.reopen(path, model_of(env))
    return _drive(directory, prepared, directory.latest(prepared), env, as_json)


def _out(order: Order) -> Path:
    if order.out is not None:
        return order.out
    name = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', order.env)}-seed{order.seed}"
    taken = (Path("runs") / (name if k == 1 else f"{name}-{k}") for k in range(1, 1_000_000))
    return next(path for path in taken if not path.exists())


def _drive(
    directory: run_directory.RunDirectory,
    prepared: training.Run,
    snapshot: training.Snapshot | None,
    env: str,
    as_json: bool,
) -> int:
    """Iterate to the end, with a checkpoint every few seconds and one on Ctrl-C."""
    began, saved = time.monotonic(), time.monotonic()
    first = 0 if snapshot is None else snapshot.iteration
    try:
        with Display(prepared, first) as display:
            for latest in training.iterate(prepared, snapshot):
                snapshot = latest
                display.show(snapshot)
                if time.monotonic() - saved >= _CHECKPOINT_EVERY:
                    directory.checkpoint(snapshot)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        if snapshot is not None:
            directory.checkpoint(snapshot)
        sys.stderr.write(f"stopped; continue with: moac resume {directory.path}\n")
        return _INTERRUPTED
    if snapshot is None:
        raise ValueError(f"{directory.path} has nothing to train.")
    directory.checkpoint(snapshot)
    outcome = result.Result.of(prepared, snapshot)
    directory.finish(outcome)
    _report(directory, outcome, env, (time.monotonic() - began, first), as_json)
    return 0


def _report(
    directory: run_directory.RunDirectory, outcome: result.Result, env: str, spent: tuple[float, int], as_json: bool
) -> None:
    if as_json:
        sys.stdout.write(json.dumps(files.finite(summary(directory, outcome, env, spent))) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(_table(outcome))
    on_hull = _trials_on_hull(outcome)
    if on_hull is not None:
        console.print(on_hull, highlight=False)
    stopped = int((outcome.stopped > 0).sum())
    if stopped:
        console.print(f"{stopped} of {len(outcome.stopped)} trials stopped: an update was not finite.", highlight=False)
    console.print(f"figure: {directory.path / 'figures' / 'training.png'}", highlight=False, soft_wrap=True)
    console.print(f"run: {directory.path}", highlight=False, soft_wrap=True)


def summary(
    directory: run_directory.RunDirectory, outcome: result.Result, env: str, spent: tuple[float, int]
) -> dict[str, Any]:
    """The JSON object of `train` and `resume`."""
    seconds, first = spent
    steps = (outcome.iteration - first) * outcome.run.env_steps_per_iteration
    history, mean = outcome.history, training.mean_over_trials
    return {
        "env": env,
        "setting": "average" if isinstance(outcome.config.setting, Average) else "discounted",
        "objectives": list(outcome.run.source.spec.objective_names),
        "trials": outcome.run.num_trials,
        "iterations": outcome.iteration,
        "env_steps": outcome.env_steps,
        "seconds": seconds,
        "env_steps_per_second": steps / seconds,
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
    from scipy.stats import t as student

    known = values[np.isfinite(values).all(axis=1)]
    if len(known) < 2:
        return None
    half = student.ppf(0.975, len(known) - 1) * known.std(axis=0, ddof=1) / np.sqrt(len(known))
    mean = known.mean(axis=0)
    return [[float(low), float(high)] for low, high in zip(mean - half, mean + half, strict=True)]


def _table(outcome: result.Result) -> Table:
    history, mean, spec = outcome.history, training.mean_over_trials, outcome.run.source.spec
    table = Table(title=f"{spec.name}: mean of {outcome.run.num_trials} trials, 95 % interval", title_justify="left")
    for name in ("", "first evaluation", "after training", "95 % interval", "λ_T"):
        table.add_column(name, justify="right")
    bounds = interval(outcome.returns)
    for i, name in enumerate(spec.objective_names):
        shown = "" if bounds is None else f"[{bounds[i][0]:.4f}, {bounds[i][1]:.4f}]"
        before, after = mean(history.returns[:, 0, i]), mean(history.returns[:, -1, i])
        table.add_row(name, f"{before:.4f}", f"{after:.4f}", shown, f"{mean(history.weights[:, -1, i]):.3f}")
    table.add_section()
    for name, values in (("exact gap", history.gap), ("‖g_t‖²", history.gradient_norm_squared)):
        table.add_row(name, f"{mean(values[:, 0]):.2e}", f"{mean(values[:, -1]):.2e}", "", "")
    return table


def _trials_on_hull(outcome: result.Result) -> str | None:
    """How many trials end within 1 % of a point of the exact hull."""
    model, setting = outcome.run.source, outcome.config.setting
    if not isinstance(model, momdp.FiniteMOMDP) or model.num_objectives > 6 or setting is None:
        return None
    points = momdp.support_of(model, setting).points
    reach = 0.01 * np.ptp(points, axis=0).max()
    distance = np.linalg.norm(outcome.returns[:, None] - points, axis=2)
    near = distance.min(axis=1) <= reach
    nearest = points[distance.argmin(axis=1)]
    lines = [f"{int(near.sum())} of {len(near)} trials ended on a corner of the exact hull (within {reach:.2g}):"]
    for point in np.unique(nearest[near], axis=0):
        count = int((near & (nearest == point).all(axis=1)).sum())
        lines.append(f"  {count:4d} at ({', '.join(f'{value + 0.0:.4f}' for value in point)})")
    return os.linesep.join(lines)
