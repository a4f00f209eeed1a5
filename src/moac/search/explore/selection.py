"""Which of many policies make the archive: those that none dominates, each place once.

Exact values. A point is dropped if another is at least as good in every objective and better in one. Going by their
sums, each objective in units of its range, a point is also dropped if one with a larger sum is closer than `SAME` of
the range in every objective, or at least as good up to `SLIGHT`: it would gain next to nothing.

Estimated values, each with a 95 % interval. A point is dropped only if another is at least as good in every objective,
and better in one, with its worse ends against the other's better ends: what the intervals leave open is kept. Points
whose intervals overlap in every objective cannot be told apart: they are merged to the one with the largest sum of
lower ends, in the same units, which is the one that the data support best. More episodes, or users, separate more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from moac.momdp import indicators
from moac.search.archive import Archive

SAME = 5e-3
"""Exact points closer than this share of the range, in every objective, are one."""

SLIGHT = 1e-3
"""A gain of less than this share of the range, in no objective more, is none."""

Points = Float[np.ndarray, "N M"]


def select(found: Archive) -> Int[np.ndarray, " A"]:
    """Indices of the points that make the archive, in lexicographic order of their values, best first."""
    known = np.flatnonzero(np.isfinite(found.points).all(axis=1))
    if not len(known):
        raise ValueError("no policy has a finite value in every objective: nothing to archive. Try smaller step sizes.")
    points, low, high = (array[known] for array in (found.points, found.low, found.high))
    unit = span(points)
    if found.kind == "exact":
        alike = _near(points, SAME * unit) | _no_gain(points, SLIGHT * unit)
        kept = _merged(np.flatnonzero(indicators.non_dominated(points)), points / unit, alike)
    else:
        kept = _merged(np.flatnonzero(~surely_dominated(low, high)), low / unit, overlapping(low, high))
    order = np.lexsort(-points[kept].T[::-1])
    return known[np.array(kept)[order]]


def surely_dominated(low: Points, high: Points) -> Bool[np.ndarray, " N"]:
    """Where another point's lower ends are at least the upper ends, and above in one objective."""
    better = (low[:, None] >= high[None]).all(axis=2) & (low[:, None] > high[None]).any(axis=2)
    return np.asarray(better.any(axis=0))


def overlapping(low: Points, high: Points) -> Bool[np.ndarray, "N N"]:
    """Pairs whose intervals meet in every objective."""
    return np.asarray(((low[:, None] <= high[None]) & (low[None] <= high[:, None])).all(axis=2))


def span(points: Points) -> Float[np.ndarray, " M"]:
    """The range of each objective; where that is nothing, the size of its values, or 1."""
    width, size = np.ptp(points, axis=0), np.abs(points).max(axis=0)
    return np.where(width > 0, width, np.where(size > 0, size, 1.0))


def _near(points: Points, reach: Float[np.ndarray, " M"]) -> Bool[np.ndarray, "N N"]:
    return np.asarray((np.abs(points[:, None] - points[None]) <= reach).all(axis=2))


def _no_gain(points: Points, reach: Float[np.ndarray, " M"]) -> Bool[np.ndarray, "N N"]:
    """[k, j]: k is nowhere better than j, but for a little."""
    return np.asarray((points[:, None] - points[None] <= reach).all(axis=2))


def _merged(candidates: Any, scaled: Points, alike: Bool[np.ndarray, "N N"]) -> list[int]:
    """Candidates in falling order of their sums, without those that are like one kept before, [k, it]."""
    kept: list[int] = []
    for k in candidates[np.argsort(-scaled[candidates].sum(axis=1), kind="stable")]:
        if not alike[k, kept].any():
            kept.append(int(k))
    return kept
