"""What explorations and peers found, as claims, tables and figures. Every verdict is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import statistics
from moac.files import Arrays
from moac.momdp import indicators
from moac.report.numbers import Value
from moac.report.page import Claim, Table
from moac.search.measures import BELOW, REACH, Exact
from moac_studies import compare
from moac_studies.fronts import figures, peers
from moac_studies.fronts.measure import Explored
from moac_studies.studies import Findings

OURS, MINUTE = "moac explore", 60.0
STOCHASTIC, NOISY = "resource-gathering-v0", 0.05
"""Where a peer's points are means of episodes, and what counts as found there."""


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """One seed of one method: after each of L moments the CPU seconds, steps, volume and hull points found."""

    cpu: Float[np.ndarray, " L"]
    steps: Float[np.ndarray, " L"]
    volume: Float[np.ndarray, " L"]
    hull: Float[np.ndarray, " L"]

    def at(self, seconds: float) -> int | None:
        """The last moment within so many CPU seconds; a tenth more counts as within."""
        within = np.flatnonzero(self.cpu <= 1.1 * seconds)
        return int(within[-1]) if len(within) else None


Curves = Mapping[str, list[Curve]]


def findings(
    tables: Mapping[str, Any], found: Mapping[str, Explored], whole: Mapping[str, Explored], seconds: float
) -> Findings:
    """Problem by problem.

    Args:
        tables: of the problems.
        found: explorations of about as many CPU seconds as the peers had.
        whole: explorations of the default length.
        seconds: at which all are compared.
    """
    curves = {name: _curves(tables[name], found[name]) for name in tables}
    claims = [_all_hull(name, own, found[name].compiling, tables[name]) for name, own in whole.items()]
    claims += [_above(name, curves[name], seconds) for name in tables]
    listed = [_table(name, tables[name], found[name], curves[name], seconds) for name in tables]
    return Findings(tuple(claims), tuple(listed), (figures.volumes(curves), figures.hulls(curves)))


def _curves(table: Any, own: Explored) -> dict[str, list[Curve]]:
    """Of ours and of all peers, by one reference."""
    reference = _reference(table, own.known)
    found = {OURS: [_ours(run, own.known, reference) for run in own.runs]}
    reach = NOISY if table["env"] == STOCHASTIC else REACH
    for method, seeds in peers.of(table["env"], table["discount"]).items():
        found[method] = [_theirs(seen, own.known, reference, reach) for seen in seeds]
    return found


def _reference(table: Any, known: Exact | None) -> Float[np.ndarray, " M"]:
    if known is None:
        return np.array(table["reference"])
    return known.front.min(axis=0) - BELOW * known.unit


def _ours(run: Arrays, known: Exact | None, reference: Any) -> Curve:
    points = [run[f"returns_{k}"] for k in range(len(run["steps"]))]
    return Curve(run["cpu"], run["steps"], *_measured(points, known, reference, REACH))


def _theirs(seen: list[peers.Seen], known: Exact | None, reference: Any, reach: float) -> Curve:
    cpu, steps = (np.array([getattr(one, name) for one in seen], float) for name in ("cpu", "steps"))
    return Curve(cpu, steps, *_measured([one.points for one in seen], known, reference, reach))


def _measured(points: list[Any], known: Exact | None, reference: Any, reach: float) -> tuple[Any, Any]:
    volume = np.array([indicators.hypervolume(each, reference) for each in points])
    hull = [np.nan if known is None else float((known.shortfalls(each) <= reach).sum()) for each in points]
    return volume, np.array(hull)


def _all_hull(name: str, own: Explored, compiling: float, table: Any) -> Claim:
    """All points of the hull within a minute, with what the first exploration of the problem took to compile."""
    total = 0 if own.known is None else len(own.known.hull)
    counts = [int(curve.hull[-1]) for curve in _curves(table, own)[OURS]]
    walls = [float(run["wall"][0]) + compiling for run in own.runs]
    return compare.claim(
        f"On {name} every point of the exact hull is found within a minute",
        f"{', '.join(map(str, counts))} of {total} points, in {', '.join(f'{wall:.0f}' for wall in walls)} s, "
        f"{compiling:.0f} of them to compile",
        [compare.known(count == total and wall <= MINUTE) for count, wall in zip(counts, walls, strict=True)],
        _title(name),
    )


def _above(name: str, curves: Curves, seconds: float) -> Claim:
    """The hypervolume at equal CPU time, against each peer, whose seeds are its own."""
    volumes = {method: [_at(curve, curve.volume, seconds) for curve in own] for method, own in curves.items()}
    ours = volumes.pop(OURS)
    differences = {method: compare.apart(ours, theirs) for method, theirs in volumes.items()}
    told = "; ".join(f"{method} {statistics.mean(volumes[method])}, less by {d}" for method, d in differences.items())
    return compare.claim(
        f"On {name} the hypervolume after {seconds:g} CPU seconds is above every peer's",
        f"{statistics.mean(ours)}; {told}.",
        map(compare.above, differences.values()),
        _title(name),
    )


def _at(curve: Curve, values: Any, seconds: float) -> float:
    """A value after so many seconds; 0 where nothing had been found."""
    k = curve.at(seconds)
    return 0.0 if k is None else float(values[k])


def _table(name: str, table: Any, own: Explored, curves: Curves, seconds: float) -> Table:
    """One row per method."""
    rows: list[tuple[Value, ...]] = []
    for method, seeds in curves.items():
        columns = [statistics.mean([_at(c, x, seconds) for c, x in ((c, getattr(c, key)) for c in seeds)])
                   for key in ("steps", "volume", "hull")]  # fmt: skip
        hull = "–" if own.known is None else str(columns[2])
        rows.append((method, len(seeds), f"{columns[0].value:.3g}", str(columns[1]), hull))
    if own.known is not None:
        whole = indicators.hypervolume(own.known.front, _reference(table, own.known))
        points = f"{len(own.known.hull)} of {len(own.known.front)}"
        rows.append(("exact front", None, None, f"{whole:.3g}", points))
    caption = (
        f"After {seconds:g} CPU seconds of training: means over seeds with 95 % intervals; hull points within 1 % of "
        f"the range ({100 * NOISY:g} % for peers on resource-gathering). Compiling took ours {own.compiling:.0f} s "
        f"more, once. Peers: {peers.where_from()}."
    )
    return Table(_title(name), caption, ("method", "seeds", "steps", "hypervolume", "hull points"), tuple(rows))


def _title(name: str) -> str:
    return f"{name}: what is found"
