"""What a log's columns mean, as data that `moac.logs.building` is handed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

WINDOW = 20
"""A state holds so many items that were viewed before."""
RECENT = 5
"""And the responses to so many of them, beside the mean of all."""
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


@dataclass(frozen=True)
class Signal:
    """An objective: its reward is sign × column / unit."""

    name: str  # of the objective
    column: str  # of the log
    sign: int = 1  # −1 where the signal is a cost
    unit: float = 1  # what counts as one


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
    propensity: str | None = None  # the column with the probability of what was shown; None where it is not known
    named: bool = False  # user and item are numbers of names, which the tables of users and items hold


@dataclass(frozen=True)
class Columns:
    """Which columns of a log of one's own mean what; an expression is SQL over its columns."""

    user: str
    item: str
    time: str
    signals: tuple[tuple[str, str, int], ...]  # name, expression and sign of each
    context: tuple[tuple[str, str], ...] = ()  # name and expression of each
    propensity: str | None = None  # the column with the probability of what was shown


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
    own: Columns | None = None  # of a log of one's own, which `moac.logs.own` turns into files with a schema
    context_values: tuple[tuple[str, ...], ...] = ()  # what the codes of each column of the context stand for

    @property
    def tables(self) -> tuple[tuple[Path, Table], ...]:
        """Every file with its table."""
        schema = self.schema
        users = () if self.users is None or schema.users is None else ((self.users, schema.users),)
        items = ((path, table) for paths, table in zip(self.items, schema.items, strict=True) for path in paths)
        return (*users, *items, *((path, schema.log) for path in (*self.standard, *self.random)))
