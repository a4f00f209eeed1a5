"""Preference vectors on the simplex: drawn, on a grid, or given."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.weighting import SMALLEST

_STREAM = 0x70726566
"""Sets the draws of preferences apart from all others of a seed."""
_OFF = 1e-6
"""How far from 1 the sum of given numbers may be."""

Vectors = Float[np.ndarray, "N M"]


def random(count: int, num_objectives: int, seed: int) -> Vectors:
    """The M vertices, the centre, then draws from Dirichlet(1, …, 1); the first `count` of them."""
    M = num_objectives
    generator = np.random.default_rng([_STREAM, seed])
    drawn = generator.dirichlet(np.ones(M), max(count - M - 1, 0))
    return clipped(np.concatenate([np.eye(M), np.full((1, M), 1 / M), drawn])[:count])


def grid(count: int, num_objectives: int) -> Vectors:
    """All p with multiples of 1/k, for the largest k that gives at most `count`: C(k + M − 1, M − 1) points."""
    M, k = num_objectives, 1
    while M > 1 and math.comb(k + M, M - 1) <= count:
        k += 1
    if math.comb(k + M - 1, M - 1) > count:
        raise ValueError(f"`preferences` must be at least {M} on a grid, one per objective, got {count}.")
    return clipped(np.array(list(_compositions(k, M)), dtype=np.float64) / k)


def given(text: str, num_objectives: int) -> Vectors:
    """From `0.2,0.8;0.5,0.5`, or from a file with one vector on each line."""
    source = Path(text).read_text(encoding="utf-8") if os.path.isfile(text) else text
    lines = [line.strip() for line in source.replace(";", "\n").splitlines() if line.strip()]
    if not lines:
        raise ValueError("`given` must hold at least one preference vector, got none.")
    return clipped(np.array([_vector(line, num_objectives) for line in lines]))


def clipped(vectors: Any) -> Vectors:
    """No number below `weighting.SMALLEST`, which is what the rules count, and sums of 1."""
    p = np.maximum(np.asarray(vectors, dtype=np.float64), SMALLEST)
    return p / p.sum(axis=1, keepdims=True)


def as_tuples(vectors: Vectors) -> tuple[tuple[float, ...], ...]:
    """As a configuration holds them."""
    return tuple(tuple(map(float, p)) for p in vectors)


def _compositions(total: int, parts: int) -> Sequence[tuple[int, ...]]:
    """All ways to write `total` as an ordered sum of `parts` whole numbers."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total, -1, -1) for rest in _compositions(total - first, parts - 1)]


def _vector(line: str, num_objectives: int) -> list[float]:
    right = f"{num_objectives} numbers of at least 0 that sum to 1, such as {_example(num_objectives)}"
    try:
        values = [float(part) for part in line.split(",")]
    except ValueError:
        raise ValueError(f"`given` must be a file, or vectors of {right}, got {line!r}.") from None
    total = sum(values)
    if len(values) != num_objectives or not all(v >= 0 for v in values) or not abs(total - 1) <= _OFF:
        raise ValueError(f"each vector of `given` must be {right}, got {line!r}.")
    return values


def _example(num_objectives: int) -> str:
    return ",".join([*["0"] * (num_objectives - 1), "1"])
