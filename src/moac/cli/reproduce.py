"""`moac reproduce`: the paper's experiments, each with its report."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, final

import tyro

from moac.cli import process
from moac.cli.console import print_json, print_paths
from moac.cli.options import Command, option
from moac.progress import labelled_progress, say


def studies() -> Any:
    """The package of studies, found by its entry point: the library itself does not import it."""
    for point in entry_points(group="moac.studies"):
        return point.load()
    raise ValueError("the studies are not installed: reinstall moac, whose wheel holds the package moac_studies.")


def _installed_names() -> str:
    """Names of the studies, for the help; none where they are not installed."""
    return "".join(f"{name}, " for point in entry_points(group="moac.studies") for name in point.load().names())


@final
@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Run an experiment of the paper and write its report; a second call continues what was interrupted."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME", help=f"{_installed_names()}or all.")]]
    quick: bool = False
    """A reduced run, for a first look."""
    out: Annotated[Path | None, option("DIR", "default: runs/NAME")] = None
    """Folder of the experiment."""

    def run(self) -> int:
        """Run one experiment, or all of them."""
        process.use_all_cores()
        from moac import files, locks

        installed = studies()
        chosen = installed.names() if self.name == "all" else (self.name,)
        root, done = Path("runs") if self.out is None else self.out, list[dict[str, Any]]()
        for experiment in [installed.load(name, self.quick) for name in chosen]:
            folder = root / experiment.name if self.out is None or self.name == "all" else root
            files.check_folder("out", folder)
            with process.continued(f"the same command continues {folder}"), locks.folder(folder):
                began = begin(experiment)
                installed.run(experiment, folder, labelled_progress(), say)
                done.append(conclude(experiment, folder, self.json, began))
        if self.json:
            print_json(done[0] if len(done) == 1 else {"experiments": done})
        return 0


def begin(experiment: Any) -> float:
    """Say that a run is a reduced one; the time at which it begins."""
    if experiment.quick:
        say(f"{experiment.name}: a reduced run, for a first look")
    return time.monotonic()


def conclude(experiment: Any, folder: Path, as_json: bool, began: float) -> dict[str, Any]:
    """Write the report and print the verdicts; they are also returned, for a JSON object."""
    from moac.report import pages
    from moac.report.pages.experiment import of_experiment

    claims, report = of_experiment(folder).claims, pages.write(folder)
    if not as_json:
        for claim in claims:
            sys.stdout.write(f"[{claim.verdict}] {claim.claim}\n    {claim.measured}\n")
        print_paths(report=report)
    return {
        "experiment": experiment.name,
        "quick": experiment.quick,
        "seconds": time.monotonic() - began,
        "claims": [{"claim": c.claim, "verdict": c.verdict, "measured": c.measured} for c in claims],
        "report": str(report),
    }
