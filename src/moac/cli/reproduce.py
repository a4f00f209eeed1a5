"""`moac reproduce`: the paper's experiments, each with its report."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from moac import files, locks, training
from moac.cli import interrupts, report
from moac.cli.progress import Display
from moac.cli.studies import studies
from moac.report.pages.experiment import of_experiment
from moac.runs.runner import Task


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
    installed = studies()
    chosen = installed.names() if order.name == "all" else (order.name,)
    experiments = [installed.load(name, order.quick) for name in chosen]
    root = Path("runs") if order.out is None else order.out
    done: list[dict[str, Any]] = []
    for experiment in experiments:
        folder = root / experiment.name if order.out is None or order.name == "all" else root
        try:
            files.check_folder("out", folder)
            with locks.folder(folder):
                began = begin(experiment)
                installed.run(experiment, folder, _display, say)
                done.append(summary(experiment, folder, order.json, began))
        except KeyboardInterrupt as error:
            sys.stderr.write(f"moac: stopped; the same command continues {folder}\n")
            return interrupts.code(error)
    if order.json:
        sys.stdout.write(json.dumps(files.finite(done[0] if len(done) == 1 else {"experiments": done})) + "\n")
    return 0


def begin(experiment: Any) -> float:
    """Say that a run is a reduced one; the time at which it begins."""
    if experiment.quick:
        sys.stderr.write(f"{experiment.name}: a reduced run, for a first look\n")
    return time.monotonic()


def summary(experiment: Any, folder: Path, quiet: bool, began: float) -> dict[str, Any]:
    """Write the report and print the verdicts; they are also returned."""
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


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{text}\n")


def _display(task: Task, run: training.Run, iteration: int) -> Display:
    sys.stderr.write(f"{task.label}\n")
    return Display(run, iteration)
