"""Features as numbers in [−1, 1]: what is fitted is fitted on train users alone.

A category with few values is one-hot, one with many a short vector by hash, fixed for all data. A value that train
users do not have is unknown: zeros. Tables hold int8, in steps of 1/127.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

STEPS = 127
ONE_HOT_UP_TO = 16
_SPREAD = 3.0
"""A number is clipped at so many standard deviations."""


@final
@dataclass(frozen=True)
class Category:
    """A column of categories.

    Attributes:
        name: of the column.
        values: those of train users, sorted; unknown is none of them.
        width: of the vector by hash; 0 is one-hot.
    """

    name: str
    values: tuple[str, ...]
    width: int

    @property
    def names(self) -> tuple[str, ...]:
        """One per number."""
        if self.width:
            return tuple(f"{self.name}:{k}" for k in range(self.width))
        return tuple(f"{self.name}={value}" for value in self.values)

    @property
    def vectors(self) -> Float[np.ndarray, "V w"]:
        """Row 0 is unknown; row k + 1 is the k-th value."""
        known = np.eye(len(self.values)) if not self.width else self._hashed
        return np.concatenate([np.zeros((1, known.shape[1])), known])

    @property
    def _hashed(self) -> Any:
        """Each number uniform in [−1, 1], by SHA-256 of column and value."""
        digests = [hashlib.sha256(f"{self.name}={value}".encode()).digest() for value in self.values]
        words = [np.frombuffer(digest, dtype="<u4")[: self.width] for digest in digests]
        return np.array(words, dtype=np.float64).reshape(-1, self.width) / 2**31 - 1

    def codes(self, column: Iterable[str | None]) -> Int[np.ndarray, " n"]:
        """1, 2, … for the known values, 0 for all else."""
        known = {value: k for k, value in enumerate(self.values, start=1)}
        return np.array([known.get(value, 0) if value is not None else 0 for value in column], dtype=np.int32)


@final
@dataclass(frozen=True)
class Number:
    """A column of numbers x ≥ 0, as (log(1 + x) − mean) / 3 standard deviations of train users; missing is 0."""

    name: str
    mean: float
    deviation: float

    @property
    def names(self) -> tuple[str, ...]:
        """One."""
        return (self.name,)

    def scaled(self, column: Any) -> Float[np.ndarray, " n"]:
        """In [−1, 1]."""
        x = np.log1p(np.maximum(column, 0))
        return np.nan_to_num(np.clip((x - self.mean) / (_SPREAD * self.deviation), -1, 1))


@final
@dataclass(frozen=True)
class Encoding:
    """How columns become numbers.

    Attributes:
        numbers: fitted scales.
        categories: fitted values.
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all numbers, in order."""
        return tuple(name for part in (*self.numbers, *self.categories) for name in part.names)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def category(name: str, values: Iterable[str | None], width: int, one_hot: bool = True) -> Category:
    """Fitted on a column: its values in order, one-hot where they are few and may be."""
    known = tuple(sorted({value for value in values if value is not None and value != ""}))
    return Category(name, known, 0 if one_hot and len(known) <= ONE_HOT_UP_TO else width)


def number(name: str, column: Any) -> Number:
    """Fitted on a column, NaN where missing."""
    x = np.log1p(np.maximum(column[~np.isnan(column)], 0))
    deviation = float(x.std()) if len(x) else 0.0
    return Number(name, float(x.mean()) if len(x) else 0.0, deviation or 1.0)


def quantised(columns: Sequence[Any]) -> Int[np.ndarray, "n d"]:
    """Columns [n] or [n, w] of numbers in [−1, 1] side by side, as int8."""
    wide = [column[:, None] if column.ndim == 1 else column for column in map(np.asarray, columns)]
    return np.rint(np.concatenate(wide, axis=1) * STEPS).astype(np.int8)
