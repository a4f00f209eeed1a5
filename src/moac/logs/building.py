"""A log's files to a dataset: a map over buckets of users, each written whole; what is there is not done again.

Files are checked, logs scattered into buckets of users, each bucket ordered (`buckets.order`) and, once the most viewed
items are known, indexed (`buckets.index`); then arrays, features and the manifest are written. Needs no JAX.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from moac import locks, tasks
from moac.arguments import checked
from moac.choices import shown
from moac.files import read_arrays, read_json, write_arrays, write_json
from moac.logs import buckets, candidates, engine, features, folder, numbering
from moac.logs.buckets import Bucket, Progress
from moac.logs.connection import Connection
from moac.logs.engine import Limits
from moac.logs.schema import LogFiles, Signal, column
from moac.logs.source_files import File, hashed
from moac.logs.splits import SHARES, Rule
from moac.tasks import Executor

_BYTES_PER_BUCKET, _MOST_BUCKETS = 1 << 26, 256
_ACTIONS = 150
ALL = "all"
COLUMNS = ("user", "item", "time", "propensity", "candidates")
_DIVIDED = (
    "propensities are of all items, and were divided by {:.1%}, the share of train rows that the actions have; a "
    "comparison with the log's own policy is exact where that share is the same in every state"
)
_CONSTANT = (
    "{} is {:g} in all train rows: no policy can be seen to change it, and beside it min-norm weights learn little of "
    "the other signals; leave it out"
)
_VERSIONS = ("moac", "duckdb", "numpy")


@checked
@dataclass(frozen=True)
class Options:
    """How a dataset is built."""

    # K, the items that train users viewed most, or "all" that are known; None is 150, or fewer where there are fewer
    actions: int | str | None = None
    split_seed: int = 0  # of the hash that splits users
    shares: tuple[float, float, float] = SHARES  # of users in train, validation and test
    split: str = "users"  # or time:DATE, or unseen:DATE; see `splits.Rule`
    history_responses: bool = True  # whether states hold the responses to viewed items
    memory_limit: str = "2GB"  # the most memory a process may use
    threads: int | None = None  # of DuckDB; None is one per core

    @property
    def rule(self) -> Rule:
        """Which rows are train, validation and test."""
        return Rule.of(self.split, self.split_seed, self.shares)


def build(
    files: LogFiles,
    out: str | Path,
    options: Options | None = None,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build the dataset `out` from a log's files; its manifest.

    The result depends on the files, their schema and on the first five options alone: neither memory, threads nor
    executor change a byte of what the content hash covers. A build that was interrupted or killed goes on
    where it stopped when the same one is started again.

    Args:
        files: of the log, such as `moac.kuairand.find` or `moac.logs.schema.find` finds.
        out: the dataset's folder; it must not exist yet.
        options: how it is built.
        executor: where buckets are worked on, each on one core and under the same cap; None is one after the other.
        progress: told what is done.
    """
    options, say = options or Options(), progress or (lambda what, done, total: None)
    limits = engine.limits(options.memory_limit, options.threads)
    rule = options.rule
    all_items = options.actions == ALL or files.schema.candidates is not None
    if not (options.actions in (None, ALL) or (isinstance(options.actions, int) and options.actions >= 2)):
        raise ValueError(f"`actions` must be all or at least 2, got {shown(options.actions)}.")
    if files.schema.candidates is not None and isinstance(options.actions, int):
        raise ValueError(f"`actions` must be all where requests have candidates, got {options.actions}.")
    locks.refuse_existing(Path(out), "out")
    inspected: list[File] = []
    for path, table in files.tables:
        say("checking files", len(inspected), len(files.tables))
        inspected.append(hashed(path, table))
    origin = _origin(inspected, files, options)
    with locks.becoming(Path(out), _sha256(origin)[:16]) as place:
        if not (place / folder.MANIFEST).exists():  # written last: where it is, all else is
            if files.schema.named:
                files, log = numbering.numbered(files, place, limits, rule, say, all_items)
                inspected = [log]
            _Build(files, inspected, options, limits, place).run(origin, executor or tasks.Serial(), say)
        shutil.rmtree(place / "work", ignore_errors=True)
        say("writing arrays", 1, 1)
        return read_json(place / folder.MANIFEST)


