"""The report of an exploration: the choice among its policies, its numbers and figures, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing

from moac import files
from moac.choices import counted
from moac.report import figures, pages
from moac.report.figures import Points
from moac.report.numbers import number, with_interval
from moac.report.page import Card, Choice, Figure, Page, Panel, Table
from moac.report.pages.run import ends
from moac.runs import problems
from moac.search import CONDITIONED, measures
from moac.search.archive import Archive
from moac.search.explore import FORMAT, RECORD, Exploration, check_folder
from moac.statistics import without_rounding
from moac.theory import certificate

_KINDS = {
    "exact": "evaluated exactly on the model",
    "episodes": "means over episodes of the real environment, with 95 % intervals",
    "ncis": "NCIS on validation users, with 95 % intervals over users",
}
Values = Float[np.ndarray, "N M"]
_FEW = 3  # up to so many objectives are drawn pair by pair; more along parallel axes
_INK = "#333333"
_LINES = {"policies": ("#d5d5d5", 0.8), "exact hull": (figures.COLOURS[1], 1.2), "archive": (figures.COLOURS[0], 1.4)}
"""Colour and width."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 286.0, 14.0, 226.0
"""Of the drawing area of a map to choose from, which is 300 wide and 270 high."""


def save(archive: Archive, out: Path) -> Path:
    """Make `out` the run directory of the archived policies, with explore.json, the figures and the report."""
    explored: Exploration | None = archive.exploration
    if explored is None:
        raise ValueError("`exploration` must be known to save an archive: one that was read is in its folder already.")
    check_folder(out)
    explored.write(out)
    folder = files.subfolder(out, "figures")
    figures.write(folder, "fronts", _fronts(explored))
    figures.write(folder, "over-steps", _over_steps(explored.measured["curves"]))
    pages.write(out)
    return out


def _fronts(explored: Exploration) -> Drawing:
    """The archive among all policies, with the exact front where it is known."""
    exact, archive, candidates = explored.yardstick, explored.archive, explored.candidates
    if len(explored.objectives) > _FEW:
        hull = {"exact hull": exact.hull} if exact.is_exact else {}
        sets = {"policies": measures.finite(candidates.points)} | hull | {"archive": archive.points}
        return _parallel(sets, explored.objectives)
    groups: list[Points] = []
    for index, rule in enumerate(dict.fromkeys(candidates.trained_by)):
        of_rule = candidates.picked([k for k, name in enumerate(candidates.trained_by) if name == rule])
        groups.append(Points(f"policies, {rule}", measures.finite(of_rule.points), figures.dots(index, 14, 0.45)))
    if exact.is_exact:
        for label, values, marker, colour in (("front", exact.front, "x", "#999999"), ("hull", exact.hull, "*", _INK)):
            groups.append(Points(f"exact {label}", values, {"s": 70, "marker": marker, "color": colour}))
    groups.append(Points("archive", archive.points, figures.rings(), archive.low, archive.high))
    return figures.scatter(groups, explored.objectives, f"{explored.plan.env}: returns of all policies")


@figures.styled
def _parallel(sets: dict[str, Any], objectives: tuple[str, ...]) -> Drawing:
    """Each objective on an axis of its own, scaled to the range of what is shown; a line is a policy."""
    low, high = (end(np.concatenate(list(sets.values())), axis=0) for end in (np.min, np.max))
    figure, (ax,) = figures.grid(1, 1, (max(6.0, 1.6 * len(objectives)), 4.3))
    x = np.arange(len(objectives))
    for label, points in sets.items():
        colour, width = _LINES[label]
        for k, row in enumerate(_scaled(points, low, high)):
            ax.plot(x, row, color=colour, alpha=0.7, linewidth=width, label=label if k == 0 else None)
    ax.set_xticks(x, [f"{n}\n{a:.3g} to {b:.3g}" for n, a, b in zip(objectives, low, high, strict=True)])
    ax.set_title("Returns of all policies: a line is a policy")
    ax.set_yticks([0, 1], ["least", "most"])
    ax.set_ylim(-0.05, 1.05)
    figures.legend_below(figure, [ax])
    return figure


def _scaled(points: Any, low: Any, high: Any) -> Float[np.ndarray, "N M"]:
    """To [0, 1] in each objective; to the middle where all are alike."""
    return np.where(high > low, (points - low) / np.where(high > low, high - low, 1.0), 0.5)


@figures.styled
def _over_steps(curves: dict[str, dict[str, Any]]) -> Drawing:
    """Hypervolume and IGD+ of all that was found so far, over environment steps, a line for each rule."""
    figure, axes = figures.panels(2)
    panels = (("hypervolume", "Hypervolume (more is better)"), ("igd_plus", "IGD+ (less is better)"))
    for ax, (name, title) in zip(axes, panels, strict=True):
        for index, (rule, curve) in enumerate(curves.items()):
            marker: dict[str, Any] = {"marker": "o"} if len(curve[name]) == 1 else {}
            ax.plot(curve["steps"], curve[name], label=rule, **figures.line(index), **marker)
        ax.set_title(title)
        ax.set(xlabel="environment steps", ylabel=title.partition(" (")[0])
        ax.set_ylim(bottom=0)
        figures.in_steps(ax)
    figures.legend_below(figure, axes)
    return figure


