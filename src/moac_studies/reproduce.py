"""Reproduce an experiment: measure, draw, judge the claims, and leave everything in one folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moac import momdp
from moac.config import Average
from moac.momdp import FiniteMOMDP
from moac.report.pages import experiment as experiment_page
from moac.runs import runner
from moac.training.history import History
from moac_studies import claims, peers, rates, tables
from moac_studies.drawings import comparisons
from moac_studies.spec import Experiment, Study
from moac_studies.studies import Findings, Say, Shown, Workspace

Measure = Callable[[Study, Workspace], Findings]


def run(experiment: Experiment, model: FiniteMOMDP, out: Path, show: runner.Show) -> Path:
    """Everything of one experiment; a second call keeps what has finished."""
    began = time.monotonic()
    found = _trained(experiment, model, _tasks(experiment, out), show)
    config = experiment.methods[0].config
    facts = {
        "environment": experiment.env,
        "trials per method": experiment.trials,
        "iterations": config.num_iterations,
    }
    about = facts, config.to_json()
    return experiment_page.write(experiment, found, about, time.monotonic() - began, out)


def run_study(study: Study, out: Path, say: Say, measure: Measure = rates.run) -> Path:
    """Everything of one study; a second call keeps what has been measured. `measure` is by its name, or another."""
    began = time.monotonic()
    found = measure(study, Workspace(_tasks(study, out), say))
    settings = {f"{table}: {key}": value for table, keys in study.parameters.items() for key, value in keys.items()}
    return experiment_page.write(study, found, ({}, settings), time.monotonic() - began, out)


def _tasks(experiment: Experiment | Study, out: Path) -> Path:
    return out / ("tasks-quick" if experiment.quick else "tasks")


def _trained(experiment: Experiment, model: FiniteMOMDP, folder: Path, show: runner.Show) -> Findings:
    """Train all methods of an experiment and compare them."""
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
    return Findings(judged, listed, figures(experiment, done["methods"], model.objective_names, points))


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
