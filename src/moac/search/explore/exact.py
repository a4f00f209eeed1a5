"""What can be reached at all, where a model says so exactly: the yardstick of an exploration."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import momdp
from moac.config import Setting
from moac.momdp import FiniteMOMDP, indicators
from moac.momdp.support import Support
from moac.search.explore.selection import span

_FEW = 4
"""With more objectives the support takes minutes."""
REACH = 0.01
"""Within this share of the front's range, in every objective, a point of the hull is found."""


@final
@dataclass(frozen=True, eq=False)
class Exact:
    """The exact front and its hull.

    Attributes:
        front: [F, M] values of deterministic policies that none dominates; the hull alone where they are not known.
        hull: [H, M] those that no mixture dominates.
        support: the largest pᵀJ for every p; None with too many objectives.
    """

    front: Float[np.ndarray, "F M"]
    hull: Float[np.ndarray, "H M"]
    support: Support | None

    @property
    def unit(self) -> Float[np.ndarray, " M"]:
        """The front's range in each objective."""
        return span(self.front)

    def best(self, preferences: Any) -> Float[np.ndarray, " N"]:
        """max_π pᵀJ(π) of each p."""
        points = self.hull if self.support is None else self.support.points
        return (preferences @ points.T).max(axis=1)

    def shortfalls(self, points: Any) -> Float[np.ndarray, " H"]:
        """Of each point of the hull: the least, over `points`, of the largest |Jⁱ − hⁱ| in units of the range."""
        distance = np.abs(np.asarray(points)[:, None] - self.hull) / self.unit
        return distance.max(axis=2).min(axis=0)

    def below_hull(self, points: Any) -> Float[np.ndarray, " N"]:
        """How far each point is below the hull, min over λ of h(λ) − λᵀJ; NaN where the support is not known."""
        return np.full(len(points), np.nan) if self.support is None else self.support.regret(points)


def of(model: FiniteMOMDP | None, setting: Setting) -> Exact | None:
    """What is known exactly of a model; None where there is none, or where it is too large."""
    if model is None:
        return None
    support = front = None
    if model.num_objectives <= _FEW:
        with contextlib.suppress(ValueError):
            support = momdp.support_of(model, setting)
    with contextlib.suppress(ValueError):
        front = momdp.pareto_front(model, setting)
    if front is not None:
        return Exact(front.points, front.points[front.hull], support)
    if support is None:
        return None
    corners = np.unique(support.points.round(9), axis=0)
    hull = corners[indicators.non_dominated(corners)]
    return Exact(hull, hull, support)
