"""Buckets of users: logs scattered into them; their rows ordered without duplicates; arrays of rows on an action.

Buckets share nothing. Each step writes one file, whole or not at all, and can be run again, anywhere.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from moac import files
from moac.files import Arrays
from moac.logs import engine
from moac.logs.connection import Connection
from moac.logs.engine import Limits
from moac.logs.features import request_starts, response_numbers
from moac.logs.schema import Schema, Signal, column
from moac.logs.source_files import File

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""
_HASH = 2_654_435_761
"""Knuth's multiplicative hash: neighbouring users fall into different buckets."""
_BUFFERED = 1 << 19
"""Rows that all buckets together buffer in a thread while a log is scattered; of DuckDB's own, half a million of each
bucket, 256 buckets would not fit into memory."""
_RAW = ", PARTITION_BY (bucket), COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1000"
"""How rows are written as they were read, to be read once: in a third less time than compressed, at twice the size."""
_SHARED = ("user_ids", "views", "first", "history", "responses")
_ROWS = ("user", "action", "reward", "time", "context", "end", "answered", "propensity", "candidates")


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


def scatter(
    connection: Connection, logs: list[tuple[File, bool]], user: str, num_buckets: int, work: Path, say: Progress
) -> None:
    """Write the rows of logs into one folder for each bucket of users; what an earlier attempt has read is left out.

    Each log comes with whether its exposure was random; `num_buckets` is a power of two.
    """
    done, total = 0, sum(file.size for file, _ in logs)
    connection.execute(f"SET partitioned_write_flush_threshold = {max(_BUFFERED // num_buckets, 4096)}")
    connection.execute(f"SET partitioned_write_max_open_files = {num_buckets + 1}")
    bucket = f"((({column(user)}::HUGEINT * {_HASH}) & 4294967295) >> {33 - num_buckets.bit_length()})::INTEGER"
    for number, (file, random) in enumerate(logs):
        out, temporary = work / "raw" / str(number), work / ".raw.tmp"
        if not out.exists():
            shutil.rmtree(temporary, ignore_errors=True)
            source = engine.source(connection, file.path, file.table)
            query = f"SELECT *, {random} AS random, {bucket} AS bucket FROM {source.table}"

            def show(share: float, done: int = done, size: int = file.size) -> None:
                say("reading logs", done + int(share * size), total)

            copy = partial(engine.copy_checked, connection, query, [source], temporary, _RAW)
            engine.watch(connection, copy, show)
            if not any(temporary.rglob("*.parquet")):
                raise ValueError(f"{file.path} must hold rows, got none.")
            temporary.replace(out)
        done += file.size
        say("reading logs", done, total)


def order(bucket: Bucket) -> None:
    """Write a bucket's rows by user, time, item, then all other columns; exact duplicates once, as `copies`.

    Codes of the context and signals that are computed stand beside them: indexing the rows again needs no SQL.
    """
    schema, raw = bucket.schema, bucket.raw
    names = dict.fromkeys((schema.user, schema.time, schema.item, *schema.log.columns, "random"))
    columns = ", ".join(map(column, names))
    context = "".join(f", ({code})::SMALLINT AS context{k}" for k, (code, _) in enumerate(schema.context.values()))
    computed = (signal for signal in schema.signals if signal.expression is not None)
    signals = "".join(f", {signal.expression} AS {column(signal.column)}" for signal in computed)
    wanted = f"{columns}, count(*) AS copies{context}{signals}"
    query = f"SELECT {wanted} FROM {engine.parquet(raw)} GROUP BY {columns} ORDER BY {columns}"
    with bucket.connect() as connection:
        engine.copy_whole(connection, query, bucket.rows)
    for path in raw:
        path.unlink()


def index(bucket: Bucket, actions: np.ndarray[Any, Any], scale: tuple[float, ...] = ()) -> None:
    """Write the arrays of a bucket, given the ids of the actions and the scale of responses, and its rows' hash."""
    with bucket.connect() as connection:
        columns = connection.execute(f"SELECT * FROM {engine.parquet([bucket.rows])}").fetchnumpy()
    digest = hashlib.sha256()
    for name in (*bucket.schema.log.columns, "random", "copies"):
        digest.update(np.ascontiguousarray(columns[name]).data)
    arrays = indexed(Views.of(columns, bucket.schema), bucket.schema.window, actions, scale)
    files.write_arrays(bucket.arrays, arrays, {"rows": digest.hexdigest()})


@dataclass(frozen=True, eq=False)
class Views:
    """Everything that some users were shown, by user and time."""

    user: np.ndarray[Any, Any]  # [n] ids
    item: np.ndarray[Any, Any]  # [n] ids
    time: np.ndarray[Any, Any]  # [n]
    random: np.ndarray[Any, Any]  # [n] whether exposure was random
    values: Arrays  # [n] each: the columns of the signals, of the context and the propensity
    signals: tuple[Signal, ...]
    context: tuple[str, ...]  # columns with its codes
    propensity: str | None = None  # the column
    candidates: str | None = None  # the column with the index of a list

    @classmethod
    def of(cls, columns: Arrays, schema: Schema) -> Views:
        """From the columns of ordered rows."""
        user, item, time = (columns[name] for name in (schema.user, schema.item, schema.time))
        context = tuple(f"context{k}" for k in range(len(schema.context)))
        shown = (user, item, time, columns["random"], columns)
        return cls(*shown, schema.signals, context, schema.propensity, schema.candidates)

    def rewards(self, chosen: Any) -> np.ndarray[Any, Any]:
        """[n, M] of the chosen views, by their indices: several times as fast as by a mask."""
        return rewards({signal.column: self.values[signal.column][chosen] for signal in self.signals}, self.signals)

    def rows(self, chosen: Any) -> Arrays:
        """What a row has beside its action and reward, of the chosen views by their indices."""
        codes = [self.values[name][chosen] for name in self.context]
        small = all(code.min(initial=0) >= -128 and code.max(initial=0) < 128 for code in codes)
        context = np.zeros((len(chosen), len(codes)), np.int8 if small else np.int32)
        for k, code in enumerate(codes):
            context[:, k] = code
        found = {"time": self.time[chosen], "context": context}
        if self.propensity is not None:
            found["propensity"] = self.values[self.propensity][chosen].astype(np.float32)
        if self.candidates is not None:
            found["candidates"] = self.values[self.candidates][chosen].astype(np.int32)
        return found | {"random": self.random[chosen]}


