"""A log's files to Parquet: feature tables as they are, logs scattered into buckets of users."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from moac.logs import engine
from moac.logs.engine import Connection, File
from moac.logs.schema import LogFiles, Schema, column

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""
_HASH = 2_654_435_761
"""Knuth's multiplicative hash: neighbouring users fall into different buckets."""
_BUFFERED = 1 << 19
"""Rows that all buckets together buffer in a thread while a log is scattered; of DuckDB's own, half a million of each
bucket, 256 buckets would not fit into memory."""


@dataclass(frozen=True)
class Reader:
    """Reads each file once; what an earlier attempt has written is left out."""

    files: LogFiles
    by_path: Mapping[Path, File]  # the same, as they were inspected
    work: Path  # folder to write into
    num_buckets: int

    @property
    def schema(self) -> Schema:
        """Of the files."""
        return self.files.schema

    @property
    def logs(self) -> list[File]:
        """All logs."""
        return [self.by_path[path] for path in (*self.files.standard, *self.files.random)]

    def copy_tables(self, connection: Connection) -> None:
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

    def scatter(self, connection: Connection, say: Progress) -> None:
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
        hashed = f"({column(self.schema.user)}::HUGEINT * {_HASH}) & 4294967295"
        bucket = f"(({hashed}) >> {33 - self.num_buckets.bit_length()})::INTEGER"
        random = file.path in self.files.random
        query = f"SELECT *, {random} AS random, {bucket} AS bucket FROM {engine.csv_table(file)}"
        engine.copy_csv(connection, query, [file], temporary, ", PARTITION_BY (bucket)")
        temporary.replace(out)
