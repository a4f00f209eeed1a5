"""`moac reproduce`: the paper's experiments, each with its report."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import tyro

from moac.cli import process
from moac.cli.options import Answer, Command, option
from moac.progress import labelled_progress, say


def studies() -> Any:
    """The package of studies, found by its entry point: the library itself does not import it."""
    for point in entry_points(group="moac.studies"):
        return point.load()
    raise ValueError("the studies are not installed: reinstall moac, whose wheel holds the package moac_studies.")


def _installed_names() -> str:
    """Names of the studies, for the help; none where they are not installed."""
    return "".join(f"{name}, " for point in entry_points(group="moac.studies") for name in point.load().names())


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Run an experiment of the paper and write its report; a second call continues what was interrupted."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME", help=f"{_installed_names()}or all.")]]
    quick: bool = False
    """A reduced run, for a first look."""
    out: Annotated[Path | None, option("DIR", "default: runs/NAME")] = None
    """Folder of the experiment."""

    def answer(self) -> Answer:
        """Run one experiment, or all of them."""
        process.use_all_cores()
        from moac import files, locks

        installed = studies()
        chosen = installed.names() if self.name == "all" else (self.name,)
        root, done = Path("runs") if self.out is None else self.out, list[Mapping[str, Any]]()
        for experiment in [installed.load(name, self.quick) for name in chosen]:
            folder = root / experiment.name if self.out is None or self.name == "all" else root
            files.check_folder("out", folder)
            with process.continued(f"the same command continues {folder}"), locks.folder(folder):
                began = begin(experiment)
                installed.run(experiment, folder, labelled_progress(), say)
                concluded = conclude(experiment, folder, began)
                done.append(concluded.record)
                if not self.json:
                    concluded.show()
        return Answer(done[0] if len(done) == 1 else {"experiments": done}, lambda: None)


def begin(experiment: Any) -> float:
    """Say that a run is a reduced one; the time at which it begins."""
    if experiment.quick:
        say(f"{experiment.name}: a reduced run, for a first look")
    return time.monotonic()


def conclude(experiment: Any, folder: Path, began: float) -> Answer:
    """Write the report; the verdicts, as JSON and as lines."""
    from moac.report import pages
    from moac.report.pages.experiment import of_experiment

    claims, report = of_experiment(folder).claims, pages.write(folder)
    record = {
        "experiment": experiment.name,
        "quick": experiment.quick,
        "seconds": time.monotonic() - began,
        "claims": [{"claim": c.claim, "verdict": c.verdict, "measured": c.measured} for c in claims],
        "report": str(report),
    }
    lines = [f"[{claim.verdict}] {claim.claim}\n    {claim.measured}\n" for claim in claims]
    return Answer(record, lambda: sys.stdout.write("".join([*lines, f"report: {report}\n"])))
