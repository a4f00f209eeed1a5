"""Users to train, validation and test by a hash of their ids: the same user falls into the same split everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

SPLITS = ("train", "validation", "test")
"""A user's split is an index into these."""
SHARES = (0.8, 0.1, 0.1)


def of_users(ids: Any, seed: int, shares: tuple[float, float, float]) -> Int[np.ndarray, " U"]:
    """0, 1 or 2 for each id: where SplitMix64(id, seed) / 2⁶⁴ falls among the shares (Steele et al., 2014)."""
    check(seed, shares)
    edges = np.cumsum(shares)[:-1]
    return np.searchsorted(edges, _uniform(np.asarray(ids), seed), side="right").astype(np.int8)


def folds(ids: Any, seed: int, count: int) -> Int[np.ndarray, " U"]:
    """0 … count − 1 for each id, by the same hash of other seeds: a fold says nothing of the split."""
    return (_uniform(np.asarray(ids), seed + 2**32) * count).astype(np.int8)


def check(seed: int, shares: tuple[float, float, float]) -> None:
    """Refuse shares that are none."""
    if len(shares) != len(SPLITS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9 or shares[0] <= 0:
        raise ValueError(f"`shares` must be three that sum to 1, the first positive, got {tuple(shares)}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"`split_seed` must be in [0, 2^32), got {seed}.")


def _uniform(ids: Any, seed: int) -> Any:
    """SplitMix64's output in [0, 1)."""
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) / 2.0**64
