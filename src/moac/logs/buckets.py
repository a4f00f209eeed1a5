"""One bucket of users: its rows ordered without duplicates, then the arrays of those rows whose item is an action.

Buckets share nothing. Each step writes one file, whole or not at all, and can be run again, anywhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from moac import files
from moac.files import Arrays
from moac.logs import engine
from moac.logs.engine import Limits
from moac.logs.schema import Schema, Signal, column

_SHARED = ("user_ids", "views", "first", "history")
_ROWS = ("user", "action", "reward", "time", "context", "end")


@final
@dataclass(frozen=True)
class Bucket:
    """A bucket of a build, as plain data: the folder in which a dataset is built, and a number."""

    folder: Path  # of the build
    number: int  # of the bucket
    schema: Schema  # of the log
    limits: Limits  # what its process may use

    @property
    def raw(self) -> list[Path]:
        """Its rows as they were read, from every log."""
        return sorted(self.folder.glob(f"work/raw/*/bucket={self.number}/*.parquet"))

    @property
    def rows(self) -> Path:
        """Its rows in order, each once, with how often it was read."""
        return self.folder / "rows" / f"bucket-{self.number:03d}.parquet"

    @property
    def arrays(self) -> Path:
        """Its arrays."""
        return self.folder / "work" / "arrays" / f"bucket-{self.number:03d}.safetensors"

    def connect(self) -> Any:
        """A database for this bucket alone."""
        return engine.connect(self.limits, self.folder / "work" / f"spill-{self.number:03d}")


def order(bucket: Bucket) -> None:
    """Write a bucket's rows by user, time, item, then all other columns; exact duplicates once, as `copies`."""
    schema, raw = bucket.schema, bucket.raw
    names = dict.fromkeys((schema.user, schema.time, schema.item, *schema.log.columns, "random"))
    columns = ", ".join(map(column, names))
    query = f"SELECT {columns}, count(*) AS copies FROM {engine.parquet(raw)} GROUP BY {columns} ORDER BY {columns}"
    with bucket.connect() as connection:
        engine.copy_whole(connection, query, bucket.rows)
    for path in raw:
        path.unlink()


def index(bucket: Bucket, actions: np.ndarray[Any, Any]) -> None:
    """Write the arrays of a bucket, given the ids of the actions, and the hash of its rows."""
    context = "".join(f", {code} AS context{k}" for k, (code, _) in enumerate(bucket.schema.context.values()))
    with bucket.connect() as connection:
        columns = connection.execute(f"SELECT *{context} FROM {engine.parquet([bucket.rows])}").fetchnumpy()
    digest = hashlib.sha256()
    for name in (*bucket.schema.log.columns, "random", "copies"):
        digest.update(np.ascontiguousarray(columns[name]).data)
    files.write_arrays(bucket.arrays, indexed(columns, bucket.schema, actions), {"rows": digest.hexdigest()})


def indexed(columns: Arrays, schema: Schema, actions: np.ndarray[Any, Any]) -> Arrays:
    """Arrays of the rows whose item is an action, and of the views within reach of them.

    A view is within reach of a row if it is the row itself or one of the `window` views of the same user before it;
    other views are in no state, and are left out. Positions count from the start of the bucket.
    """
    ids, item = columns[schema.user], columns[schema.item]
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    sizes = np.diff(np.append(starts, len(ids)))
    user = np.repeat(np.arange(len(starts), dtype=np.int32), sizes)
    action = _actions(item, actions)
    row = action >= 0
    reach = _within_reach(user, row, schema.window)
    before = np.cumsum(reach) - reach
    codes = [np.zeros((int(row.sum()), 0)), *(columns[f"context{k}"][row, None] for k in range(len(schema.context)))]
    small = max((size for _, size in schema.context.values()), default=0) < 128
    return {
        "user_ids": ids[starts],
        "views": sizes.astype(np.int32),
        "first": before[starts],
        "history": item[reach],
        "user": user[row],
        "action": action[row],
        "reward": rewards({s.column: columns[s.column][row] for s in schema.signals}, schema.signals),
        "time": columns[schema.time][row],
        "context": np.concatenate(codes, axis=1).astype(np.int8 if small else np.int32),
        "end": before[row],
        "random": columns["random"][row],
    }


def rewards(columns: Arrays, signals: tuple[Signal, ...]) -> np.ndarray[Any, Any]:
    """[n, M] signs × signals, in their units."""
    values = np.stack([columns[signal.column] for signal in signals], axis=1).astype(np.float64)
    scale = np.array([signal.sign / signal.unit for signal in signals])
    return (values * scale + 0.0).astype(np.float32)  # + 0.0: no −0


def _actions(item: Any, actions: Any) -> Any:
    """The action that each item is, or −1."""
    ranks = np.argsort(actions).astype(np.int32)
    place = np.minimum(np.searchsorted(actions, item, sorter=ranks), len(actions) - 1)
    return np.where(actions[ranks[place]] == item, ranks[place], np.int32(-1))


def _within_reach(user: Any, row: Any, window: int) -> Any:
    """Whether each view is one of the rows, or at most `window` views before one of the same user."""
    count = len(row)
    here = np.arange(count, dtype=np.int32)
    following = np.minimum.accumulate(np.where(row, here, np.int32(count))[::-1])[::-1]
    near = following - here <= window
    return near & (following < count) & (user[np.minimum(following, count - 1)] == user)


class Joined(NamedTuple):
    """The arrays of all buckets together."""

    shared: Arrays  # users, histories, and the ids of all items within reach
    parts: dict[str, Arrays]  # rows trained on, and of random exposure beside them, by name
    digests: list[str]  # of the rows of each bucket


def join(every: list[Bucket], primary_is_random: bool) -> Joined:
    """Read the arrays of all buckets; without a standard log, the rows trained on are those of random exposure."""
    pieces, digests, users, views = list[Arrays](), list[str](), 0, 0
    for bucket in every:
        arrays, about = files.read_arrays(bucket.arrays)
        offsets = {"user": users, "first": views, "end": views}
        pieces.append(arrays | {name: (arrays[name] + offset).astype(np.int32) for name, offset in offsets.items()})
        digests.append(about["rows"])
        users, views = users + len(arrays["user_ids"]), views + len(arrays["history"])
    whole = {name: np.concatenate([piece.pop(name) for piece in pieces]) for name in (*_SHARED, *_ROWS, "random")}
    shared = {name: whole[name] for name in _SHARED} | {"item_ids": np.unique(whole["history"])}
    shared["history"] = np.searchsorted(shared["item_ids"], whole["history"]).astype(np.int32)
    second = whole["random"] & (not primary_is_random)
    parts = {"rows": ~second, "random": second}
    return Joined(shared, {part: _part(whole, chosen) for part, chosen in parts.items() if chosen.any()}, digests)


def _part(whole: Arrays, chosen: Any) -> Arrays:
    """The chosen rows; a user's last one is truncated."""
    rows = {name: whole[name][chosen] for name in _ROWS}
    return rows | {"truncated": np.append(rows["user"][1:] != rows["user"][:-1], True)}
