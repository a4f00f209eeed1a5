"""A log's files to a dataset: a map over buckets of users, each written whole; what is there is not done again.

Files are checked, logs scattered into buckets of users, each bucket ordered (`buckets.order`) and, once the most viewed
items are known, indexed (`buckets.index`); then arrays, features and the manifest are written. Needs no JAX.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, final

import numpy as np

from moac import tasks
from moac.files import read_json, write_arrays, write_json
from moac.logs import buckets, engine, features, folder, schema
from moac.logs.buckets import Bucket
from moac.logs.engine import Connection, File, Limits
from moac.logs.schema import LogFiles, column
from moac.tasks import Executor

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""
_BYTES_PER_BUCKET, _MOST_BUCKETS = 1 << 26, 256
_HASH = 2_654_435_761
"""Knuth's multiplicative hash: neighbouring users fall into different buckets."""
_BUFFERED = 1 << 19
"""Rows that all buckets together buffer in a thread while a log is scattered; of DuckDB's own, half a million of each
bucket, 256 buckets would not fit into memory."""
_VERSIONS = ("moac", "duckdb", "numpy")


@final
@dataclass(frozen=True)
class Options:
    """How a dataset is built."""

    actions: int = 150  # K, the items that train users viewed most
    split_seed: int = 0  # of the hash that splits users
    shares: tuple[float, float, float] = schema.SHARES  # of users in train, validation and test
    memory_limit: str = "2GB"  # the most memory a process may use
    threads: int | None = None  # of DuckDB; None is one per core


