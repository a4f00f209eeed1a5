"""Features as numbers in [−1, 1]: what is fitted is fitted on train users alone.

A category with few values is one-hot, one with many a short vector by hash, fixed for all data. A value that train
users do not have is unknown: zeros. Tables hold int8, in steps of 1/127.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moac.logs.schema import STEPS, Feature, LogFiles, Signal, column

if TYPE_CHECKING:
    from moac.logs.connection import Connection

ONE_HOT_UP_TO = 16
_SPREAD = 3.0
"""A number is clipped at so many standard deviations."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Encoder:
    """A fitted feature."""

    name: str  # of the feature
    values: tuple[str, ...] | None = None  # of a category: those of train users, sorted; None is a number
    width: int = 0  # of a category's vector by hash; 0 is one-hot
    # mean, deviation: of log(1 + x) among train users; None is a number that is in [−1, 1] already
    mean: float | None = None
    deviation: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """One per number."""
        if self.values is None:
            return (self.name,)
        if self.width:
            return tuple(f"{self.name}:{k}" for k in range(self.width))
        return tuple(f"{self.name}={value}" for value in self.values)

    @property
    def vectors(self) -> Float[np.ndarray, "V w"]:
        """Of a category: row 0 is unknown, row k + 1 the k-th value; by hash each number is uniform in [−1, 1]."""
        values = self.values or ()
        digests = [hashlib.sha256(f"{self.name}={value}".encode()).digest() for value in values if self.width]
        words = [np.frombuffer(digest, dtype="<u4")[: self.width] for digest in digests]
        hashed = np.array(words, dtype=np.float64).reshape(-1, self.width or 1) / 2**31 - 1
        known = hashed if self.width else np.eye(len(values))
        return np.concatenate([np.zeros((1, known.shape[1])), known])

    def numbers(self, column: Any) -> Float[np.ndarray, "n w"]:
        """In [−1, 1], from a column of texts or numbers; what is missing or unknown is 0."""
        if self.values is not None:
            rows = {value: k for k, value in enumerate(self.values, start=1)}
            return self.vectors[list(map(rows.get, np.ma.filled(column, ""), repeat(0)))]
        column = np.ma.filled(column, np.nan)
        if self.mean is not None:
            x = np.log1p(np.maximum(column, 0))
            column = np.clip((x - self.mean) / (_SPREAD * self.deviation), -1, 1)
        return np.nan_to_num(column)[:, None]


def category(name: str, values: Iterable[str | None], width: int, one_hot: bool = True) -> Encoder:
    """Fitted on a column: its values in order, one-hot where they are few and may be."""
    known = tuple(sorted({value for value in values if value is not None and value != ""}))
    return Encoder(name, known, 0 if one_hot and len(known) <= ONE_HOT_UP_TO else width)


def number(name: str, column: Any) -> Encoder:
    """Fitted on the finite ones of a column of numbers x ≥ 0, masked or NaN where missing."""
    column = np.ma.filled(column, np.nan)
    x = np.log1p(np.maximum(column[np.isfinite(column)], 0))
    deviation = float(x.std()) if len(x) else 0.0
    return Encoder(name, mean=float(x.mean()) if len(x) else 0.0, deviation=deviation or 1.0)


def quantised(columns: Sequence[Any]) -> Int[np.ndarray, "n d"]:
    """Columns [n, w] of numbers in [−1, 1] side by side, as int8."""
    return np.rint(np.concatenate(columns, axis=1) * STEPS).astype(np.int8)


def response_numbers(reward: Any, scale: Any) -> Int[np.ndarray, "n M"]:
    """Responses as int8: signs × signals over their scale, clipped to [−1, 1], in steps of 1/127."""
    steps = np.asarray(reward, np.float32) * (STEPS / np.asarray(scale)).astype(np.float32)
    return np.rint(np.clip(steps, -STEPS, STEPS, out=steps), out=steps).astype(np.int8)


def response_scale(largest: float, mean_square: float) -> float:
    """Of a signal: 1 where no train row has more, else three root mean squares, to two digits."""
    return 1.0 if largest <= 1 else float(f"{3 * mean_square**0.5:.2g}")


def response_scales(connection: Connection, signals: Sequence[Signal], rows: str, train: str) -> tuple[float, ...]:
    """Of all signals, by the train rows of SQL `rows`."""
    sized = [f"{column(signal.column)}::DOUBLE / {signal.unit}" for signal in signals]
    query = ", ".join(f"max(abs({x})), avg({x} * {x})" for x in sized)
    values = connection.execute(f"SELECT {query} FROM {rows} WHERE {train}").fetchall()[0]
    return tuple(map(response_scale, values[::2], values[1::2]))