def of_folder(folder: Path) -> Page:
    """The page; what is missing or damaged in the folder is a ValueError."""
    path = folder / RECORD
    data = files.read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise files.DamagedError(path, f"its format is not {FORMAT}")
    with files.interpreting(path):
        return _page(folder, data)


def _page(folder: Path, data: dict[str, Any]) -> Page:
    numbers, served, hull = data["numbers"], data["numbers"]["preferences_served"], _hull(data["numbers"])
    asked = counted(len(data["asked"]["preferences"]), "preference")
    rules, kind = ", ".join(data["rules"]), data["returns_kind"]
    how = f"One network, asked for {asked}" if rules == CONDITIONED else f"{asked}, rules {rules}"
    policies = counted(numbers["points"], "policy")
    found = f" They reach {hull} points of the exact hull." if hull else ""
    facts: dict[str, Any] = {"policies archived": numbers["points"], **_steps(numbers)}
    facts |= {"hull points found": hull, "largest distance below the hull": numbers["most_below_hull"]} if hull else {}
    facts |= {
        "preferences served by their own policy": _share(served["own"]),
        "preferences served by the archive": _share(served["archive"]),
        "hypervolume": numbers["hypervolume"],
        "expected utility": numbers["expected_utility"],
        "sparsity": numbers["sparsity"],
        "reference point": _vector(data["reference"]),
        "the reference is": data["reference_is"],
    } | ({"IGD+": numbers["igd_plus"]} if hull else {})
    return Page(
        title=f"Exploration of {data['env']}",
        summary=f"{how}: {policies} that no other one dominates.{found} Returns are {_KINDS.get(kind, kind)}.",
        facts=tuple(facts.items()),
        results=(_rules(data["by_rule"]),),
        choice=_choice(folder, data),
        figures=_figures(folder, data),
        details=(("rules", rules), ("seed", str(data["seed"]))),
    )


def _steps(numbers: dict[str, Any]) -> dict[str, Any]:
    """Environment steps of the training, and where there were any those of evaluations, by what they were for."""
    purposes = numbers.get("evaluation_steps_by_purpose") or {}
    taken = {purpose: steps for purpose, steps in purposes.items() if steps}
    if not taken:
        return {"environment steps": numbers["env_steps"]}
    facts = {"environment steps of the training": numbers["env_steps"]}
    facts["environment steps of evaluations"] = numbers["evaluation_steps"]
    facts |= {f"of these, {purpose}": steps for purpose, steps in taken.items()}
    if numbers["not_valued"]:
        few = f"{number(numbers['not_valued'])}, for which steps did not suffice (--evaluation-share)"
        facts["policies not valued"] = few
    return facts


def _rules(rules: dict[str, Any]) -> Table:
    header = ("Rule", "Policies", "Archived", "Hull points", "Hypervolume", "IGD+", "Served by own")
    rows = tuple(
        (name, own["policies"], own["archived"], _hull(own), own["hypervolume"], own["igd_plus"],
         _share(own["preferences_served"]["own"])) for name, own in rules.items()
    )  # fmt: skip
    caption = (
        "A hull point is found where a policy is within 1 % of the front's range in every objective. A preference p is "
        "served by its own policy where pᵀJ is within 1 % of the best, in units of the ranges; IGD+ is in these units. "
        "Policies are those of all trials; on a model also of earlier stages, each with its greedy version. The "
        "archive keeps one of several that cannot be told apart, so its hypervolume may be smaller than a rule's."
    )
    return Table("What each rule finds", caption, header, rows)


def _choice(folder: Path, data: dict[str, Any]) -> Choice:
    objectives = tuple(map(str, data["objectives"]))
    mark = "line" if len(objectives) > _FEW else "mark"
    about = f"A {mark} is a policy: click it to see its returns, its preference, and the line that loads it."
    gaps = {k: ends(each["low"], each["high"]) for k, each in certificate.read(folder).items()}
    points = without_rounding(np.array([point["returns"] for point in data["archive"]], dtype=np.float64))
    cards = tuple(
        _card(folder, k, point | {"returns": points[k], "gap": gaps.get(k)}, objectives)
        for k, point in enumerate(data["archive"])
    )
    asked = data["asked"]
    if "points" not in asked or len(objectives) > _FEW:
        return Choice(about, _maps(points, objectives), cards)
    about += " On the last map a mark is a preference: it leads to the archived policy that serves it best."
    p, worth = (np.array(asked[name], dtype=np.float64) for name in ("preferences", "points"))
    return Choice(about, (*_maps(points, objectives), _preference_map(p, worth, points, objectives)), cards)