def indexed(views: Views, window: int, actions: np.ndarray[Any, Any], scale: tuple[float, ...] = ()) -> Arrays:
    """Arrays of the rows whose item is an action, and of the views within reach of them.

    A view is within reach of a row if it is the row itself or one of the `window` views of the same user before it;
    other views are in no state, and are left out. Positions count from the start of the bucket. With the `scale` of
    responses, so do those up to which they are known: a row does not know what was answered at its own time.
    """
    ids, item = views.user, views.item
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    sizes = np.diff(np.append(starts, len(ids)))
    user = np.repeat(np.arange(len(starts), dtype=np.int32), sizes)
    action = _places(item, actions)
    near = _within_reach(user, action >= 0, window)
    before, row, reach = np.cumsum(near) - near, np.flatnonzero(action >= 0), np.flatnonzero(near)
    found = {"user_ids": ids[starts], "views": sizes.astype(np.int32), "first": before[starts], "history": item[reach]}
    found |= {"user": user[row], "action": action[row], "end": before[row]} | views.rows(row)
    reward = views.rewards(reach if scale else row)
    if scale:
        answered = before[request_starts(user, views.time)[row]]
        found |= {"responses": response_numbers(reward, scale), "answered": answered}
        reward = reward[found["end"]]  # a row is within its own reach
    return found | {"reward": reward}


def rewards(columns: Arrays, signals: tuple[Signal, ...]) -> np.ndarray[Any, Any]:
    """[n, M] signs × signals, in their units."""
    found = np.empty((len(columns[signals[0].column]), len(signals)), np.float32)
    for k, signal in enumerate(signals):  # by columns: a matrix in float64 takes most of the time
        found[:, k] = columns[signal.column] * np.float64(signal.sign / signal.unit) + 0.0  # + 0.0: no −0
    return found


def _places(ids: Any, known: Any) -> Any:
    """Where each of the ids is among those that are known, or −1: by a table where that is small, since it is fast."""
    low, span = known.min(), int(known.max()) - int(known.min()) + 1
    if span <= len(ids):
        table = np.full(span + 1, -1, np.int32)
        table[known - low] = np.arange(len(known))
        return table[np.where((ids >= low) & (ids <= known.max()), ids - low, span)]
    ranks = np.argsort(known).astype(np.int32)
    ordered = known[ranks]
    place = np.minimum(np.searchsorted(ordered, ids), len(known) - 1)
    return np.where(ordered[place] == ids, ranks[place], np.int32(-1))


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


def join(pieces: list[Arrays], primary_is_random: bool, items: Any = ()) -> Joined:
    """The arrays of all buckets; without a standard log, the rows trained on are those of random exposure.

    `items` are ids that must be among those of the result, also where nobody has viewed them.
    """
    users, views = 0, 0
    for piece in pieces:
        offsets = {"user": users, "first": views, "end": views, "answered": views}
        users, views = users + len(piece["user_ids"]), views + len(piece["history"])
        piece |= {name: (piece[name] + k).astype(np.int32) for name, k in offsets.items() if name in piece}
    names = [name for name in (*_SHARED, *_ROWS, "random") if name in pieces[0]]
    whole = {name: np.concatenate([piece.pop(name) for piece in pieces]) for name in names}
    shared = {name: whole[name] for name in _SHARED if name in whole} | {"item_ids": np.unique(whole["history"])}
    if len(items):
        shared["item_ids"] = np.union1d(shared["item_ids"], items).astype(shared["item_ids"].dtype)
    shared["history"] = _places(whole["history"], shared["item_ids"])
    second = whole["random"] & (not primary_is_random)
    parts = {"rows": ~second, "random": second}
    return Joined(shared, {part: _part(whole, chosen) for part, chosen in parts.items() if chosen.any()})


def _part(whole: Arrays, chosen: Any) -> Arrays:
    """The chosen rows; a user's last one is truncated."""
    rows = {name: whole[name].take(np.flatnonzero(chosen), axis=0) for name in _ROWS if name in whole}
    return rows | {"truncated": np.append(rows["user"][1:] != rows["user"][:-1], True)}


def among(propensity: Any, share: float) -> np.ndarray[Any, Any]:
    """Propensities among the actions, from those among all items, of which the actions have a share of the rows.

    With w = π · share / b the mean over rows on an action estimates E[Σ_a π(a|s) r(s, a)] over all requests of the log,
    and the mean of w is 1: (1 / N_all) Σ_{rows on actions} π/b · r, since N_actions = share · N_all.
    """
    return np.minimum(propensity / np.float32(share), np.float32(1)).astype(np.float32)
