"""How good an exploration is: volume and distance over steps, hull points, preferences served, zero traps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from moac.momdp import indicators
from moac.search.archive import Archive
from moac.search.explore.exact import REACH, Exact
from moac.search.explore.selection import span

BELOW = 0.1
"""The reference lies this share of the range below the worst, so that the ends of a front count too."""

_DIGITS = 3
"""Points that agree to so many digits, in units of the range, count as one."""

Points = Float[np.ndarray, "N M"]


@final
@dataclass(frozen=True, eq=False)
class Yardstick:
    """What points are measured by.

    Attributes:
        reference: of the hypervolume.
        about: where it comes from.
        front: the target of IGD+: the exact front, or the final archive.
        unit: [M] the range of each objective.
        worst: [M] the least of each objective on the front.
        exact: what is known exactly; None where nothing is.
    """

    reference: Float[np.ndarray, " M"]
    about: str
    front: Points
    unit: Float[np.ndarray, " M"]
    worst: Float[np.ndarray, " M"]
    exact: Exact | None

    @classmethod
    def of(cls, archive: Archive, exact: Exact | None, reference: Any = None) -> Yardstick:
        """By the exact front where it is known, else by the archive; a given reference is taken as it is."""
        front = archive.points if exact is None else exact.front
        unit, worst = span(front), front.min(axis=0)
        what = "the archive found" if exact is None else "the exact front"
        if reference is None:
            return cls(
                worst - BELOW * unit, f"a tenth of the range below the worst of {what}", front, unit, worst, exact
            )
        return cls(np.asarray(reference, dtype=np.float64), "as given", front, unit, worst, exact)

    def volume(self, points: Any) -> float:
        """Hypervolume."""
        return indicators.hypervolume(points, self.reference)

    def distance(self, points: Any) -> float:
        """IGD+, each objective in units of its range."""
        return indicators.igd_plus(points / self.unit, self.front / self.unit)


def over_steps(returns: Float[np.ndarray, "K L M"], yardstick: Yardstick) -> dict[str, Float[np.ndarray, " L"]]:
    """Hypervolume and IGD+ of all that K trials had found by each of L evaluations."""
    seen = np.zeros((0, returns.shape[2]))
    volume, distance = np.full(returns.shape[1], np.nan), np.full(returns.shape[1], np.nan)
    for k in range(returns.shape[1]):
        fresh = returns[:, k]
        seen = np.concatenate([seen, fresh[np.isfinite(fresh).all(axis=1)]])
        seen = seen[np.unique((seen / yardstick.unit).round(_DIGITS), axis=0, return_index=True)[1]]
        seen = seen[indicators.non_dominated(seen)]
        if len(seen):
            volume[k], distance[k] = yardstick.volume(seen), yardstick.distance(seen)
    return {"hypervolume": volume, "igd_plus": distance}


def trapped(points: Points, yardstick: Yardstick) -> Bool[np.ndarray, " N"]:
    """Where every objective earns nothing, up to 1 % of the range: 0, or the worst of the exact front or less.

    A point of the exact front is no trap, whatever it earns.
    """
    size = np.maximum(yardstick.unit, np.abs(yardstick.front).max(axis=0))
    nothing = np.abs(points) <= REACH * size
    if yardstick.exact is None:
        return np.asarray(nothing.all(axis=1))
    gap = np.abs(points[:, None] - yardstick.front) / yardstick.unit
    away = gap.max(axis=2).min(axis=1) > REACH
    return away & (nothing | (points <= yardstick.worst + REACH * yardstick.unit)).all(axis=1)


def served(found: Archive, archive: Archive, yardstick: Yardstick) -> dict[str, float]:
    """The share of preferences p within 1 % of the range of the best: by an own policy, and by the archive's best.

    Linear: pᵀJ against max_π pᵀJ(π), exact where it is known, else the archive's best. Chebyshev: max_i pᵢ(zⁱ − Jⁱ) in
    units of the range, z the best of each objective, against the archive's least.
    """
    own = found.picked(
        np.flatnonzero(np.isfinite(found.preferences).all(axis=1) & np.isfinite(found.points).all(axis=1))
    )
    if not len(own):
        return dict.fromkeys(("own", "archive", "chebyshev"), float("nan"))
    p, which = np.unique(own.preferences, axis=0, return_inverse=True)
    allowed, best_found = REACH * (p @ yardstick.unit), (p @ archive.points.T).max(axis=1)
    best = best_found if yardstick.exact is None else yardstick.exact.best(p)
    top = yardstick.front.max(axis=0)
    far = (own.preferences * (top - own.points) / yardstick.unit).max(axis=1)
    least = (p[:, None] * ((top - archive.points) / yardstick.unit)).max(axis=2).min(axis=1)
    short = _best_of(-(own.preferences * own.points).sum(axis=1), which)
    return {
        "own": float(np.mean(best + short <= allowed)),
        "archive": float(np.mean(best - best_found <= allowed)),
        "chebyshev": float(np.mean(_best_of(far, which) - least <= REACH)),
    }


def _best_of(values: Float[np.ndarray, " N"], which: Any) -> Float[np.ndarray, " P"]:
    """The least over the policies of each preference."""
    found = np.full(which.max() + 1, np.inf)
    np.minimum.at(found, which.ravel(), values)
    return found
