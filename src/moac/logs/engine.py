"""DuckDB under a memory cap, and CSV files that it reads with nothing left to guess. The only door to it.

A file that is wrong ends with one line that names the file, the row and the column; rows count from the header, row 1.
"""

from __future__ import annotations

import codecs
import csv
import errno
import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from moac import tasks
from moac.logs.schema import Table, column

Connection = duckdb.DuckDBPyConnection
_RESERVED = 400_000_000
"""Of any cap: for Python, NumPy, and a bucket at a time."""
SMALLEST = _RESERVED + 100_000_000
_LOOK_EVERY = 0.2
_FULL = ("no space left", "could not write", "max_temp_directory_size", "disk quota")
_BLOCK = 1 << 20
"""Bytes read at a time. A line without an end in a block is refused: DuckDB drops far longer ones without a word."""
_DIGITS = b"0123456789-,\r\n"
"""All bytes of the rows of a table that is `digits_only`."""
_WHOLE, _NUMBER = "-?[0-9]{1,38}", r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_SHOWN = 40


@dataclass(frozen=True)
class Limits:
    """What a process may use."""

    memory: int  # the cap on the process, in bytes
    threads: int | None = None  # of DuckDB; None is one per core


def limits(memory: str, threads: int | None) -> Limits:
    """From `2GB` to bytes."""
    size = tasks.size("memory_limit", memory)
    if size < SMALLEST:
        raise ValueError(f"`memory_limit` must be at least {SMALLEST // 10**6}MB, got {memory}.")
    if threads is not None and threads < 1:
        raise ValueError(f"`threads` must be at least 1, got {threads}.")
    return Limits(size, threads)


