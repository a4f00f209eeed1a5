"""What a log's columns mean, as data that `moac.logs.build` is handed, and which of its users are held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Int

SPLITS = ("train", "validation", "test")
"""A user's split is an index into these."""
SHARES = (0.8, 0.1, 0.1)
WINDOW = 20
"""A state holds so many items that were viewed before."""
STEPS = 127
"""Tables of features hold int8: numbers in [−1, 1] in steps of 1/127."""
TYPES = {
    "TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1), "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1), "DOUBLE": (-1e300, 1e300),
}  # fmt: skip
"""Types of numbers, as DuckDB names them, and what each may hold; the only other type is VARCHAR."""


def column(name: str) -> str:
    """A column of SQL, whatever its name."""
    return '"' + name.replace('"', '""') + '"'


@final
@dataclass(frozen=True)
class Table:
    """The columns of a kind of CSV file."""

    name: str  # what messages and the manifest call it
    columns: Mapping[str, str]  # the type of each column; other columns of a file are not read
    # the least and the largest value, where a column may not hold all that its type can
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    required: tuple[str, ...] = ()  # columns that have no gap
    # every column is a whole number without a gap, and nothing is quoted. Such files are read faster.
    digits_only: bool = False

    def range_of(self, column: str) -> tuple[float, float]:
        """The least and the largest number that a column may hold."""
        return self.ranges.get(column, TYPES[self.columns[column]])

    def is_required(self, column: str) -> bool:
        """Whether a column has no gap."""
        return self.digits_only or column in self.required


@final
@dataclass(frozen=True)
class Signal:
    """An objective: its reward is sign × column / unit."""

    name: str  # of the objective
    column: str  # of the log
    sign: int = 1  # −1 where the signal is a cost
    unit: float = 1  # what counts as one


@final
@dataclass(frozen=True)
class Feature:
    """A column of numbers in [−1, 1] that states hold of a user or an item."""

    name: str  # of the feature
    expression: str  # SQL over the columns of its table
    # `scaled` is in [−1, 1] already; `number` is scaled by what train users have; `category` is one-hot where train
    # users have few values, and else a short vector by hash
    kind: Literal["scaled", "number", "category"]
    width: int = 4  # of that vector
    one_hot: bool = True  # False is a vector by hash whatever the number of values


@final
@dataclass(frozen=True)
class Schema:
    """What the columns of a log mean."""

    log: Table  # its table
    # user, item, time: the columns that say who was shown what and when
    user: str
    item: str
    time: str
    signals: tuple[Signal, ...]  # what is maximised, in order
    # SQL expression and number of codes of each part of the context; another code is unknown
    context: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    users: Table | None = None  # the table of user features; None is none
    user_features: tuple[Feature, ...] = ()  # numbers of a user
    items: tuple[Table, ...] = ()  # tables of item features, joined by the item
    item_features: tuple[Feature, ...] = ()  # numbers of an item
    day: str | None = None  # SQL expression of a row's day, in days since 1970; None is not counted
    window: int = WINDOW  # how many viewed items a state holds


@final
@dataclass(frozen=True)
class LogFiles:
    """The files that a dataset is built from."""

    name: str  # of the data
    schema: Schema  # of the files
    standard: tuple[Path, ...]  # logs of the policy that was in use; empty where there is only random exposure
    random: tuple[Path, ...] = ()  # logs of uniformly random exposure
    users: Path | None = None  # user features; None where the schema has none
    items: tuple[tuple[Path, ...], ...] = ()  # files of each of the schema's item tables
    absent: tuple[str, ...] = ()  # names of files that usually belong to the data and are not there
    warnings: tuple[str, ...] = ()  # what a reader of results should know

    @property
    def tables(self) -> tuple[tuple[Path, Table], ...]:
        """Every file with its table."""
        schema = self.schema
        users = () if self.users is None or schema.users is None else ((self.users, schema.users),)
        items = ((path, table) for paths, table in zip(self.items, schema.items, strict=True) for path in paths)
        return (*users, *items, *((path, schema.log) for path in (*self.standard, *self.random)))


def split_users(ids: Any, seed: int, shares: tuple[float, float, float]) -> Int[np.ndarray, " U"]:
    """0, 1 or 2 for each id, the same wherever the user is: where its hash falls among the shares."""
    check_split(seed, shares)
    edges = np.cumsum(shares)[:-1]
    return np.searchsorted(edges, _uniform(np.asarray(ids), seed), side="right").astype(np.int8)


def fold_users(ids: Any, seed: int, count: int) -> Int[np.ndarray, " U"]:
    """0 … count − 1 for each id, by the same hash of other seeds: a fold says nothing of the split."""
    return (_uniform(np.asarray(ids), seed + 2**32) * count).astype(np.int8)


def check_split(seed: int, shares: tuple[float, float, float]) -> None:
    """Refuse shares that are none."""
    if len(shares) != len(SPLITS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9 or shares[0] <= 0:
        raise ValueError(f"`shares` must be three that sum to 1, the first positive, got {tuple(shares)}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"`split_seed` must be in [0, 2^32), got {seed}.")


def _uniform(ids: Any, seed: int) -> Any:
    """SplitMix64(id, seed) / 2⁶⁴ (Steele et al., 2014)."""
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) / 2.0**64