def _origin(inspected: list[File], files: LogFiles, options: Options) -> dict[str, Any]:
    """What a dataset follows from: two builds with one origin make the same."""
    about = [{"file": f.path.name, "kind": f.table.name, "bytes": f.size, "sha256": f.sha256} for f in inspected]
    return {
        "format": folder.FORMAT,
        "sources": about,
        "options": {name: value for name, value in asdict(options).items() if name not in ("memory_limit", "threads")},
        "schema": _sha256(asdict(files.schema)),
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _VERSIONS}},
    }


def num_buckets(logs: Iterable[File]) -> int:
    """A power of two, by the size of the logs alone, so that the result depends on neither memory nor threads."""
    wanted = sum(file.size for file in logs) // _BYTES_PER_BUCKET + 1
    return min(1 << (wanted - 1).bit_length(), _MOST_BUCKETS)


class _Build:
    """One build, step by step; every step leaves out what an earlier attempt has written."""

    def __init__(self, files: LogFiles, inspected: list[File], options: Options, limits: Limits, place: Path) -> None:
        self.files, self.schema, self.options, self.limits, self.place = files, files.schema, options, limits, place
        self.logs = inspected[len(inspected) - len(files.standard) - len(files.random) :]
        self.work, self.num_buckets = place / "work", num_buckets(self.logs)
        self.primary_is_random = not files.standard
        self.viewed = self.work / "viewed.parquet"
        self.user, self.item, self.time = (column(getattr(self.schema, name)) for name in ("user", "item", "time"))
        self.rule = options.rule
        self.all_items = options.actions == ALL or self.schema.candidates is not None

    def run(self, origin: dict[str, Any], executor: Executor, say: Progress) -> None:
        """All steps; the manifest is the last."""
        for name in ("rows", "work/raw", "work/arrays", "arrays"):
            (self.place / name).mkdir(parents=True, exist_ok=True)
        with self._connect() as connection:
            features.copy_tables(connection, self.files, self.work)
            random = [(file, file.path in self.files.random) for file in self.logs]
            buckets.scatter(connection, random, self.schema.user, self.num_buckets, self.work, say)
        self._map(executor, buckets.order, lambda bucket: bucket.rows.exists(), partial(say, "sorting users"))
        with self._connect() as connection:
            self._register_splits(connection)
            actions, scale = self._actions(connection), ()
            if self.options.history_responses:
                scale = features.response_scales(connection, self.schema.signals, self._rows, self.train)
            logs = folder.count_logs(connection, self.schema, self._rows)
        index = partial(buckets.index, actions=actions, scale=scale)
        self._map(executor, index, lambda bucket: bucket.arrays.exists(), partial(say, "indexing users"))
        say("writing arrays", 0, 1)
        with self._connect() as connection:
            connection.register("splits", self.splits)
            about = self._write(connection, actions, scale)
        write_json(self.place / folder.MANIFEST, origin | self._described() | {"logs": logs} | about)

    def _connect(self) -> Any:
        return engine.connect(self.limits, self.work / "spill")

    @property
    def _buckets(self) -> list[Bucket]:
        """Those that have rows. They are too small for several threads, which cost more than they save."""
        limits = replace(self.limits, threads=1)
        every = [Bucket(self.place, number, self.schema, limits) for number in range(self.num_buckets)]
        return [bucket for bucket in every if bucket.rows.exists() or bucket.raw]

    @property
    def _rows(self) -> str:
        return engine.parquet(bucket.rows for bucket in self._buckets)

    def _map(
        self, executor: Executor, function: Callable[[Bucket], None], done: Callable[[Bucket], bool], say: Any
    ) -> None:
        """Run a step on the buckets for which it is not done; the first failure is raised."""
        every = self._buckets
        left = [bucket for bucket in every if not done(bucket)]
        say(len(every) - len(left), len(every))
        for finished, _ in enumerate(tasks.ended(executor.map(function, left)), len(every) - len(left) + 1):
            say(finished, len(every))

    def _register_splits(self, connection: Connection) -> None:
        """The table `splits` of all users that have rows; a user without features is refused."""
        if self.files.users is not None:
            known = f"SELECT id FROM {engine.parquet([self.work / 'users.parquet'])}"
            query = f"SELECT min({self.user}) FROM {self._rows} WHERE {self.user} NOT IN ({known})"
            (stranger,) = connection.execute(query).fetchone() or (None,)
            if stranger is not None:
                raise ValueError(f"{self.files.users} must have user {stranger} of the log, who is missing.")
        users = f"SELECT DISTINCT {self.user} AS id FROM {self._rows} ORDER BY id"
        ids = connection.execute(users).fetchnumpy()["id"]
        ((newest,),) = connection.execute(f"SELECT max({self.time}) FROM {self._rows}").fetchall()
        self.since = self.rule.since(int(newest))
        self.splits = {"id": ids, "split": self.rule.users(self._names(connection, "users", ids))}
        connection.register("splits", self.splits)
        early = "true" if self.since is None else f"{self.time} < {self.since}"
        mine = "" if self.rule.name == "time" else f" AND {self.user} IN (SELECT id FROM splits WHERE split = 0)"
        self.train = f"{early}{mine}"

    def _names(self, connection: Connection, what: str, ids: Any) -> Any:
        """Ids as the log has them, of users or items."""
        return numbering.names(connection, self.work / f"{what}.parquet", ids) if self.schema.named else ids

    def _actions(self, connection: Connection) -> Any:
        """The K items that train users viewed most, the most viewed first; ties by id. All: then those not viewed."""
        query = (
            f"SELECT {self.item} AS id, count(*) FILTER (random = {self.primary_is_random}) AS views FROM {self._rows} "
            f"WHERE {self.train} GROUP BY {self.item}"
        )
        engine.copy_whole(connection, query, self.viewed)
        viewed, all_items = engine.parquet([self.viewed]), self.all_items
        wanted: Any = None if all_items else self.options.actions
        most = f"SELECT id, views FROM {viewed} WHERE views > 0 ORDER BY views DESC, id LIMIT {wanted or _ACTIONS}"
        if all_items:
            known, described = f"SELECT {self.item} AS id FROM {self._rows}", self._table("items")
            known += "" if described is None else f" UNION SELECT id FROM {described}"
            views = f"SELECT id, coalesce(views, 0) AS views FROM ({known}) LEFT JOIN {viewed} USING (id)"
            most = f"SELECT id, views FROM ({views}) ORDER BY views DESC, id"
        actions = connection.execute(most).fetchnumpy()["id"]
        if not len(actions) and self.since is not None:
            query = f"SELECT min({self.time}), max({self.time}) FROM {self._rows}"
            oldest, newest = connection.execute(query).fetchall()[0]
            times = f"times are {oldest} to {newest}, and it is at {self.since}"
            raise ValueError(f"`split` must leave rows to train on, got {shown(self.options.split)}: {times}.")
        if len(actions) < (wanted or 2):
            if wanted is None:
                raise ValueError(f"{self.files.name} must have two items that train users viewed, got {len(actions)}.")
            raise ValueError(
                f"`actions` must be at most {len(actions)}, the items that train users viewed, got {wanted}."
            )
        query = f"SELECT sum(views), (SELECT sum(views) FROM ({most})) FROM {viewed}"
        ((every, kept),) = connection.execute(query).fetchall()
        self.share = int(kept) / int(every)
        return actions

    def _write(self, connection: Connection, actions: Any, scale: tuple[float, ...]) -> dict[str, Any]:
        """Write the arrays and what was fitted; what the manifest says of them."""
        read = [read_arrays(bucket.arrays) for bucket in self._buckets]
        items = actions if self.all_items else ()
        shared, parts = buckets.join([arrays for arrays, _ in read], self.primary_is_random, items)
        if "propensity" in parts["rows"]:
            parts["rows"]["propensity"] = buckets.among(parts["rows"]["propensity"], self.share)
        users = self._encoded(connection, "users", shared["user_ids"])
        items = self._encoded(connection, "items", shared["item_ids"])
        places = np.searchsorted(shared["item_ids"], actions).astype(np.int32)
        shared |= {"users": users.table, "items": items.table, "action_ids": actions, "action_items": places}
        if self.schema.candidates is not None:
            pairs = engine.columns_of(self.work / "candidates.parquet", ["list", "id"])
            place = np.argsort(actions)[np.searchsorted(np.sort(actions), pairs["id"])]
            shared |= candidates.joined(pairs["list"], place)
        for name in ("user_ids", "item_ids", "action_ids"):
            shared[name] = self._names(connection, "users" if name == "user_ids" else "items", shared[name])
        shared["split"] = split = self.rule.users(shared["user_ids"])
        by_row = {part: self.rule.rows(split[rows["user"]], rows["time"], self.since) for part, rows in parts.items()}
        if self.since is not None:
            parts = {part: rows | {"row_split": by_row[part]} for part, rows in parts.items()}
        for name, arrays in {"shared": shared, **parts}.items():
            write_arrays(self.place / "arrays" / f"{name}.safetensors", arrays, {})
        fitted = {"users": list(map(asdict, users.encoders)), "items": list(map(asdict, items.encoders))}
        fitted |= {"user_names": users.names, "item_names": items.names}
        write_json(self.place / folder.ENCODING, fitted)
        written = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.place.glob("arrays/*"))]
        names = tuple(signal.name for signal in self.schema.signals)
        self.constant = _constant(self.schema.signals, parts["rows"]["reward"][by_row["rows"] == 0])
        return {
            "content": _sha256([[about["rows"] for _, about in read], written, fitted]),
            "users": len(split),
            "actions": len(actions),
            "views_per_user": folder.per_user(shared["views"]),
            "items_in_states": len(items.table),
            "items_without_features": items.unknown,
            "response_scale": scale,
            "parts": {part: folder.count_part(names, rows, by_row[part]) for part, rows in parts.items()},
        }

    def _encoded(self, connection: Connection, what: str, ids: Any) -> features.Encoded:
        """Features of users or items, fitted on train users or on what they viewed."""
        declared = self.schema.user_features if what == "users" else self.schema.item_features
        train = engine.parquet([self.viewed])
        if what == "users":
            query = f"SELECT DISTINCT {self.user} AS id FROM {self._rows} WHERE {self.train}"
            connection.register("train", connection.execute(query).fetchnumpy())  # once, not for every feature
            train = "train"
        return features.encoded(connection, declared, self._table(what), f"SELECT id FROM {train}", ids)

    def _table(self, what: str) -> str | None:
        """SQL of the table of users or items; None where there is none."""
        path = self.work / f"{what}.parquet"
        return engine.parquet([path]) if path.exists() else None

    def _described(self) -> dict[str, Any]:
        """What the manifest says of the data before anything is counted."""
        divided = [_DIVIDED.format(self.share)] if self.schema.propensity is not None and self.share < 1 else []
        return {
            "name": self.files.name,
            "absent": self.files.absent,
            "warnings": [*self.files.warnings, *divided, *self.constant],
            "primary": "random" if self.primary_is_random else "standard",
            "signals": {signal.name: asdict(signal) for signal in self.schema.signals},
            "context": {name: size for name, (_, size) in self.schema.context.items()},
            "context_values": self.files.context_values,
            "columns": {name: getattr(self.schema, name) for name in (*COLUMNS, "named")},
            "window": self.schema.window,
        }


def _constant(signals: Sequence[Signal], reward: Any) -> list[str]:
    """In words, which signals have one value in all rows; signs are those of the log."""
    same = (reward == reward[:1]).all(axis=0)
    values = ((signal, value * signal.sign + 0.0) for signal, value in zip(signals, reward[0].tolist(), strict=True))
    return [_CONSTANT.format(signal.name, value) for k, (signal, value) in enumerate(values) if same[k]]


def _sha256(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