@contextmanager
def connect(limits: Limits, spill: Path) -> Generator[Connection]:
    """A database in memory that spills into the folder `spill`; a full disk is an OSError, all else a ValueError."""
    config: dict[str, Any] = {
        "memory_limit": f"{limits.memory - _RESERVED}B",
        "temp_directory": str(spill),
        "threads": limits.threads or os.cpu_count() or 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    try:
        with duckdb.connect(config=config) as connection:
            connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
            yield connection
    except duckdb.Error as error:
        text = str(error)
        if any(words in text.lower() for words in _FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(spill)) from None
        if isinstance(error, duckdb.OutOfMemoryException):
            cap = limits.memory // 10**6
            raise ValueError(f"`memory_limit` of {cap}MB is too small for this data: give more.") from None
        raise ValueError(f"{spill.parent} cannot be worked on: {text.splitlines()[0].rstrip('.')}.") from error


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


def _listed(texts: Iterable[Any]) -> str:
    return "[" + ", ".join(quoted(text) for text in texts) + "]"


def parquet(paths: Iterable[Path]) -> str:
    """Parquet files as one table of SQL."""
    return f"read_parquet({_listed(paths)}, hive_partitioning = false)"


def columns_of(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Columns of a Parquet file as arrays; a file that has them not is a ValueError."""
    try:
        with duckdb.connect() as connection:
            return connection.execute(f"SELECT {', '.join(map(column, names))} FROM {parquet([path])}").fetchnumpy()
    except duckdb.Error as error:
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def copy_whole(connection: Connection, query: str, out: Path) -> None:
    """Write the answer of a query as a Parquet file that is whole or not there."""
    temporary = out.with_name(f".{out.name}.tmp")
    connection.execute(f"COPY ({query}) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd)")
    temporary.replace(out)


@dataclass(frozen=True)
class File:
    """A CSV file that has been looked at."""

    path: Path  # where it is
    table: Table  # of its columns
    header: tuple[str, ...]  # column names as they stand in it
    size: int  # in bytes
    sha256: str  # of its content

    def rows(self, types: dict[str, str]) -> str:
        """Its rows as a table of SQL; a column without a type is text."""
        listed = ", ".join(f"{quoted(name)}: {quoted(types.get(name, 'VARCHAR'))}" for name in self.header)
        marks = "quote = '', escape = ''" if self.table.digits_only else "quote = '\"', escape = '\"'"
        return (
            f"read_csv({quoted(self.path)}, columns = {{{listed}}}, auto_detect = false, header = true, delim = ',', "
            f"{marks}, force_not_null = {_listed(filter(self.table.is_required, self.header))})"
        )


def inspect(path: Path, table: Table) -> File:
    """Read a file once as bytes: check its header and its end, and hash it."""
    digest, size, end, unusual = hashlib.sha256(), 0, b"", False
    with path.open("rb") as stream:
        first = re.split(rb"[\r\n]", stream.read(_BLOCK), maxsplit=1)[0]
        header = _header(path, first.removeprefix(codecs.BOM_UTF8), table)
        stream.seek(len(first))
        digest.update(first)
        while block := stream.read(_BLOCK):
            if len(block) == _BLOCK and b"\n" not in block and b"\r" not in block:
                raise ValueError(f"{path} must have lines of at most {_BLOCK} bytes, got a longer one.")
            digest.update(block)
            size, end = size + len(block), (end + block)[-_SHOWN:]
            unusual = unusual or (table.digits_only and bool(block.translate(None, _DIGITS)))
    file = File(path, table, header, len(first) + size, digest.hexdigest())
    if size <= len(b"\r\n"):
        raise ValueError(f"{path} must hold at least one row, got none.")
    if not end.endswith((b"\n", b"\r")):
        raise ValueError(f"{path} must end with a new line, got {end!r}: the file is truncated.")
    if unusual:  # DuckDB would round 1.5 and read 0x1
        with duckdb.connect() as connection:
            _complain(connection, file)
    return file


def hashed(path: Path, table: Table) -> File:
    """A file of any kind, with the hash of its bytes."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return File(path, table, (), path.stat().st_size, digest)


def _header(path: Path, line: bytes, table: Table) -> tuple[str, ...]:
    header = tuple(next(csv.reader([line.decode(errors="replace").replace("\0", "")]), []))
    for name in table.columns:
        if name not in header:
            raise ValueError(f"{path}, row 1: must name the column `{name}` ({table.name}), got {line[:60]!r}.")
    for name in header:
        if not name or header.count(name) > 1:
            raise ValueError(f"{path}, row 1: must name every column once, got `{_shown(name)}`.")
    return header


def csv_table(file: File) -> str:
    """A CSV file as a table of SQL with the types of its columns; a value that breaks its rule is an error.

    DuckDB rounds fractions and reads 0x1 on its way to a whole number: `inspect` has searched files of digits for such
    bytes, and their columns are read as numbers at once; all others are read as text and checked.
    """
    table = file.table
    if file.path.suffix == ".parquet":  # which `moac.logs.own` wrote, checked
        return f"(SELECT {', '.join(map(column, table.columns))} FROM {parquet([file.path])})"
    if table.digits_only:
        bounds = {name: table.range_of(name) for name in table.ranges}
        right = [f"{column(name)} BETWEEN {low} AND {high}" for name, (low, high) in bounds.items()]
        columns, rows = ", ".join(map(column, table.columns)), file.rows(dict(table.columns))
        return f"(SELECT {columns} FROM {rows} WHERE {_or_error(' AND '.join(right) or 'true', 'true')})"
    values = [
        f"{_or_error(_rule(table, name), column(name))}::{kind} AS {column(name)}"
        for name, kind in table.columns.items()
    ]
    return f"(SELECT {', '.join(values)} FROM {file.rows({})})"


def _or_error(rule: str, value: str) -> str:
    return f"(CASE WHEN {rule} THEN {value} ELSE error('a value breaks its rule') END)"


def _rule(table: Table, name: str) -> str:
    """SQL that is true of a text which the column may hold."""
    kind, text = table.columns[name], column(name)
    if kind == "VARCHAR":
        return "true"
    pattern, wide = (_NUMBER, "DOUBLE") if kind == "DOUBLE" else (_WHOLE, "HUGEINT")
    low, high = table.range_of(name)
    number = f"try_cast({text} AS {wide}) BETWEEN {low}::{wide} AND {high}::{wide}"
    right = f"regexp_full_match({text}, {quoted(pattern)}) AND coalesce({number}, false)"
    return right if table.is_required(name) else f"({text} IS NULL OR ({right}))"


def copy_csv(connection: Connection, query: str, files: Sequence[File], out: Path, options: str = "") -> None:
    """Write an answer that reads CSV files as Parquet. Where a file is wrong, the error names a row."""
    try:
        connection.execute(f"COPY ({query}) TO {quoted(out)} (FORMAT parquet{options})")
    except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
        for file in files:
            _complain(connection, file)
        raise ValueError(f"{files[0].path} cannot be read: {str(error).splitlines()[0]}.") from None


def _complain(connection: Connection, file: File) -> None:
    """Raise a ValueError that names the first value which breaks its rule; return if none does."""
    names = list(file.table.columns)
    broken = " ".join(f"WHEN NOT ({_rule(file.table, name)}) THEN {k}" for k, name in enumerate(names, 1))
    texts = ", ".join(map(column, names))
    numbered = f"SELECT row_number() OVER () + 1 AS row, CASE {broken} END AS broken, [{texts}] AS texts"
    query = f"SELECT row, broken, texts[broken] FROM ({numbered} FROM {file.rows({})}) WHERE broken > 0 LIMIT 1"
    try:
        wrong = connection.execute(query).fetchone()
    except duckdb.Error as error:
        raise ValueError(told(file.path, str(error))) from None
    if wrong is not None:
        row, at, text = wrong
        name = names[at - 1]
        kind = "number" if file.table.columns[name] == "DOUBLE" else "whole number"
        low, high = file.table.range_of(name)
        raise ValueError(
            f"{file.path}, row {row}: `{name}` must be a {kind} in [{low}, {high}], got {_shown(text or '')!r}."
        )


def told(path: Path, message: str) -> str:
    """DuckDB's message on a CSV file as one line: its row, and what is wrong with it."""
    at = re.search(r"CSV Error on Line: (\d+)", message)
    why = re.search(r"^(Expected Number|Error when|Invalid unicode|Maximum line).*", message, re.MULTILINE)
    if at is None or why is None:
        return f"{path} cannot be read: {message.splitlines()[0].rstrip('.')}."
    return f"{path}, row {at[1]}: {why[0].rstrip('.')}."


def place_of(connection: Connection, files: Iterable[File], name: str, value: int, occurrence: int = 1) -> str:
    """`FILE, row N`, where a column of some files holds a value for the first time, or for a later one."""
    for file in files:
        numbered = f"SELECT row_number() OVER () + 1 AS row, {column(name)} AS text FROM {file.rows({})}"
        found = connection.execute(f"SELECT row FROM ({numbered}) WHERE try_cast(text AS HUGEINT) = {value}").fetchall()
        if len(found) >= occurrence:
            return f"{file.path}, row {found[occurrence - 1][0]}"
        occurrence -= len(found)
    return f"`{name}`"


def _shown(value: str) -> str:
    """What a message shows of a text: its beginning."""
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
