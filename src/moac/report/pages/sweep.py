"""The report of a sweep: its table, figures of what each setting does, and what failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac import files
from moac.choices import counted
from moac.report import figures, pages
from moac.report.numbers import number, plus_minus
from moac.report.page import Table
from moac.report.pages import experiment
from moac.report.pages.experiment import About, Findings, Shown
from moac.search import sweep as results
from moac.search.sweep import Row, Swept
from moac.search.sweep_spec import Sweep, is_number, readable
from moac.statistics import ROUNDING, without_rounding

_NAMED = 8  # up to so many values of a setting are named one by one; more are drawn along an axis of numbers
_WIDE = 30.0  # a range whose ends differ by more than this factor is drawn by its logarithm
_APART = ("env", "seed")  # axes that a figure is not drawn over: environments have their own, seeds are repetitions


def save(swept: Swept, out: Path) -> Path:
    """Write results.csv, results.json, the figures, experiment.json and, from that, report.html."""
    sweep, by_env = swept.spec, dict[str, list[Row]]()
    files.subfolder(out)
    files.write_bytes(out / "results.csv", results.as_csv(swept))
    about = {"format": results.FORMAT, "sweep": sweep.name, "trials": sweep.trials, "axes": list(sweep.axes)}
    files.write_json(out / "results.json", about | {"tasks": swept.table})
    for row in swept.rows:
        by_env.setdefault(row.cell.env, []).append(row)
    listed = [ends(rows, env, sweep) for env, rows in by_env.items()]
    tables = tuple(table for table in (*listed, _failures(swept.failed)) if table is not None)
    shown = tuple(item for env, rows in by_env.items() for item in _figures(rows, env, sweep))
    experiment.write(_about(swept, list(by_env)), Findings((), tables, shown), out)
    pages.write(out)
    return out


def _about(swept: Swept, environments: list[str]) -> About:
    sweep, rows, failed, varied = swept.spec, swept.rows, len(swept.failed), list[str]()
    for name in sweep.axes:
        values = list(dict.fromkeys(readable(row.cell.values[name]) for row in rows))
        varied.append(f"{name} ({', '.join(values) if len(values) <= 6 else f'{len(values)} values'})")
    how = "All finished." if not failed else f"{failed} of {len(rows)} failed; the others are not touched by that."
    facts = {"environment": ", ".join(environments), "tasks": len(rows), "finished": len(rows) - failed}
    return About(
        sweep.name,
        f"Sweep: {sweep.name}",
        sweep.seed,
        f"{counted(len(rows), 'task')}; varied: {'; '.join(varied)}. {how}",
        "As the sweep's file says; what it leaves out was resolved for each environment: tasks/*/config.json has all.",
        facts | {"failed": failed, "trials per task": sweep.trials},
        dict(sweep.common),
    )


def ends(rows: list[Row], env: str, sweep: Sweep, short: bool = False) -> Table | None:
    """Where the tasks of an environment ended; None where none did. A short table has no intervals."""
    done = [(row, row.end) for row in rows if row.end is not None]
    if not done:
        return None
    axes = [name for name in sweep.axes if name != "env"] or ["seed"]
    objectives, lines = done[0][1].objectives, list[tuple[Any, ...]]()
    header = (*axes, *objectives, "exact gap", "not dominated")
    for row, ended in done:
        named = [readable(row.cell.values.get(name, getattr(row.cell, name, ""))) for name in axes]
        means = (*ended.returns, ended.gap.mapped(without_rounding))
        half = [0 if short or m.value == 0 else (m.high - m.low) / 2 for m in means]
        shown = [plus_minus(m.value, h) if h else number(m.value, 3) for m, h in zip(means, half, strict=True)]
        lines.append((*named, *shown, not row.dominated))
    caption = (
        f"Means over {counted(sweep.trials, 'trial')} at the end; ± is half the width of their 95 % interval. "
        "A task is dominated where another one's means are at least as good in all objectives and better in one. "
        "results.csv has all digits."
    )
    return Table(f"Results, {env}", caption, header, tuple(lines))


def _failures(failed: Sequence[Row]) -> Table | None:
    if not failed:
        return None
    rows = tuple((row.cell.label, row.error) for row in failed)
    return Table("Failures", "The same command tries them again. errors/ has the traces.", ("task", "error"), rows)


def _figures(rows: list[Row], env: str, sweep: Sweep) -> list[Shown]:
    """Each setting's effect on each objective, and on the gap where that is known and not 0 but for rounding."""
    done, ended = [row for row in rows if row.end], [row.end for row in rows if row.end]
    values = {axis: tuple(row.cell.values[axis] for row in done) for axis in sweep.axes if axis not in _APART}
    values = {axis: given for axis, given in values.items() if len(set(map(readable, given))) > 1}
    if not values:
        return []
    columns = {name: np.array([e.returns[i].value for e in ended]) for i, name in enumerate(ended[0].objectives)}
    gap = np.array([e.gap.value for e in ended])
    columns |= {"exact gap": gap} if np.isfinite(gap).all() and gap.max() > ROUNDING else {}
    shown = Shown(
        f"What each setting does, {env}",
        f"effects-{re.sub(r'[^a-z0-9]+', '-', env.lower()).strip('-')}",
        _effects_figure(values, columns),
        "A small dot is a task, its mean over trials; a large one is the mean of all tasks that share the value.",
        f"Panels of {', '.join(columns)} over {', '.join(values)}.",
    )
    return [shown]


@figures.styled
def _effects_figure(values: Mapping[str, Sequence[Any]], columns: Mapping[str, Float[np.ndarray, " E"]]) -> Figure:
    """One row for each setting, one panel for each quantity of the E tasks."""
    figure, axes = figures.grid(len(values), len(columns), (2.8 * len(columns), 2.5 * len(values)))
    for k, ax in enumerate(axes):
        (setting, given), (name, y) = list(values.items())[k // len(columns)], list(columns.items())[k % len(columns)]
        _effect(ax, given, y, figures.line(k % len(columns))["color"])
        if name == "exact gap" and y.min() > 0:
            ax.set_yscale("log")
        ax.set_title(name)
        ax.set(xlabel=setting, ylabel=name)
    return figure


def _effect(ax: Axes, given: Sequence[Any], y: Any, colour: str) -> None:
    """Values side by side, numbers ascending, with the mean of each; many numbers along an axis of their own."""
    numbers = all(map(is_number, given))
    names = list(dict.fromkeys(map(readable, sorted(given) if numbers else given)))
    if numbers and len(names) > _NAMED:
        if min(given) > 0 and max(given) > _WIDE * min(given):
            ax.set_xscale("log")
        ax.scatter(given, y, s=18, alpha=0.7, color=colour, linewidths=0)
        return
    at = np.array([names.index(readable(value)) for value in given])
    spread = np.array([0.08 * ((int(np.sum(at[:k] == place)) % 5) - 2) for k, place in enumerate(at)])
    ax.scatter(at + spread, y, s=18, alpha=0.5, color=colour, linewidths=0)
    ax.plot(range(len(names)), [y[at == k].mean() for k in range(len(names))], "-o" if numbers else "o", color=colour)
    ax.set_xticks(range(len(names)), names, rotation=30 if max(map(len, names)) > 8 else 0)
    ax.set_xlim(-0.5, len(names) - 0.5)
