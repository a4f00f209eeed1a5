"""DuckDB under a memory cap: connections, SQL that reads and writes files, errors of one line. The only door to it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import duckdb

from moac import machine
from moac.logs import csv_files
from moac.logs.csv_files import File
from moac.logs.schema import column

Connection = duckdb.DuckDBPyConnection
_RESERVED = 400_000_000
"""Of any cap: for Python, NumPy, and a bucket at a time."""
SMALLEST = _RESERVED + 100_000_000
_LOOK_EVERY = 0.2
_FULL = ("no space left", "could not write", "max_temp_directory_size", "disk quota")


@final
@dataclass(frozen=True)
class Limits:
    """What a process may use.

    Attributes:
        memory: the cap on the process, in bytes.
        threads: of DuckDB; None is one per core.
    """

    memory: int
    threads: int | None = None


def limits(memory: str, threads: int | None) -> Limits:
    """From `2GB` to bytes."""
    size = machine.size("memory_limit", memory)
    if size < SMALLEST:
        raise ValueError(f"`memory_limit` must be at least {SMALLEST // 10**6}MB, got {memory}.")
    if threads is not None and threads < 1:
        raise ValueError(f"`threads` must be at least 1, got {threads}.")
    return Limits(size, threads)


@contextmanager
def connect(limits: Limits, spill: Path) -> Generator[Connection]:
    """A database in memory that spills into the folder `spill`."""
    config: dict[str, Any] = {
        "memory_limit": f"{limits.memory - _RESERVED}B",
        "temp_directory": str(spill),
        "threads": limits.threads or os.cpu_count() or 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with _errors_of_one_line(limits, spill), duckdb.connect(config=config) as connection:
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        yield connection


@contextmanager
def _errors_of_one_line(limits: Limits, folder: Path) -> Generator[None]:
    """DuckDB's errors as ours: a full disk is an OSError, all others are ValueErrors."""
    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if any(words in text.lower() for words in _FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from None
        if isinstance(error, duckdb.OutOfMemoryException):
            cap = limits.memory // 10**6
            raise ValueError(f"`memory_limit` of {cap}MB is too small for this data: give more.") from None
        raise ValueError(f"{folder.parent} cannot be worked on: {text.splitlines()[0].rstrip('.')}.") from error


def watch(connection: Connection, work: Callable[[], None], show: Callable[[float], None]) -> None:
    """Run a long query in a thread and show the share of it that is done; Ctrl-C ends it."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        try:
            while not wait([running], timeout=_LOOK_EVERY).done:
                show(max(connection.query_progress(), 0.0) / 100)
        except BaseException:
            connection.interrupt()
            raise
    running.result()


def quoted(text: Any) -> str:
    """A string of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def parquet(paths: Iterable[Path]) -> str:
    """Parquet files as one table of SQL."""
    return f"read_parquet({_listed(paths)}, hive_partitioning = false)"


def copy(query: str, out: Path, options: str = "") -> str:
    """SQL that writes the answer of a query as Parquet."""
    return f"COPY ({query}) TO {quoted(out)} (FORMAT parquet{options})"


def copy_whole(connection: Connection, query: str, out: Path) -> None:
    """Write the answer of a query as a Parquet file that is whole or not there."""
    temporary = out.with_name(f".{out.name}.tmp")
    connection.execute(copy(query, temporary, ", COMPRESSION zstd"))
    temporary.replace(out)


def copy_csv(connection: Connection, query: str, files: Sequence[File], out: Path, options: str = "") -> int:
    """Write an answer that reads CSV files as Parquet; its rows. Where a file is wrong, the error names a line."""
    try:
        (written,) = connection.execute(copy(query, out, options)).fetchone() or (0,)
        return int(written)
    except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
        for file in files:
            csv_files.complain(file, error if len(files) == 1 else None)
        raise ValueError(f"{files[0].path} cannot be read: {str(error).splitlines()[0]}.") from None


def csv_table(file: File) -> str:
    """A CSV file as a table of SQL, with nothing left to guess; a value out of its range is an error.

    DuckDB rounds fractions and reads 0x1 on its way to a whole number. `inspect` has searched a table of digits for
    such bytes; whole numbers of other tables are read as text and checked.
    """
    table = file.table
    checked = {name for name, kind in table.columns.items() if kind.endswith("INT") or kind == "INTEGER"}
    checked = set[str]() if table.digits_only else checked
    raw = {name: "VARCHAR" if name in checked else table.columns.get(name, "VARCHAR") for name in file.header}
    types = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in raw.items())
    marks = "quote = '', escape = ''" if table.digits_only else "quote = '\"', escape = '\"'"
    rows = (
        f"read_csv({quoted(file.path)}, columns = {{{types}}}, auto_detect = false, header = true, delim = ',', "
        f"{marks}, force_not_null = {_listed(name for name in file.header if table.is_required(name))})"
    )
    typed = ", ".join(_whole(name, kind) if name in checked else column(name) for name, kind in table.columns.items())
    bounded = [name for name, kind in table.columns.items() if name in table.ranges or kind == "DOUBLE"]
    bounds = {name: table.range_of(name) for name in bounded}
    right = [f"coalesce({column(name)} BETWEEN {low} AND {high}, true)" for name, (low, high) in bounds.items()]
    condition = f"CASE WHEN {' AND '.join(right) or 'true'} THEN true ELSE error('a number is out of its range') END"
    return f"(SELECT * FROM (SELECT {typed} FROM {rows}) WHERE {condition})"


def _whole(name: str, kind: str) -> str:
    """A column of text as whole numbers."""
    text = column(name)
    right = f"coalesce(regexp_full_match({text}, '-?[0-9]+'), true)"
    return f"(CASE WHEN {right} THEN {text} ELSE error('it is no whole number') END)::{kind} AS {text}"


def _listed(texts: Iterable[Any]) -> str:
    return "[" + ", ".join(quoted(text) for text in texts) + "]"
