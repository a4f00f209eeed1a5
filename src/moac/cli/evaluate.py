"""`moac evaluate`: what trained policies earn in the real environment, and which of several runs are worth keeping.

Runs on logs are judged by `moac.cli.evaluate_log`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.table import Table

from moac import files, momdp
from moac.cli.console import plain
from moac.cli.options import Evaluate
from moac.cli.problems import environment_of_run
from moac.config import Average, Config
from moac.envs.quiet import quiet
from moac.momdp import indicators, library
from moac.runs.directory import RunDirectory, load
from moac.statistics import Mean

_MOST_TRIALS = 16
"""Trials of a run that are evaluated unless one is picked."""


@final
@dataclass(frozen=True)
class Order:
    """What `moac evaluate` was asked to do."""

    runs: tuple[Path, ...]
    episodes: int
    trial: int | None
    reference: tuple[float, ...] | None
    data: Path | None
    split: str
    cap: float
    trust: bool
    json: bool


def run(order: Order) -> int:
    """Evaluate every run, compare them, and say what was found."""
    logged = ["log" in RunDirectory(path).description["problem"] for path in order.runs]
    if any(logged):
        from moac.cli import evaluate_log

        return evaluate_log.run(order)
    if (order.data, order.split, order.cap) != (None, Evaluate.split, Evaluate.cap):
        raise ValueError(f"`--data`, `--split` and `--cap` are for runs on logs; {order.runs[0]} is on an environment.")
    with quiet():
        judged = [_one(path, order) for path in order.runs]
    for kind in ("env", "setting", "objectives"):
        if any(one[kind] != judged[0][kind] for one in judged):
            raise ValueError(f"`RUN` must be runs of one problem, got several with different {kind}.")
    archive = _archive(judged, order)
    if order.json:
        found = judged[0] if len(judged) == 1 else {"runs": judged}
        sys.stdout.write(json.dumps(files.finite(found | {"archive": archive})) + "\n")
        return 0
    console = plain(100)
    for one in judged:
        console.print(_table(one))
    console.print(_compared(archive, sum(len(one["points"]) for one in judged)), highlight=False)
    return 0


def _compared(archive: dict[str, Any], count: int) -> str:
    parts = [f"archive: {len(archive['points'])} of {count} policies are not dominated"]
    if archive["hypervolume"] is not None:
        parts.append(f"hypervolume {archive['hypervolume']:.4g} above {archive['reference']}")
    if archive["igd_plus"] is not None:
        parts.append(f"IGD+ {archive['igd_plus']:.4g} to the exact front")
    return "; ".join(parts)


def _one(path: Path, order: Order) -> dict[str, Any]:
    from moac.search import values

    description = RunDirectory(path).description
    problem, setting = description["problem"], RunDirectory(path).config.setting
    environment: Any = environment_of_run(path, problem, order.trust)
    trained = load(path, order.trial or 0)
    trials = (order.trial,) if order.trial is not None else tuple(range(min(trained.num_trials, _MOST_TRIALS)))
    if len(trials) < trained.num_trials and order.trial is None:
        sys.stderr.write(f"{path}: the first {len(trials)} of {trained.num_trials} trials; --trial picks another.\n")
    found = values.by_episodes(environment, trained, trials, order.episodes, library.for_environment(problem["env"]))
    return {
        "run": str(path),
        "env": problem["env"],
        "setting": description["config"]["setting"],
        "objectives": problem["objectives"],
        "trials": list(trials),
        "episodes": order.episodes,
        "returns": _listed(found.returns),
        "returns_interval": _intervals(found.returns),
        "discounted_returns": _listed(found.discounted),
        "discounted_returns_interval": _intervals(found.discounted),
        "reward_per_step": _listed(found.per_step),
        "reward_per_step_interval": _intervals(found.per_step),
        "points": found.points,
        "exact": found.exact,
        "length": found.length,
        "truncated": found.truncated,
        "average": isinstance(setting, Average),
    }


def _archive(judged: list[dict[str, Any]], order: Order) -> dict[str, Any]:
    """The policies that no other dominates, their hypervolume, and their distance to the exact front if it is known."""
    points = np.concatenate([one["points"] for one in judged])
    kept = indicators.non_dominated(points)
    reference = points.min(axis=0) - 0.1 * np.ptp(points, axis=0) - 1e-9
    if order.reference is not None:
        reference = np.array(order.reference)
        if reference.shape != points.shape[1:]:
            raise ValueError(f"`reference` must be one number per objective ({points.shape[1]}), got {len(reference)}.")
    front, several = _exact_front(judged[0]), len(points) > 1 or order.reference is not None
    return {
        "points": points[kept],
        "hypervolume": indicators.hypervolume(points[kept], reference) if several else None,
        "reference": [round(float(value), 6) for value in reference],
        "igd_plus": None if front is None else indicators.igd_plus(points[kept], front),
    }


def _exact_front(one: dict[str, Any]) -> Any:
    model = library.for_environment(one["env"])
    if model is None or one["average"]:
        return None
    setting: Any = Config.from_json({"setting": one["setting"]}).setting
    try:
        return momdp.pareto_front(model, setting).points
    except ValueError:  # beyond the exact answer's size
        return None


def _table(one: dict[str, Any]) -> Table:
    many = len(one["trials"]) > 1
    over = f"{len(one['trials'])} trials × {one['episodes']} episodes" if many else f"{one['episodes']} episodes"
    title = f"{one['run']}: {one['env']}, {over}, {one['length']:.1f} steps, {100 * one['truncated']:.1f} % cut short"
    table = Table(title=title, title_justify="left")
    names = {"return": "returns", "discounted": "discounted_returns", "per step": "reward_per_step"}
    shown = {head: name for head, name in names.items() if one[name] is not None}
    for head in ("", *shown, *(("exact",) if one["exact"] is not None else ())):
        table.add_column(head, justify="right")
    for i, objective in enumerate(one["objectives"]):
        table.add_row(objective, *(_with_interval(one, name, i) for name in shown.values()), *_exact_cell(one, i))
    return table


def _with_interval(one: dict[str, Any], name: str, i: int) -> str:
    low, high = one[f"{name}_interval"][i]
    return f"{one[name][i]:.4f} [{low:.4f}, {high:.4f}]"


def _exact_cell(one: dict[str, Any], i: int) -> tuple[str, ...]:
    return () if one["exact"] is None else (f"{one['exact'][:, i].mean():.4f}",)


def _listed(means: tuple[Mean, ...] | None) -> list[float] | None:
    return None if means is None else [mean.value for mean in means]


def _intervals(means: tuple[Mean, ...] | None) -> list[list[float]] | None:
    return None if means is None else [[mean.low, mean.high] for mean in means]
