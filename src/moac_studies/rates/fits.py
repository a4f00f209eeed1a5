"""What a mean curve over trials looks like, such as its slope on log–log axes, with intervals over trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moac.statistics import Mean

_RESAMPLES = 1000


def bootstrapped(values: Any, statistic: Callable[[Any], Any], seed: int = 0) -> Mean:
    """A statistic of the mean over trials, with its 95 % bootstrap interval.

    Args:
        values: [K, ...]; trials are resampled as a whole.
        statistic: of means [R, ...], a number for each of R.
        seed: of the resampling.
    """
    table = np.asarray(values, dtype=np.float64)
    picked = np.random.default_rng(seed).integers(0, len(table), (_RESAMPLES, len(table)))
    low, high = np.quantile(statistic(table[picked].mean(axis=1)), (0.025, 0.975))
    return Mean(float(statistic(table.mean(axis=0)[None])[0]), float(low), float(high), len(table))


def slope(x: Any, values: Any, seed: int = 0) -> Mean:
    """The slope of log mean(values) against log x, for x [L] and values [K, L] that are positive on average."""
    return bootstrapped(values, lambda means: _slopes(np.log(x), logarithm(means)), seed)


def slope_difference(x: Any, a: Any, b: Any) -> Mean:
    """The slope of a [K, L] minus that of b [K, L], whose trials share their problems and seeds."""

    def statistic(means: Any) -> Any:
        return _slopes(np.log(x), logarithm(means[:, 0])) - _slopes(np.log(x), logarithm(means[:, 1]))

    return bootstrapped(np.stack([a, b], axis=1), statistic)


def logarithm(means: Any) -> Any:
    """Of means over resampled trials, some of which need not be positive."""
    return np.log(np.maximum(means, np.finfo(float).tiny))


def straightness(x: Any, y: Any) -> Any:
    """R² of the line through each row of y."""
    residual = y - y.mean(axis=1, keepdims=True) - np.outer(_slopes(x, y), x - x.mean())
    return 1 - (residual**2).sum(axis=1) / ((y - y.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)


def _slopes(x: Any, y: Any) -> Any:
    """Least squares of each row of y on x."""
    centred = x - x.mean()
    return (y - y.mean(axis=1, keepdims=True)) @ centred / (centred @ centred)
