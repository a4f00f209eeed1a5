"""`moac report`: the page of a run or an experiment, made again from its folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from moac import files
from moac.report import html
from moac.report.page import Page
from moac.report.pages import run as run_page
from moac.runs import description


def run(path: Path, as_json: bool) -> int:
    """Write the page and say where it is."""
    report = write(path)
    sys.stdout.write((json.dumps({"report": str(report)}) if as_json else f"report: {report}") + "\n")
    return 0


def write(path: Path) -> Path:
    """Write report.html into the folder, wholly or not at all."""
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder: give one that moac train or moac reproduce has written.")
    files.check_folder("run", path)
    page, report = _page(path), path / "report.html"
    files.write_bytes(report, html.render(page).encode())
    return report


def _page(path: Path) -> Page:
    if (path / "explore.json").exists():
        from moac.report.pages import exploration as explore_page

        return explore_page.of_folder(path)
    if (path / "experiment.json").exists():
        from moac.report.pages import experiment as experiment_page

        return experiment_page.of_experiment(path)
    if (path / "config.json").exists():
        return run_page.of_run(path)
    raise ValueError(
        f"{path} is neither a run nor an experiment: it has no config.json and no experiment.json."
        f"{description.unfinished(path)}"
    )
