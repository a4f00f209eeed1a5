"""The report of an experiment, from its folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from moac import files
from moac.report import figures
from moac.report.page import Claim, Figure, Page, Table
from moac.runs import problems

FORMAT = 2


@dataclass(frozen=True)
class About:
    """What a report says of an experiment, whatever it measures."""

    name: str  # of its file
    title: str  # of its report
    seed: int | None  # of all randomness; None where the facts say several
    summary: str  # what is shown
    why: str  # how the settings were chosen
    facts: dict[str, Any]  # what a reader wants to know at once
    config: dict[str, Any]  # everything that was set
    quick: bool = False  # whether this is the reduced run
    seconds: float | None = None  # that it took; None where equal experiments must give equal pages


@dataclass(frozen=True)
class Shown:
    """A drawing and what to say of it."""

    name: str
    file: str
    drawing: Drawing
    caption: str
    alt: str


@dataclass(frozen=True)
class Findings:
    """What an experiment's report shows, in reading order."""

    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    figures: tuple[Shown, ...]


def write(about: About, findings: Findings, out: Path) -> Path:
    """The drawings, then experiment.json with all else that the report needs."""
    folder = files.subfolder(out, "figures")
    for item in findings.figures:
        figures.write(folder, item.file, item.drawing)
    record = {
        "format": FORMAT,
        **vars(about),
        "provenance": problems.provenance(about.seed),
        "claims": [vars(claim) for claim in findings.claims],
        "tables": [vars(table) for table in findings.tables],
        "figures": [
            {"name": s.name, "file": f"{s.file}.svg", "caption": s.caption, "alt": s.alt} for s in findings.figures
        ],
    }
    files.write_json(out / "experiment.json", record)
    return out


def of_experiment(directory: Path) -> Page:
    """The page of an experiment's folder; what is missing or damaged in it is a ValueError."""
    path = directory / "experiment.json"
    data = files.read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise files.DamagedError(path, "it has no format number")
    if data["format"] != FORMAT:
        age, cure = ("newer", "update moac") if data["format"] > FORMAT else ("older", "run the command again")
        raise ValueError(f"{path} has format {data['format']}, {age} than {FORMAT}: {cure} to read it.")
    with files.interpreting(path):
        return _page(directory, data)


def _page(directory: Path, data: dict[str, Any]) -> Page:
    origin, seconds, folder = data["provenance"], data["seconds"], directory / "figures"
    further: list[tuple[str, Any]] = []
    if data["seed"] is not None:
        further.append(("seed", data["seed"]))
    if seconds is not None:
        further.append(("time", f"{seconds:.0f} s"))
    return Page(
        title=data["title"],
        summary=data["summary"],
        facts=(*data["facts"].items(), *further),
        notice="A reduced run (--quick) for a first look: fewer trials and smaller sizes." if data["quick"] else None,
        claims=tuple(Claim(**claim) for claim in data["claims"]),
        figures=tuple(
            Figure.of_file(f["name"], folder / Path(f["file"]).name, f["caption"], f["alt"]) for f in data["figures"]
        ),
        tables=tuple(
            Table(t["title"], t["caption"], tuple(t["header"]), tuple(tuple(row) for row in t["rows"]))
            for t in data["tables"]
        ),
        details=(
            ("why these settings", data["why"]),
            *((key.replace("_", " "), str(value)) for key, value in data["config"].items() if value is not None),
            *(origin["versions"].items()),
            ("commit", origin["commit"]),
            ("processor", origin["cpu"]),
        ),
    )
