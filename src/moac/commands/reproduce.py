"""`moac reproduce`: the paper's experiments, each with its report."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from moac import locks, training
from moac.commands import interrupts, report
from moac.commands.problems import model_of
from moac.commands.progress import Display
from moac.experiments import files, rates, reproduce, spec
from moac.experiments.experiment_page import of_experiment


@final
@dataclass(frozen=True)
class Order:
    """What `moac reproduce` was asked to do."""

    name: str
    quick: bool
    out: Path | None
    json: bool


def run(order: Order) -> int:
    """Run one experiment, or all of them."""
    chosen = spec.names() if order.name == "all" else (order.name,)
    experiments = [spec.load(name, order.quick) for name in chosen]
    root = Path("runs") if order.out is None else order.out
    done: list[dict[str, Any]] = []
    for experiment in experiments:
        folder = root / experiment.name if order.out is None or order.name == "all" else root
        try:
            files.check_folder("out", folder)
            with locks.folder(folder):
                done.append(_one(experiment, folder, order.json))
        except KeyboardInterrupt as error:
            sys.stderr.write(f"moac: stopped; the same command continues {folder}\n")
            return interrupts.code(error)
    if order.json:
        sys.stdout.write(json.dumps(files.finite(done[0] if len(done) == 1 else {"experiments": done})) + "\n")
    return 0


def _one(experiment: spec.Experiment | spec.Study, folder: Path, quiet: bool) -> dict[str, Any]:
    if isinstance(experiment, spec.Study):
        return study(experiment, folder, quiet)
    began = _begin(experiment)
    reproduce.run(experiment, model_of(experiment.env), folder, _display)
    return _told(experiment, folder, quiet, began)


def study(own: spec.Study, folder: Path, quiet: bool, measure: reproduce.Measure = rates.run) -> dict[str, Any]:
    """Run a study, write its report and say what it found; its summary."""
    began = _begin(own)
    reproduce.run_study(own, folder, _say, measure)
    return _told(own, folder, quiet, began)


def _begin(experiment: spec.Experiment | spec.Study) -> float:
    if experiment.quick:
        sys.stderr.write(f"{experiment.name}: a reduced run, for a first look\n")
    return time.monotonic()


def _told(experiment: spec.Experiment | spec.Study, folder: Path, quiet: bool, began: float) -> dict[str, Any]:
    page = of_experiment(folder)
    path = report.write(folder)
    if not quiet:
        for claim in page.claims:
            sys.stdout.write(f"[{claim.verdict}] {claim.claim}\n    {claim.measured}\n")
        sys.stdout.write(f"report: {path}\n")
    return {
        "experiment": experiment.name,
        "quick": experiment.quick,
        "seconds": time.monotonic() - began,
        "claims": [
            {"claim": claim.claim, "verdict": claim.verdict, "measured": claim.measured} for claim in page.claims
        ],
        "report": str(path),
    }


def _display(task: spec.Task, run: training.Run, iteration: int) -> Display:
    sys.stderr.write(f"{task.label}\n")
    return Display(run, iteration)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
