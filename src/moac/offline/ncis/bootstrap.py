"""Resampling users: draws of sums as a matrix product, and what follows from draws of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

_BLOCK = 4_000_000
"""Numbers of the matrix of draws that are in memory at once: 32 MB."""


def resampled(arrays: Sequence[Any], draws: int, seed: int) -> list[Any]:
    """Σ_u n_u x_u [draws, …] for each array of per-user sums x [U, …], with the same n for all of them.

    n is multinomial, as of U users drawn with replacement: the textbook's bootstrap. (Poisson weights need no common U,
    but leave some draws of few users empty; here shards are merged first.) Users are whole: the correlation within a
    user's rows is in the spread. Numerators and denominators are drawn alike, so that a ratio is computed anew in
    each draw. Draw b depends on the seed, b and U alone.
    """
    size = len(arrays[0])
    flat = [np.reshape(array, (size, -1)) for array in arrays]
    found = [np.empty((draws, array.shape[1])) for array in flat]
    rng = np.random.default_rng([seed, 0])
    n = np.empty((min(draws, max(1, _BLOCK // size)), size))
    for begin in range(0, draws, len(n)):
        n = n[: draws - begin]
        for row in n:
            row[:] = np.bincount(rng.integers(size, size=size), minlength=size)
        for out, array in zip(found, flat, strict=True):
            np.matmul(n, array, out=out[begin : begin + len(n)])
    return [out.reshape(draws, *np.shape(array)[1:]) for out, array in zip(found, arrays, strict=True)]


def seed_shares(num_seeds: int, draws: int, seed: int) -> Float[np.ndarray, "B R"]:
    """Share of each training seed in each draw, for seeds drawn with replacement."""
    chosen = np.random.default_rng([seed, 1, num_seeds]).integers(num_seeds, size=(draws, num_seeds))
    return (chosen[:, :, None] == np.arange(num_seeds)).mean(axis=1)


def interval(draws: Float[np.ndarray, "B ..."], level: float) -> Float[np.ndarray, "... 2"]:
    """Percentile interval of each entry; NaN where any draw is."""
    tail = (1 - level) / 2
    return np.moveaxis(np.quantile(draws, [tail, 1 - tail], axis=0), 0, -1)


def p_value(draws: Float[np.ndarray, "B ..."]) -> Float[np.ndarray, "..."]:
    """Two-sided: twice the smaller share of draws of a difference on either side of 0; 1 where a draw is undefined.

    p = min(1, 2 min(1 + #{d ≤ 0}, 1 + #{d ≥ 0}) / (1 + B)),  at least 2/(1 + B).
    """
    below, above = ((draws <= 0).sum(axis=0), (draws >= 0).sum(axis=0))
    found = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + len(draws)))
    return np.where(np.isnan(draws).any(axis=0), 1.0, found)


def holm(p: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
    """Adjusted p-values: below α together with a chance of at most α of any false one among the M (Holm 1979).

    In ascending order, p̃_(k) = max_{j ≤ k} min(1, (M − j + 1) p_(j)).
    """
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
