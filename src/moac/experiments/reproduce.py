"""Reproduce a figure: run its tasks, draw, judge the claims, and leave everything in one folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from matplotlib.figure import Figure as Drawing

from moac import momdp
from moac.config import Average
from moac.experiments import claims, files, peers, provenance, runner, tables
from moac.experiments.spec import Experiment
from moac.history import History
from moac.momdp import FiniteMOMDP
from moac.report import comparisons, style
from moac.report.page import Claim, Table

FORMAT = 1


@final
@dataclass(frozen=True)
class Shown:
    """A drawing and what to say of it."""

    name: str
    file: str
    drawing: Drawing
    caption: str
    alt: str


def run(experiment: Experiment, model: FiniteMOMDP, out: Path, show: runner.Show) -> Path:
    """Everything of one experiment; a second call keeps what has finished."""
    began = time.monotonic()
    folder = out / ("tasks-quick" if experiment.quick else "tasks")
    done = {
        group: {task.label: runner.complete(task, experiment, model, folder, show).history for task in tasks}
        for group, tasks in (("methods", experiment.methods), ("sensitivity", experiment.sensitivity))
    }
    setting = experiment.methods[0].config.setting
    points = _points(model, setting)
    extent = np.ptp(points, axis=0)
    judged = claims.of(experiment.name, done["methods"], model.objective_names, extent)
    listed = tuple(
        table(done[group], model.objective_names, points)
        for group, table in (("methods", tables.methods), ("sensitivity", tables.sensitivity))
        if done[group]
    )
    recorded = None if isinstance(setting, Average) else peers.table(experiment.env)
    listed = listed if recorded is None else (*listed, recorded)
    shown = figures(experiment, done["methods"], model.objective_names, points)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for item in shown:
        for kind in ("svg", "png"):
            files.write_bytes(out / "figures" / f"{item.file}.{kind}", style.rendered(item.drawing, kind))
    files.write_json(out / "experiment.json", _record(experiment, judged, listed, shown, time.monotonic() - began))
    return out


def _points(model: FiniteMOMDP, setting: Any) -> Any:
    """The exact front of deterministic policies, or where it is not defined, the corners of the hull."""
    if isinstance(setting, Average):
        return momdp.support_of(model, setting).points
    return momdp.pareto_front(model, setting).points


def figures(
    experiment: Experiment, histories: Mapping[str, History], objectives: tuple[str, ...], points: Any
) -> tuple[Shown, ...]:
    """The drawings of an experiment, in reading order."""
    main, trials = experiment.main, experiment.trials
    history = histories[main]
    band = f"Mean of {trials} trials with its 95 % band."
    return (
        Shown(
            "Returns",
            "returns",
            comparisons.returns(history, objectives),
            f"Exact return of each objective under {main}, evaluated on the model, not estimated. {band}",
            f"Line charts of the exact returns of {', '.join(objectives)} over iterations.",
        ),
        Shown(
            "Squared norm of the step",
            "step-norm",
            comparisons.over_iterations(histories, "gradient_norm_squared", log=True),
            f"‖g_t‖², which the paper plots. Plain MGDA minimises it by construction: lower is not better. {band}",
            "Line chart of the squared norm of the step over iterations, one line per method, logarithmic.",
        ),
        Shown(
            "Exact gap",
            "gap",
            comparisons.gaps(history),
            f"Stationarity gap of the exact gradient, and of the direction that Lemma 1 follows, under {main}. {band}",
            "Line chart of two exact stationarity gaps over iterations, logarithmic.",
        ),
        Shown(
            "Weights",
            "weights",
            comparisons.weights(history, objectives),
            f"The weights used, and those that the batch alone would give, under {main}. {band}",
            "Two line charts of the weights of each objective over iterations.",
        ),
        Shown(
            "Smallest alignment",
            "alignment",
            comparisons.over_iterations(histories, "smallest_alignment", log=False),
            f"The smallest ⟨gⁱ, d⟩ over objectives: below zero, the step lowers some objective's estimate. {band}",
            "Line chart of the smallest alignment over iterations, one line per method.",
        ),
        Shown(
            "Where the trials end",
            "ends",
            comparisons.ends(histories, points, objectives),
            "Final exact returns of every trial, beside the exact front of deterministic policies (stars).",
            "Scatter plots of final returns per pair of objectives with the exact front.",
        ),
    )


def _record(
    experiment: Experiment,
    judged: tuple[Claim, ...],
    listed: tuple[Table, ...],
    shown: tuple[Shown, ...],
    seconds: float,
) -> dict[str, Any]:
    """experiment.json: all that the report needs beside the drawings."""
    return {
        "format": FORMAT,
        "name": experiment.name,
        "title": experiment.title,
        "env": experiment.env,
        "trials": experiment.trials,
        "seed": experiment.seed,
        "summary": experiment.summary,
        "why": experiment.why,
        "quick": experiment.quick,
        "seconds": seconds,
        "config": experiment.methods[0].config.to_json(),
        "provenance": provenance.of_this_process(experiment.seed),
        "claims": [vars(claim) for claim in judged],
        "tables": [vars(table) for table in listed],
        "figures": [{"name": s.name, "file": f"{s.file}.svg", "caption": s.caption, "alt": s.alt} for s in shown],
    }