def request_starts(user: Any, time: Any) -> Int[np.ndarray, " n"]:
    """Where the rows of the same user and time begin, for each row: none of these knows a response to another."""
    changes = np.append(True, (user[1:] != user[:-1]) | (time[1:] != time[:-1]))
    return np.maximum.accumulate(np.where(changes, np.arange(len(user), dtype=np.int32), np.int32(0)))


class Encoded(NamedTuple):
    """Features of users or items."""

    table: Int[np.ndarray, "n d"]  # [n, d] int8
    encoders: list[Encoder]  # of the features, in order
    unknown: int  # how many of the ids have no features

    @property
    def names(self) -> list[str]:
        """Of the d numbers."""
        return [name for encoder in self.encoders for name in encoder.names]


def copy_tables(connection: Connection, files: LogFiles, work: Path) -> None:
    """Feature files to one Parquet file for each table, with the ids in a column `id`; each id is there once."""
    from moac.logs import engine  # only a build needs DuckDB

    schema = files.schema
    described = {"users": (schema.user, schema.users), "items": (schema.item, schema.items)}
    for name, (key, table) in described.items():
        out, partial, paths = work / f"{name}.parquet", work / f"{name}.tmp", files.feature_files[name]
        if table is not None and not out.exists():
            sources = [engine.source(connection, path, table) for path in paths]
            renamed = f"SELECT * EXCLUDE ({column(key)}), {column(key)} AS id FROM"
            query = " UNION ALL ".join(f"{renamed} {source.table}" for source in sources)
            engine.copy_checked(connection, query, sources, partial)
            engine.check_once(connection, engine.parquet([partial]), "id", f"{paths[0]}: `{key}`")
            partial.replace(out)


def encoded(connection: Connection, features: Sequence[Feature], table: str | None, train: str, ids: Any) -> Encoded:
    """Fit the features of a table and encode those of the given ids [n], block by block.

    `table` is SQL, with each id once in a column `id`; `train` is a query for the ids that encoders are fitted on.
    """
    joined = "" if table is None else f"LEFT JOIN {table} AS described USING (id)"
    encoders = _fitted(connection, features, f"FROM ({train}) {joined}")
    columns = ["true AS known" if table is None else "described.id IS NOT NULL AS known"]
    columns += [f"{_expression(feature)} AS feature{k}" for k, feature in enumerate(features)]
    blocks, unknown = [np.zeros((0, sum(len(encoder.names) for encoder in encoders)), np.int8)], 0
    for begin in range(0, len(ids), _BLOCK):
        block = ids[begin : begin + _BLOCK]
        connection.register("wanted", {"id": block, "place": np.arange(len(block))})
        query = f"SELECT {', '.join(columns)} FROM wanted {joined} ORDER BY place"
        rows = connection.execute(query).fetchnumpy()
        numbers = [encoder.numbers(rows[f"feature{k}"]) for k, encoder in enumerate(encoders)]
        blocks.append(quantised([np.zeros((len(block), 0)), *numbers]))
        unknown += int((~rows["known"]).sum())
    return Encoded(np.concatenate(blocks), encoders, unknown)


def _expression(feature: Feature) -> str:
    return feature.expression if feature.kind == "category" else f"({feature.expression})::DOUBLE"


def _fitted(connection: Connection, features: Sequence[Feature], chosen: str) -> list[Encoder]:
    """The encoders of features; `chosen` is SQL from `FROM` on. One query finds the values of all categories."""
    categories = [feature for feature in features if feature.kind == "category"]
    distinct = ", ".join(f"list(DISTINCT {feature.expression})" for feature in categories)
    values = iter(connection.execute(f"SELECT {distinct} {chosen}").fetchall()[0] if categories else ())
    encoders = list[Encoder]()
    for feature in features:
        if feature.kind == "scaled":
            encoders.append(Encoder(feature.name))
        elif feature.kind == "category":
            encoders.append(category(feature.name, next(values) or (), feature.width, feature.one_hot))
        else:
            query = f"SELECT {_expression(feature)} AS x {chosen} ORDER BY x"  # a sum depends on the order
            encoders.append(number(feature.name, connection.execute(query).fetchnumpy()["x"]))
    return encoders
