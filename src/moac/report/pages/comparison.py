"""The report of several runs side by side: curves of each objective, and what the runs end with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from moac import files
from moac.report import figures, pages
from moac.report.numbers import number, text, with_interval
from moac.report.page import Table
from moac.report.pages import experiment
from moac.report.pages.experiment import About, Findings, Shown
from moac.search.compare import Comparison
from moac.statistics import Mean

FORMAT = 1


def save(comparison: Comparison, out: Path) -> Path:
    """Write comparison.json, the figure, experiment.json and, from that, report.html."""
    objectives = ", ".join(comparison.objectives)
    curves = Shown(
        "Returns over environment steps",
        "curves",
        drawing(comparison),
        "The return of each objective over the environment steps of a trial: means over trials, with 95 % bands.",
        f"Line plots of {objectives} over environment steps, one line for each run.",
    )
    tables = (ends(comparison), differing(comparison))
    with files.making(out):
        files.write_json(out / "comparison.json", {"format": FORMAT} | comparison.record())
        experiment.write(_about(comparison), Findings((), tables, (curves,)), out)
        pages.write(out)
    return out


@figures.styled
def drawing(comparison: Comparison) -> Figure:
    """One panel for each objective, one line for each run."""
    figure, axes = figures.panels(len(comparison.objectives))
    for i, (ax, name) in enumerate(zip(axes, comparison.objectives, strict=True)):
        for index, run in enumerate(comparison.runs):
            figures.band(ax, run.steps, run.returns[:, :, i], index, run.name)
        ax.set_title(f"Return of {name}")
        ax.set(xlabel="environment steps of a trial", ylabel=name)
        figures.in_steps(ax)
    figures.legend_below(figure, axes)
    return figure


def ends(comparison: Comparison) -> Table:
    """The final returns of each run, and their differences to the first run."""
    rows: list[tuple[str, ...]] = []
    for k, run in enumerate(comparison.runs):
        cells = [_shown(end) for end in run.ends]
        if k == 0:
            rows.append((run.name, *cells, "baseline"))
            continue
        known = run.setting == comparison.runs[0].setting
        how = "paired" if run.pairs_with(comparison.runs[0]) else "not paired" if known else "no difference"
        more = [_shown(one, sign=True) for one in comparison.difference(k)]
        rows += [(run.name, *cells, ""), (f"{run.name} − {comparison.runs[0].name}", *more, how)]
    caption = (
        "Means over trials after the last iteration, with 95 % intervals. Differences to the first run are taken trial "
        "by trial where problem, seed and number of trials are the same (paired), else between the means (Welch)."
    )
    return Table("Final returns", caption, ("Run", *comparison.objectives, "Intervals"), tuple(rows))


def differing(comparison: Comparison) -> Table:
    """The options in which the runs are not all alike."""
    rows = [
        (name.replace("_", " "), *(_option(value) for value in values))
        for name, values in comparison.options_that_differ.items()
    ]
    caption = "Options, seeds and numbers of trials in which the runs are not all alike; all others are equal."
    if not rows:
        caption = "Nothing: problem, options, seed and number of trials are the same."
    return Table("What differs", caption, ("Option", *(run.name for run in comparison.runs)), tuple(rows))


def _option(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(_option(one) for one in value.values())
    if isinstance(value, list | tuple):
        return " ".join(_option(one) for one in value)
    if value is None:
        return "none"
    return text(value)


def _shown(one: Mean, sign: bool = False) -> str:
    return with_interval(one.value, (one.low, one.high), sign)


def _each(values: Iterable[int]) -> str:
    """The number that all runs share, or that of each in their order."""
    numbers = [number(value) for value in values]
    return numbers[0] if len(set(numbers)) == 1 else ", ".join(numbers)


def _about(comparison: Comparison) -> About:
    runs = comparison.runs
    problems = ", ".join(dict.fromkeys(run.problem[0] for run in runs))
    return About(
        "comparison",
        f"Comparison: {', '.join(run.name for run in runs)}",
        None,
        " ".join([f"{len(runs)} runs on {problems}.", *comparison.notes]),
        "Each run's own config.json has its settings.",
        {
            "problem": problems,
            "runs": len(runs),
            "trials": _each(len(run.returns) for run in runs),
            "seed": _each(run.seed for run in runs),
        },
        {},
    )
