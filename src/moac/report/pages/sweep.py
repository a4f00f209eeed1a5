"""The report of a sweep: its table, figures of what each setting does, and what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from moac import files
from moac.report import sweeps as drawing
from moac.report.figures import ROUNDING
from moac.report.numbers import number, plus_minus
from moac.report.page import Table
from moac.report.pages import experiment
from moac.report.pages.experiment import Findings, Shown
from moac.search import sweep as results
from moac.search.sweep import End, Row
from moac.search.sweep_spec import METHOD, Sweep, readable
from moac.statistics import Mean

_APART = ("env", "seed")
"""Axes that a figure is not drawn over: environments have their own, seeds are repetitions."""


@final
@dataclass(frozen=True)
class _About:
    """What the page says beside the findings."""

    name: str
    title: str
    seed: int
    summary: str
    why: str
    quick: bool = False


def write(sweep: Sweep, found: list[Row], out: Path) -> None:
    """results.csv, results.json, the figures, and experiment.json, from which the report is made."""
    files.write_bytes(out / "results.csv", results.as_csv(sweep, found))
    files.write_json(out / "results.json", results.as_json(sweep, found))
    failed = sum(row.end is None for row in found)
    environments = list(dict.fromkeys(row.cell.env for row in found))
    facts = {"environment": ", ".join(environments), "tasks": len(found), "finished": len(found) - failed}
    facts |= {"failed": failed, "trials per task": sweep.trials}
    listed = [ends([row for row in found if row.cell.env == env], env, sweep) for env in environments]
    tables = tuple(table for table in (*listed, _failures(found)) if table is not None)
    shown = tuple(
        item for env in environments for item in _figures([r for r in found if r.cell.env == env], env, sweep)
    )
    experiment.write(_about(sweep, found), Findings((), tables, shown), (facts, dict(sweep.common)), None, out)


def _about(sweep: Sweep, found: list[Row]) -> _About:
    varied = []
    for name in sweep.axes:
        values = list(dict.fromkeys(readable(row.cell.values[name]) for row in found))
        varied.append(f"{name} ({', '.join(values) if len(values) <= 6 else f'{len(values)} values'})")
    failed = sum(row.end is None for row in found)
    how = "All finished." if not failed else f"{failed} of {len(found)} failed; the others are not touched by that."
    summary = f"{len(found)} tasks, which differ in {'; '.join(varied)}. {how}"
    why = "As the sweep's file says; what it leaves out was resolved for each environment: tasks/*/config.json has all."
    return _About(sweep.name, f"Sweep: {sweep.name}", sweep.seed, summary, why)


def ends(found: list[Row], env: str, sweep: Sweep, short: bool = False) -> Table | None:
    """Where the tasks of an environment ended; None where none did. A short table has no intervals."""
    done = [(row, row.end) for row in found if row.end is not None]
    if not done:
        return None
    axes = [name for name in sweep.axes if name != "env"] or ["seed"]
    objectives = done[0][1].objectives
    header = (*axes, *objectives, "exact gap", "not dominated")
    lines = [
        (*_named(row, axes), *(_shown(one, short) for one in (*ended.returns, ended.gap)), not row.dominated)
        for row, ended in done
    ]
    caption = (
        f"Means over {sweep.trials} trials after the last iteration; ± is half the width of their 95 % interval. "
        "A task is dominated where another one's means are at least as good in all objectives and better in one. "
        "results.csv has all digits."
    )
    return Table(f"Results, {env}", caption, header, tuple(lines))


def _named(row: Row, axes: Sequence[str]) -> list[str]:
    return [readable(row.cell.values.get(name, getattr(row.cell, name, ""))) for name in axes]


def _shown(one: Mean, short: bool) -> str:
    return number(one.value, 3) if short else plus_minus(one.value, (one.high - one.low) / 2)


def _failures(found: list[Row]) -> Table | None:
    failed = tuple((row.cell.label, row.error) for row in found if row.end is None)
    if not failed:
        return None
    return Table("Failures", "The same command tries them again. errors/ has the traces.", ("task", "error"), failed)


def _figures(found: list[Row], env: str, sweep: Sweep) -> list[Shown]:
    done = [(row, row.end) for row in found if row.end is not None]
    if len(done) < 2:
        return []
    objectives, name = done[0][1].objectives, re.sub(r"[^a-z0-9]+", "-", env.lower()).strip("-")
    axes = [axis for axis in sweep.axes if axis not in _APART and len({_key(row, axis) for row, _ in done}) > 1]
    values = {axis: tuple(row.cell.values[axis] for row, _ in done) for axis in axes}
    shown: list[Shown] = []
    if axes:
        shown.append(_effects(values, [ended for _, ended in done], objectives, (env, name)))
    if len(objectives) > 1:
        shown.append(_places(values, [row for row, _ in done], objectives, (env, name)))
    return shown


def _key(row: Row, axis: str) -> str:
    return readable(row.cell.values[axis])


def _effects(values: dict[str, tuple[Any, ...]], done: list[End], objectives: tuple[str, ...], env: Any) -> Shown:
    """Each setting's effect on each objective, and on the gap where that is known and not 0 but for rounding."""
    columns = {name: np.array([ended.returns[i].value for ended in done]) for i, name in enumerate(objectives)}
    gap = np.array([ended.gap.value for ended in done])
    columns |= {"exact gap": gap} if np.isfinite(gap).all() and gap.max() > ROUNDING else {}
    return Shown(
        f"What each setting does, {env[0]}",
        f"effects-{env[1]}",
        drawing.effects(values, columns),
        "A small dot is a task, its mean over trials; a large one is the mean of all tasks that share the value.",
        f"Panels of {', '.join(columns)} over {', '.join(values)}.",
    )


def _places(values: dict[str, tuple[Any, ...]], rows: list[Row], objectives: tuple[str, ...], env: Any) -> Shown:
    """Where tasks end, coloured by the method or the first axis."""
    axis = METHOD if METHOD in values else next(iter(values), None)
    points = np.stack([row.end.point for row in rows if row.end is not None])
    best = np.array([not row.dominated for row in rows])
    return Shown(
        f"Where the tasks end, {env[0]}",
        f"ends-{env[1]}",
        drawing.ends(points, best, objectives, None if axis is None else (axis, values[axis])),
        "Mean returns of every task; those that no other task dominates have a ring.",
        f"Scatter plots of mean returns for each pair of {', '.join(objectives)}.",
    )
