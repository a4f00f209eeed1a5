"""Features as numbers in [−1, 1]: what is fitted is fitted on train users alone.

A category with few values is one-hot, one with many a short vector by hash, fixed for all data. A value that train
users do not have is unknown: zeros. Tables hold int8, in steps of 1/127.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.logs.schema import STEPS, Feature

if TYPE_CHECKING:
    from moac.logs.engine import Connection

ONE_HOT_UP_TO = 16
_SPREAD = 3.0
"""A number is clipped at so many standard deviations."""
_BLOCK = 1 << 20


@final
@dataclass(frozen=True)
class Category:
    """A fitted column of categories.

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
    """A fitted column of numbers x ≥ 0: (log(1 + x) − mean) / 3 standard deviations of train users; missing is 0."""

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
class Scaled:
    """A column that is in [−1, 1] already; missing is 0."""

    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """One."""
        return (self.name,)


Encoder = Category | Number | Scaled


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


@final
@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of users or items.

    Attributes:
        table: [n, d] int8.
        encoders: of the features, in order.
        unknown: how many of the ids have no features.
    """

    table: Int[np.ndarray, "n d"]
    encoders: tuple[Encoder, ...]
    unknown: int

    @property
    def names(self) -> list[str]:
        """Of the d numbers."""
        return [name for encoder in self.encoders for name in encoder.names]

    @property
    def fitted(self) -> list[dict[str, Any]]:
        """What was fitted, as plain data."""
        return [asdict(encoder) for encoder in self.encoders]


class RepeatedError(ValueError):
    """An id has several rows of features."""

    def __init__(self, repeated: int) -> None:
        super().__init__(f"the features of {repeated} must be there once, got them again.")
        self.id = repeated


def encoded(
    connection: Connection, features: Sequence[Feature], tables: Sequence[str], train: str, ids: Any
) -> Encoded:
    """Fit the features of some tables and encode those of the given ids, block by block.

    Args:
        connection: with which tables are read.
        features: in order.
        tables: SQL, each with the ids in a column `id`; the first says which ids are known.
        train: a query for the ids that the encoders are fitted on.
        ids: [n] whole numbers.

    Raises:
        RepeatedError: where a table has several rows for an id.
    """
    joined = " ".join(f"LEFT JOIN {table} AS t{k} USING (id)" for k, table in enumerate(tables))
    fitted = [_fitted(connection, feature, f"FROM ({train}) {joined}") for feature in features]
    query = _query(connection, features, fitted, joined, "t0.id IS NOT NULL" if tables else "true")
    blocks, unknown = [np.zeros((0, sum(len(encoder.names) for encoder in fitted)), np.int8)], 0
    for begin in range(0, len(ids), _BLOCK):
        block = ids[begin : begin + _BLOCK]
        connection.register("wanted", {"id": block, "place": np.arange(len(block))})
        columns = connection.execute(query).fetchnumpy()
        if len(columns["place"]) > len(block):
            raise RepeatedError(int(block[columns["place"][:-1][np.diff(columns["place"]) == 0][0]]))
        blocks.append(quantised([np.zeros((len(block), 0)), *_numbers(columns, fitted)]))
        unknown += int((~columns["known"]).sum())
    return Encoded(np.concatenate(blocks), tuple(fitted), unknown)


def _fitted(connection: Connection, feature: Feature, chosen: str) -> Encoder:
    """The encoder of a feature; `chosen` is SQL from `FROM` on."""
    if feature.kind == "scaled":
        return Scaled(feature.name)
    if feature.kind == "category":
        values = connection.execute(f"SELECT DISTINCT {feature.expression} {chosen}").fetchall()
        return category(feature.name, (row[0] for row in values), feature.width, feature.one_hot)
    query = f"SELECT ({feature.expression})::DOUBLE AS x {chosen} ORDER BY x"  # a sum depends on the order
    return number(feature.name, _filled(connection.execute(query).fetchnumpy()["x"]))


def _query(
    connection: Connection, features: Sequence[Feature], encoders: Sequence[Encoder], joined: str, known: str
) -> str:
    """Features of the ids of the table `wanted`, in its order; categories as codes, by tables of their values."""
    columns = ""
    for k, (feature, encoder) in enumerate(zip(features, encoders, strict=True)):
        if not isinstance(encoder, Category):
            columns += f", ({feature.expression})::DOUBLE AS feature{k}"
        elif not encoder.values:
            columns += f", 0 AS feature{k}"
        else:
            codes = {"known_value": np.array(encoder.values, object), "code": np.arange(1, len(encoder.values) + 1)}
            connection.register(f"codes{k}", codes)
            joined += f" LEFT JOIN codes{k} ON codes{k}.known_value = {feature.expression}"
            columns += f", coalesce(codes{k}.code, 0) AS feature{k}"
    return f"SELECT place, {known} AS known{columns} FROM wanted {joined} ORDER BY place"


def _numbers(columns: dict[str, Any], encoders: Sequence[Encoder]) -> Iterable[Any]:
    for k, encoder in enumerate(encoders):
        column = columns[f"feature{k}"]
        if isinstance(encoder, Category):
            yield encoder.vectors[column]
        else:
            filled = _filled(column)
            yield encoder.scaled(filled) if isinstance(encoder, Number) else np.nan_to_num(filled)


def _filled(column: Any) -> Any:
    """NaN in place of gaps."""
    return column.filled(np.nan) if isinstance(column, np.ma.MaskedArray) else column
