"""The report of an experiment, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moac.experiments import files
from moac.experiments.reproduce import FORMAT
from moac.report.page import Claim, Figure, Page, Table


def of_experiment(directory: Path) -> Page:
    """The page of an experiment's folder; what is missing or damaged in it is a ValueError."""
    path = directory / "experiment.json"
    data = files.read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise files.DamagedError(path, "it has no format number")
    if data["format"] != FORMAT:
        age, cure = ("newer", "update moac") if data["format"] > FORMAT else ("older", "run `moac reproduce` again")
        raise ValueError(f"{path} has format {data['format']}, {age} than {FORMAT}: {cure} to read it.")
    try:
        return _page(directory, data)
    except (KeyError, TypeError) as error:
        raise files.DamagedError(path, f"{error} is missing or wrong") from None


def _page(directory: Path, data: dict[str, Any]) -> Page:
    origin = data["provenance"]
    return Page(
        title=data["title"],
        summary=data["summary"],
        facts=(
            *data["facts"].items(),
            ("seed", data["seed"]),
            *((("time", f"{data['seconds']:.0f} s"),) if data["seconds"] is not None else ()),
        ),
        notice="A reduced run (--quick) for a first look: fewer trials and smaller sizes." if data["quick"] else None,
        claims=tuple(Claim(**claim) for claim in data["claims"]),
        figures=tuple(
            Figure.of_file(f["name"], directory / "figures" / Path(f["file"]).name, f["caption"], f["alt"])
            for f in data["figures"]
        ),
        tables=tuple(
            Table(t["title"], t["caption"], tuple(t["header"]), tuple(tuple(row) for row in t["rows"]))
            for t in data["tables"]
        ),
        details=(
            ("why these settings", data["why"]),
            *((key, str(value)) for key, value in data["config"].items() if value is not None),
            *(origin["versions"].items()),
            ("commit", origin["commit"]),
            ("processor", origin["cpu"]),
        ),
    )
