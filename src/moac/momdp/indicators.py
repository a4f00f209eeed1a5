"""Quality of a set of points against a reference, for maximisation; computed by moocore."""

from __future__ import annotations

from typing import Any

import moocore
import numpy as np
from jaxtyping import Bool, Float

_FEW_OBJECTIVES, _FEW_POINTS, _DIRECTIONS = 4, 200, 2**16
"""Beyond both, an exact hypervolume takes too long: it is approximated along so many directions."""


def hypervolume(points: Any, reference: Any) -> float:
    """Volume dominated by the points above the reference: λ(⋃_p [reference, p]).

    Points that are not above the reference in every objective add nothing; no points have volume 0. Exact up to four
    objectives or 200 points; beyond, by a deterministic quadrature over directions, accurate to about 1e-3 of it.

    Args:
        points: [N, M].
        reference: [M].
    """
    corner = np.asarray(reference, dtype=np.float64)
    if corner.ndim != 1 or corner.size == 0 or not np.isfinite(corner).all():
        raise ValueError(f"`reference` must be a vector of M finite numbers, got {reference!r}.")
    values = _points("points", points, len(corner))
    if not len(values):
        return 0.0
    if len(corner) <= _FEW_OBJECTIVES or len(values) <= _FEW_POINTS:
        return float(moocore.hypervolume(values, ref=corner, maximise=True))
    above = values[(values > corner).all(axis=1)]
    return float(moocore.hv_approx(above, ref=corner, maximise=True, nsamples=_DIRECTIONS)) if len(above) else 0.0


def igd_plus(points: Any, front: Any) -> float:
    """Mean over the front's points z of the least d⁺(p, z) = ‖max(z − p, 0)‖ over `points` (Ishibuchi et al., 2015).

    Zero exactly when every point of the front is dominated by, or equal to, one of `points`.

    Args:
        points: [N, M], at least one.
        front: [F, M], at least one.
    """
    target = _points("front", front)
    values = _points("points", points, target.shape[1])
    for name, table in (("points", values), ("front", target)):
        if not len(table):
            raise ValueError(f"`{name}` must hold at least one point, got none.")
    return float(moocore.igd_plus(values, ref=target, maximise=True))


def non_dominated(points: Any) -> Bool[np.ndarray, " N"]:
    """Mask of the points that no other point dominates; of equal points all are kept.

    Args:
        points: [N, M].
    """
    return moocore.is_nondominated(_points("points", points), maximise=True, keep_weakly=True)


def _points(name: str, points: Any, num_objectives: int | None = None) -> Float[np.ndarray, "N M"]:
    """`points` as finite float64 [N, M]; an empty list is no points."""
    table = np.asarray(points, dtype=np.float64)
    if table.size == 0 and table.ndim == 1:
        table = table.reshape(0, num_objectives or 1)
    if table.ndim != 2 or table.shape[1] != (num_objectives or table.shape[1]) or table.shape[1] == 0:
        width = "M" if num_objectives is None else num_objectives
        raise ValueError(f"`{name}` must have shape [N, {width}], got {table.shape}.")
    for index in np.argwhere(~np.isfinite(table))[:1]:
        where = tuple(int(i) for i in index)
        raise ValueError(f"`{name}` must be finite, got {table[where]} at index {where}.")
    return table
