"""Archives of given values, without policies."""

import numpy as np

from moac.search.archive import Archive


def archive(points, half=0.0, kind="exact", p=None):
    """Points with intervals of half that width; `p` are their preferences."""
    points = np.asarray(points, dtype=float)
    half = np.broadcast_to(half, points.shape)
    p = np.full(points.shape, np.nan) if p is None else np.asarray(p, dtype=float)
    return Archive(points, points - half, points + half, p, p, ("r",) * len(points), np.arange(len(points)), kind)
