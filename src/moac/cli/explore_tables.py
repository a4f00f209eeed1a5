"""What `moac explore` prints: the archive, its rules side by side, and a few sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from moac.search.explore import Explored

_LISTED, _NARROW = 25, 4
"""So many rows are printed, and vectors of so many numbers; the report has all."""
Shown = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, header and rows."""


def archive(found: Explored) -> Shown:
    """A row for each archived policy, up to a few."""
    own, exact = found.archive, found.archive.kind == "exact"
    count = "1 policy" if len(own) == 1 else f"{len(own)} policies"
    title = f"{found.plan.env}: {count} that none dominates, of {len(found.candidates)}; values: {own.kind}"
    vectors = {"p": own.preferences, "λ": own.weights} if len(found.objectives) <= _NARROW else {}
    header = ("trial", *found.objectives, *vectors, "rule")
    rows: list[tuple[str, ...]] = []
    for k in range(min(len(own), _LISTED)):
        half = (own.high[k] - own.low[k]) / 2
        values = [f"{v + 0.0:.4f}" if exact else f"{v:.4g} ± {h:.2g}" for v, h in zip(own.points[k], half, strict=True)]
        rows.append((str(k), *values, *(_vector(each[k]) for each in vectors.values()), own.rules[k]))
    more = len(own) - len(rows)
    if more > 0:
        rows.append(("…", f"and {more} more", *[""] * (len(header) - 2)))
    return title, header, rows


def rules(found: Explored) -> Shown:
    """A row for each rule, and one for all."""
    header = (
        "",
        "policies",
        "archived",
        "hull points",
        "hypervolume",
        "IGD+",
        "p served by own",
        "by archive",
        "trapped",
    )
    rows = [_row(name, own) for name, own in found.by_rule.items()]
    total = found.numbers | {"policies": len(found.candidates), "archived": len(found.archive), "trapped": None}
    return "What each rule finds", header, [*rows, _row("all", total)] if len(rows) > 1 else rows


def sentences(found: Explored, seconds: float) -> list[str]:
    """The yardstick, what was missed, the traps, and the time."""
    numbers, lines = found.numbers, list[str]()
    if "hull_points" in numbers:
        missed = ", ".join(_vector(point) for point in numbers["hull_missed"])
        lines.append(
            f"{numbers['hull_found']} of {numbers['hull_points']} points of the exact hull found (within 1 % of the "
            f"range in every objective)" + (f"; missed: {missed}" if missed else "")
        )
    for rule, own in found.by_rule.items():
        steps = ", ".join(
            f"{100 * each['share']:.0f} % after entropy {each['entropy']:.2g}" for each in own["trapped_after"]
        )
        lines.append(f"trials of {rule} that earn nothing: {steps}")
    lines.append(f"hypervolume from ({_numbers(found.yardstick.reference)}), {found.yardstick.about}")
    lines.append(f"{numbers['env_steps']:,} environment steps, {seconds:.1f} s")
    return lines


def _row(name: str, own: dict[str, Any]) -> tuple[str, ...]:
    hull = f"{own['hull_found']} of {own['hull_points']}" if "hull_points" in own else "–"
    served = own["preferences_served"]
    volume, distance = f"{own['hypervolume']:.4g}", f"{own['igd_plus']:.2e}"
    shares = (_share(served["own"]), _share(served["archive"]), _share(own["trapped"]))
    return (name, str(own["policies"]), str(own["archived"]), hull, volume, distance, *shares)


def _share(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{100 * value:.0f} %"


def _vector(values: Any) -> str:
    return "–" if np.isnan(values).any() else f"({_numbers(values)})"


def _numbers(values: Any) -> str:
    return ", ".join(f"{value + 0.0:.3g}" for value in values)
