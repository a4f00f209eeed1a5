"""Reports of what commands leave behind, each made from its folder alone."""

from __future__ import annotations

from pathlib import Path

from moac import files
from moac.report.page import Page, render


def write(folder: Path) -> Path:
    """Write report.html into the folder of a run, an exploration or an experiment, wholly or not at all."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give one that moac train or moac reproduce has written.")
    files.check_folder("run", folder)
    page, report = _page_of(folder), folder / "report.html"
    files.write_bytes(report, render(page).encode())
    return report


def _page_of(folder: Path) -> Page:
    if (folder / "explore.json").exists():
        from moac.report.pages import exploration

        return exploration.of_folder(folder)
    if (folder / "experiment.json").exists():
        from moac.report.pages import experiment

        return experiment.of_experiment(folder)
    if (folder / "config.json").exists():
        from moac.report.pages import run

        return run.of_run(folder)
    from moac.runs import problems

    raise ValueError(
        f"{folder} is neither a run nor an experiment: it has no config.json and no experiment.json."
        f"{problems.unfinished(folder)}"
    )