def build(
    files: LogFiles,
    out: str | Path,
    options: Options | None = None,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build the dataset `out` from a log's files; its manifest.

    The result depends on the files, their schema and on `actions`, `split_seed` and `shares` alone: neither memory,
    threads nor executor change a byte of what the content hash covers. A build that was interrupted or killed goes on
    where it stopped when the same one is started again.

    Args:
        files: of the log, such as `moac.kuairand.find` finds.
        out: the dataset's folder; it must not exist yet.
        options: how it is built.
        executor: where buckets are worked on, each on one core and under the same cap; None is one after the other.
        progress: told what is done.
    """
    options, say = options or Options(), progress or (lambda what, done, total: None)
    limits = engine.limits(options.memory_limit, options.threads)
    schema.check_split(options.split_seed, options.shares)
    if options.actions < 2:
        raise ValueError(f"`actions` must be at least 2, got {options.actions}.")
    folder.refuse_existing(Path(out), "out")
    inspected: list[File] = []
    for path, table in files.tables:
        say("checking files", len(inspected), len(files.tables))
        inspected.append(engine.inspect(path, table))
    origin = _origin(inspected, files, options)
    with folder.becoming(Path(out), _sha256(origin)[:16]) as place:
        if not (place / folder.MANIFEST).exists():  # written last: where it is, all else is
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
        "options": {name: getattr(options, name) for name in ("actions", "split_seed", "shares")},
        "schema": _sha256(asdict(files.schema)),
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _VERSIONS}},
    }


def num_buckets(logs: Iterable[File]) -> int:
    """A power of two, by the size of the logs alone, so that the result depends on neither memory nor threads."""
    wanted = sum(file.size for file in logs) // _BYTES_PER_BUCKET + 1
    return min(1 << (wanted - 1).bit_length(), _MOST_BUCKETS)


@final
class _Build:
    """One build, step by step; every step leaves out what an earlier attempt has written."""

    def __init__(self, files: LogFiles, inspected: list[File], options: Options, limits: Limits, place: Path) -> None:
        self.files, self.schema, self.options, self.limits, self.place = files, files.schema, options, limits, place
        self.by_path = {file.path: file for file in inspected}
        self.logs = [self.by_path[path] for path in (*files.standard, *files.random)]
        self.work, self.num_buckets = place / "work", num_buckets(self.logs)
        self.primary_is_random = not files.standard
        self.viewed = self.work / "viewed.parquet"
        self.user, self.item = column(self.schema.user), column(self.schema.item)

    def run(self, origin: dict[str, Any], executor: Executor, say: Progress) -> None:
        """All steps; the manifest is the last."""
        for name in ("rows", "work/raw", "work/arrays", "arrays"):
            (self.place / name).mkdir(parents=True, exist_ok=True)
        with self._connect() as connection:
            self._copy_tables(connection)
            self._scatter(connection, say)
        self._map(executor, buckets.order, lambda bucket: bucket.rows.exists(), partial(say, "sorting users"))
        with self._connect() as connection:
            self._register_splits(connection)
            actions = self._actions(connection)
            logs = folder.count_logs(connection, self.schema, self._rows)
        index = partial(buckets.index, actions=actions)
        self._map(executor, index, lambda bucket: bucket.arrays.exists(), partial(say, "indexing users"))
        say("writing arrays", 0, 1)
        with self._connect() as connection:
            about = self._write(connection, actions)
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

    def _copy_tables(self, connection: Connection) -> None:
        """Feature files to one Parquet file for each table, with the ids in a column `id`."""
        users = () if self.files.users is None else (self.files.users,)
        items = ((f"items{k}", self.schema.item, paths) for k, paths in enumerate(self.files.items))
        for name, key, paths in (("users", self.schema.user, users), *items):
            out = self.work / f"{name}.parquet"
            if paths and not out.exists():
                read = [self.by_path[path] for path in paths]
                renamed = f"SELECT * EXCLUDE ({column(key)}), {column(key)} AS id FROM"
                query = " UNION ALL ".join(f"{renamed} {engine.csv_table(file)}" for file in read)
                engine.copy_csv(connection, query, read, out.with_suffix(".tmp"))
                self._check_once(connection, out.with_suffix(".tmp"), key, read)
                out.with_suffix(".tmp").replace(out)

    def _check_once(self, connection: Connection, table: Path, key: str, read: list[File]) -> None:
        """Refuse a table that has features of one id twice."""
        query = f"SELECT id FROM {engine.parquet([table])} GROUP BY id HAVING count(*) > 1 ORDER BY id LIMIT 1"
        twice = connection.execute(query).fetchone()
        if twice is not None:
            place = engine.place_of(connection, read, key, twice[0], 2)
            raise ValueError(f"{place}: `{key}` {twice[0]} must be there once, got it again.")

    def _scatter(self, connection: Connection, say: Progress) -> None:
        """Logs to one folder for each bucket of users."""
        read, total = 0, sum(file.size for file in self.logs)
        rows = max(_BUFFERED // self.num_buckets, 4096)
        connection.execute(f"SET partitioned_write_flush_threshold = {rows}")
        connection.execute(f"SET partitioned_write_max_open_files = {self.num_buckets + 1}")
        for number, file in enumerate(self.logs):
            out = self.work / "raw" / str(number)
            if not out.exists():

                def show(share: float, read: int = read, size: int = file.size) -> None:
                    say("reading logs", read + int(share * size), total)

                engine.watch(connection, partial(self._scatter_log, connection, file, out), show)
            read += file.size
            say("reading logs", read, total)

    def _scatter_log(self, connection: Connection, file: File, out: Path) -> None:
        temporary = self.work / ".raw.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        hashed = f"({self.user}::HUGEINT * {_HASH}) & 4294967295"
        bucket = f"(({hashed}) >> {33 - self.num_buckets.bit_length()})::INTEGER"
        random = file.path in self.files.random
        query = f"SELECT *, {random} AS random, {bucket} AS bucket FROM {engine.csv_table(file)}"
        engine.copy_csv(connection, query, [file], temporary, ", PARTITION_BY (bucket)")
        temporary.replace(out)

    def _register_splits(self, connection: Connection) -> None:
        """The table `splits` of all users that have rows; a user without features is refused."""
        if self.files.users is not None:
            known = f"SELECT id FROM {engine.parquet([self.work / 'users.parquet'])}"
            query = f"SELECT min({self.user}) FROM {self._rows} WHERE {self.user} NOT IN ({known})"
            (stranger,) = connection.execute(query).fetchone() or (None,)
            if stranger is not None:
                place = engine.place_of(connection, self.logs, self.schema.user, stranger)
                raise ValueError(f"{place}: user {stranger} must be in {self.files.users.name}, and is not.")
        users = f"SELECT DISTINCT {self.user} AS id FROM {self._rows} ORDER BY id"
        ids = connection.execute(users).fetchnumpy()["id"]
        connection.register("splits", {"id": ids, "split": self._split(ids)})

    def _split(self, ids: Any) -> Any:
        return schema.split_users(ids, self.options.split_seed, self.options.shares)

    def _actions(self, connection: Connection) -> Any:
        """The K items that train users viewed most, the most viewed first; ties by id."""
        query = (
            f"SELECT {self.item} AS id, count(*) FILTER (random = {self.primary_is_random}) AS views FROM {self._rows} "
            f"WHERE {self.user} IN (SELECT id FROM splits WHERE split = 0) GROUP BY {self.item}"
        )
        engine.copy_whole(connection, query, self.viewed)
        viewed, wanted = engine.parquet([self.viewed]), self.options.actions
        most = f"SELECT id FROM {viewed} WHERE views > 0 ORDER BY views DESC, id LIMIT {wanted}"
        actions = connection.execute(most).fetchnumpy()["id"]
        if len(actions) < wanted:
            raise ValueError(
                f"`actions` must be at most {len(actions)}, the items that train users viewed, got {wanted}."
            )
        return actions

    def _write(self, connection: Connection, actions: Any) -> dict[str, Any]:
        """Write the arrays and what was fitted; what the manifest says of them."""
        shared, parts, digests = buckets.join(self._buckets, self.primary_is_random)
        split = self._split(shared["user_ids"])
        connection.register("splits", {"id": shared["user_ids"], "split": split})
        users = self._encoded(connection, "users", shared["user_ids"])
        items = self._encoded(connection, "items", shared["item_ids"])
        places = np.searchsorted(shared["item_ids"], actions).astype(np.int32)
        shared |= {"users": users.table, "items": items.table, "split": split}
        shared |= {"action_ids": actions, "action_items": places}
        for name, arrays in {"shared": shared, **parts}.items():
            write_arrays(self.place / "arrays" / f"{name}.safetensors", arrays, {})
        fitted = {"users": list(map(asdict, users.encoders)), "items": list(map(asdict, items.encoders))}
        fitted |= {"user_names": users.names, "item_names": items.names}
        write_json(self.place / folder.ENCODING, fitted)
        written = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.place.glob("arrays/*"))]
        names = tuple(signal.name for signal in self.schema.signals)
        return {
            "content": _sha256([digests, written, fitted]),
            "users": len(split),
            "views_per_user": folder.per_user(shared["views"]),
            "items_in_states": len(items.table),
            "items_without_features": items.unknown,
            "parts": {part: folder.count_part(names, rows, split) for part, rows in parts.items()},
        }

    def _encoded(self, connection: Connection, what: str, ids: Any) -> features.Encoded:
        """Features of users or items, fitted on train users or on what they viewed."""
        declared = self.schema.user_features if what == "users" else self.schema.item_features
        train = "splits WHERE split = 0" if what == "users" else engine.parquet([self.viewed])
        tables = [engine.parquet([path]) for path in sorted(self.work.glob(f"{what}*.parquet"))]
        return features.encoded(connection, declared, tables, f"SELECT id FROM {train}", ids)

    def _described(self) -> dict[str, Any]:
        """What the manifest says of the data before anything is counted."""
        return {
            "name": self.files.name,
            "absent": self.files.absent,
            "warnings": self.files.warnings,
            "primary": "random" if self.primary_is_random else "standard",
            "signals": {signal.name: asdict(signal) for signal in self.schema.signals},
            "context": {name: size for name, (_, size) in self.schema.context.items()},
            "window": self.schema.window,
        }


def _sha256(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
