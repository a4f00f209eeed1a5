"""Slopes on log–log axes, with intervals over trials."""

from __future__ import annotations

from typing import Any

import numpy as np

from moac.statistics import Mean

_RESAMPLES = 1000


def slope(x: Any, values: Any, seed: int = 0) -> Mean:
    """The slope of log mean(values) against log x, with its 95 % bootstrap interval over trials.

    Args:
        x: [L] positive.
        values: [K, L], positive on average; trials are resampled as a whole.
        seed: of the resampling.
    """
    table = np.asarray(values, dtype=np.float64)
    picked = np.random.default_rng(seed).integers(0, len(table), (_RESAMPLES, len(table)))
    resampled = _slopes(np.log(x), np.log(np.maximum(table[picked].mean(axis=1), np.finfo(float).tiny)))
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Mean(float(_slopes(np.log(x), np.log(table.mean(axis=0)[None]))[0]), float(low), float(high))


def _slopes(x: Any, y: Any) -> Any:
    """Least squares of each row of y on x."""
    centred = x - x.mean()
    return (y - y.mean(axis=1, keepdims=True)) @ centred / (centred @ centred)
