"""The report of an exploration: the choice among its policies, its numbers and figures, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from moac import files
from moac.report import choice, exploring, style
from moac.report.numbers import number
from moac.report.page import Figure, Page, Table
from moac.search.explore import FORMAT, RECORD, Explored

_KINDS = {
    "exact": "evaluated exactly on the model",
    "episodes": "means over episodes of the real environment, with 95 % intervals",
    "ncis": "NCIS on validation users, with 95 % intervals over users",
}
_FILES = {"fronts": "What was found", "over-steps": "Over environment steps"}


def write(found: Explored, out: Path) -> None:
    """The figures; `of_folder` makes the page of them and of explore.json."""
    exact, archive = found.yardstick.exact, found.archive
    known = np.asarray(np.isfinite(found.candidates.points).all(axis=1))
    picture = exploring.Picture(
        found.objectives,
        found.candidates.points[known],
        tuple(rule for rule, own in zip(found.candidates.trained_by, known, strict=True) if own),
        archive.points,
        archive.low,
        archive.high,
        None if exact is None else exact.front,
        None if exact is None else exact.hull,
    )
    folder = files.subfolder(out, "figures")
    drawn = {"fronts": exploring.fronts(picture), "over-steps": exploring.over_steps(found.curves)}
    for name, figure in drawn.items():
        for kind in ("svg", "png"):
            files.write_bytes(folder / f"{name}.{kind}", style.rendered(figure, kind))


def of_folder(folder: Path) -> Page:
    """The page; what is missing or damaged in the folder is a ValueError."""
    path = folder / RECORD
    data = files.read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise files.DamagedError(path, f"its format is not {FORMAT}")
    try:
        return _page(folder, data)
    except (KeyError, TypeError, ValueError) as error:
        raise files.DamagedError(path, f"{error} is missing or wrong") from None


def _page(folder: Path, data: dict[str, Any]) -> Page:
    numbers, rules = data["numbers"], data["by_rule"]
    hull = f" {numbers['hull_found']} of {numbers['hull_points']} points of the exact hull." if _exact(numbers) else ""
    summary = (
        f"{len(data['preferences'])} preferences, rules {', '.join(data['rules'])}: {numbers['points']} policies that "
        f"no other one found dominates.{hull} Returns are {_KINDS.get(data['returns_kind'], data['returns_kind'])}."
    )
    return Page(
        title=f"Exploration of {data['env']}",
        summary=summary,
        facts=_facts(data),
        results=(_rules(rules), _traps(rules)),
        choice=_choice(folder, data),
        figures=tuple(_figure(folder, name, data) for name in _FILES),
        tables=(_missed(data),) if numbers.get("hull_missed") else (),
        details=(("rules", ", ".join(data["rules"])), ("seed", str(data["seed"]))),
    )


def _facts(data: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    numbers, served = data["numbers"], data["numbers"]["preferences_served"]
    facts: list[tuple[str, Any]] = [
        ("policies archived", numbers["points"]),
        ("environment steps", numbers["env_steps"]),
    ]
    if _exact(numbers):
        facts += [("hull points found", f"{numbers['hull_found']} of {numbers['hull_points']}")]
        facts += [("most below the hull", numbers["most_below_hull"])]
    facts += [("preferences served by their own policy", _share(served["own"]))]
    facts += [("by the archive's best", _share(served["archive"]))]
    facts += [("hypervolume", numbers["hypervolume"]), ("reference point", _vector(data["reference"]))]
    return (*facts, ("the reference is", data["reference_is"]), ("IGD+", numbers["igd_plus"]))


def _rules(rules: dict[str, Any]) -> Table:
    header = ("Rule", "Policies", "Archived", "Hull points", "Hypervolume", "IGD+", "Served by own", "Chebyshev")
    rows = tuple(
        (
            name,
            own["policies"],
            own["archived"],
            f"{own['hull_found']} of {own['hull_points']}" if _exact(own) else None,
            own["hypervolume"],
            own["igd_plus"],
            _share(own["preferences_served"]["own"]),
            _share(own["preferences_served"]["chebyshev"]),
        )
        for name, own in rules.items()
    )
    caption = (
        "A hull point is found where a policy is within 1 % of the front's range in every objective. A preference p is "
        "served by its own policy where pᵀJ is within 1 % of the best, in units of the ranges; Chebyshev: the largest "
        "pᵢ(zⁱ − Jⁱ) is within 1 % of the archive's least, z the best of each objective. IGD+ is in the same units. "
        "Policies are the trials; on a model also the ends of their earlier stages, and all of these with their "
        "likeliest actions alone."
    )
    return Table("What each rule finds", caption, header, rows)


def _traps(rules: dict[str, Any]) -> Table:
    rows = tuple(
        (f"{name}, entropy {number(each['entropy'], 2)}", _share(each["share"]))
        for name, own in rules.items()
        for each in own["trapped_after"]
    )
    caption = (
        "The share of trials whose every objective earns nothing, its return 0 or the front's worst, after each stage "
        "of a rule; the stages follow each other."
    )
    return Table("Zero traps", caption, ("After the stage", "Trials"), rows)


def _choice(folder: Path, data: dict[str, Any]) -> choice.Choice:
    objectives = tuple(map(str, data["objectives"]))
    about = "A mark is a policy: follow it to its returns, what it was trained for, and the line that loads it."
    cards = tuple(_card(folder, k, point, objectives) for k, point in enumerate(data["archive"]))
    points = np.array([point["returns"] for point in data["archive"]], dtype=np.float64)
    return choice.Choice(about, choice.panels(points, objectives), cards)


def _card(folder: Path, k: int, point: dict[str, Any], objectives: tuple[str, ...]) -> choice.Card:
    ends = point["interval"] or [None] * len(objectives)
    facts = [(name, _value(v, end)) for name, v, end in zip(objectives, point["returns"], ends, strict=True)]
    facts += [("preference p", _vector(point["preference"])), ("weights λ", _vector(point["weights"]))]
    facts += [("rule and trial", f"{point['rule']}, {point['trial']}"), ("policy file", "policy.safetensors")]
    return choice.Card(f"Point {k}", tuple(facts), f"policy = moac.load({str(folder)!r}, trial={k})")


def _figure(folder: Path, name: str, data: dict[str, Any]) -> Figure:
    names = ", ".join(map(str, data["objectives"]))
    said = {
        "fronts": (
            "Every policy, those of the archive with a ring and their intervals where values are estimated, beside the "
            "exact front (crosses) and its hull (stars) where a model knows them.",
            f"Returns of {names} of all policies found.",
        ),
        "over-steps": (
            "Of all that the trials of a rule had found by then; steps are of all its trials together.",
            "Line charts of hypervolume and IGD+ over environment steps, one line for each rule.",
        ),
    }
    return Figure.of_file(_FILES[name], folder / "figures" / f"{name}.svg", *said[name])


def _missed(data: dict[str, Any]) -> Table:
    rows = tuple((str(k + 1), *map(float, point)) for k, point in enumerate(data["numbers"]["hull_missed"]))
    caption = "Points of the exact hull that no policy is within 1 % of the range of."
    return Table("Missed", caption, ("", *map(str, data["objectives"])), rows)


def _exact(own: dict[str, Any]) -> bool:
    return "hull_points" in own


def _value(value: float, ends: Any) -> str:
    return number(value) if ends is None else f"{number(value)} [{number(ends[0])}, {number(ends[1])}]"


def _vector(values: Any) -> str | None:
    return None if values is None else ", ".join(number(float(value), 3) for value in values)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{number(100 * value, 3)} %"