def _preference_map(p: Values, worth: Values, points: Values, names: tuple[str, ...]) -> Panel:
    """Where preferences are, each with the archived point that serves it best.

    Of three objectives the simplex as a triangle; of two what the network is worth, pᵀJ, over the first number of p.
    """
    best = tuple(int(k) for k in (p @ points.T).argmax(axis=1))
    if len(names) == 2:
        value = (p * worth).sum(axis=1)
        low, high = value.min(), value.max()
        places = zip(p[:, 0], _scaled(value, low, high), strict=True)
        axes = ((f"preference for {names[0]}", "0", "1"), ("value pᵀJ", number(float(low), 3), number(float(high), 3)))
    else:
        places = [(x + z / 2, z) for _, x, z in p]
        axes = ((f"preference: {names[0]} left, {names[1]} right", "", ""), (f"{names[2]} at the top", "", ""))
    return Panel(*axes, tuple((_at(0.05 + 0.9 * x, 0.05 + 0.9 * y),) for x, y in places), best)


def _maps(points: Float[np.ndarray, "A M"], objectives: tuple[str, ...]) -> tuple[Panel, ...]:
    """One for each pair of objectives, or one with a line for each policy."""
    low, high = points.min(axis=0), points.max(axis=0)
    place = 0.05 + 0.9 * _scaled(points, low, high)
    if len(objectives) > _FEW:
        lines = tuple(tuple(_at(k / (len(row) - 1), up) for k, up in enumerate(row)) for row in place)
        return (Panel((" · ".join(objectives), "", ""), ("least to most of each", "", ""), lines),)
    named = [(name, number(float(a), 3), number(float(b), 3)) for name, a, b in zip(objectives, low, high, strict=True)]
    return tuple(
        Panel(named[i], named[j], tuple((_at(row[i], row[j]),) for row in place))
        for i, j in figures.pairs(len(objectives))
    )


def _at(across: float, up: float) -> tuple[float, float]:
    return round(_LEFT + (_RIGHT - _LEFT) * float(across), 1), round(_BOTTOM - (_BOTTOM - _TOP) * float(up), 1)


def _card(folder: Path, k: int, point: dict[str, Any], objectives: tuple[str, ...]) -> Card:
    intervals = np.array(point["interval"] or [(None, None)] * len(objectives), dtype=np.float64)
    values = [with_interval(*each) for each in zip(point["returns"], intervals, strict=True)]
    facts = list(zip(objectives, values, strict=True))
    facts += [("preference p", _vector(point["preference"]))]
    if point["rule"] != CONDITIONED:
        facts += [("weights λ", _vector(point["weights"])), ("rule and trial", f"{point['rule']}, {point['trial']}")]
    facts += [("stationarity gap", point["gap"])] if point["gap"] else []
    watch = f"\n$ {playing(folder, point, k)}" if point["interval"] else ""
    return Card(f"Point {k}", tuple(facts), f"policy = {loading(folder, point, k)}{watch}")


def loading(folder: Path, point: dict[str, Any], k: int) -> str:
    """The line of Python that loads the policy of point k: a trial, or one network at a preference."""
    if point["rule"] != CONDITIONED:
        return f"moac.load({str(folder)!r}, trial={k})"
    return f"moac.load({str(folder)!r}).at([{', '.join(_exactly(point['preference']))}])"


def playing(folder: Path, point: dict[str, Any], k: int) -> str:
    """The command that shows episodes of point k."""
    watch = problems.typed("watch", folder)
    if point["rule"] != CONDITIONED:
        return f"{watch} --trial {k}"
    return f"{watch} --preference {' '.join(_exactly(point['preference']))}"


def _exactly(p: Any) -> list[str]:
    """Numbers of a preference, so that they still sum to 1."""
    return [f"{value:.8g}" for value in p]


def _figures(folder: Path, data: dict[str, Any]) -> tuple[Figure, ...]:
    return (
        Figure.of_file(
            "What was found",
            folder / "figures" / "fronts.svg",
            _caption(data),
            f"Returns of {', '.join(map(str, data['objectives']))} of all policies found.",
        ),
        Figure.of_file(
            "Over environment steps",
            folder / "figures" / "over-steps.svg",
            "Of all policies that a rule's trials had found by then, or of one network as it was then; steps are those "
            "of all trials of the rule together.",
            "Line charts of hypervolume and IGD+ over environment steps, one line for each rule.",
        ),
    )


def _caption(data: dict[str, Any]) -> str:
    """The marks, or from four objectives on the lines, that the drawing of what was found has."""
    exact = _hull(data["numbers"]) is not None
    if len(data["objectives"]) > _FEW:
        others = ", and the exact hull" if exact else ""
        return f"A line is a policy: all policies, those of the archive{others}, by the colours of the legend."
    intervals = "" if data["returns_kind"] == "exact" else " and their intervals"
    beside = ", beside the exact front (crosses) and its hull (stars)" if exact else ""
    return f"Every policy, those of the archive with a ring{intervals}{beside}."


def _hull(numbers: dict[str, Any]) -> str | None:
    """How many points of the exact hull are found; None where it is not known."""
    return f"{numbers['hull_found']} of {numbers['hull_points']}" if "hull_points" in numbers else None


def _vector(values: Any) -> str | None:
    return None if values is None else ", ".join(number(float(value), 3) for value in values)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{number(100 * value, 3)} %"
