"""DuckDB under a memory cap, and the files that it reads, each value checked.

A value that is wrong ends with one line that names the file, the row and the column; the header of a CSV file is row 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import duckdb

from moac import tasks
from moac.choices import did_you_mean
from moac.logs.connection import Connection, naming_full_disk
from moac.logs.schema import Table, column
from moac.logs.source_files import check_gzip, header_of, is_parquet

_RESERVED = 400_000_000
"""Of any cap: for Python, NumPy, and a bucket at a time."""
SMALLEST = _RESERVED + 100_000_000
_SHOWN, _LISTED = 40, 400
_BROKEN = "a value fails a check"
_DATES = "dateformat = '%Y-%m-%d', timestampformat = '%Y-%m-%d %H:%M:%S'"
"""Beside other ISO forms; DuckDB would also guess at 05/04/2022, by what else is in the file."""

_GAP = "__HIVE_DEFAULT_PARTITION__"


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
        with naming_full_disk(spill), Connection(config) as connection:
            connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
            # so that what is read depends on neither the machine's time zone nor the cast that a query begins with
            connection.execute("SET TimeZone = 'UTC'; SET disabled_optimizers = 'type_pushdown'")
            yield connection
    except duckdb.Error as error:
        if isinstance(error, duckdb.OutOfMemoryException):
            cap = limits.memory // 10**6
            raise ValueError(f"`memory_limit` of {cap}MB is too small for this data: give more.") from None
        raise ValueError(f"{spill.parent} cannot be worked on: {first_line(error)}.") from error


def watch(connection: Connection, work: Callable[[], None], show: Callable[[float], None]) -> None:
    """Run a long query and show the share of it that is done."""
    connection.run(work, lambda: show(connection.progress))


def first_line(error: duckdb.Error) -> str:
    """The first line of DuckDB's message, without its full stop."""
    return str(error).splitlines()[0].rstrip(".")


def quoted(text: Any) -> str:
    """A string of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def _listed(texts: Iterable[Any]) -> str:
    return "[" + ", ".join(quoted(text) for text in texts) + "]"


def _struct(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in types.items()) + "}"


def parquet(paths: Iterable[Path]) -> str:
    """Parquet files as one table of SQL."""
    return f"read_parquet({_listed(paths)}, hive_partitioning = false)"


def columns_of(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Columns of a Parquet file as arrays; a file that has them not is a ValueError."""
    try:
        with Connection() as connection:
            return connection.execute(f"SELECT {', '.join(map(column, names))} FROM {parquet([path])}").fetchnumpy()
    except duckdb.Error as error:
        raise ValueError(f"{path} cannot be read: {first_line(error)}.") from None


def copy_whole(connection: Connection, query: str, out: Path) -> None:
    """Write the answer of a query as a Parquet file that is whole or not there."""
    temporary = out.with_name(f".{out.name}.tmp")
    connection.execute(f"COPY ({query}) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd)")
    temporary.replace(out)


def check_once(connection: Connection, table: str, key: str, what: str) -> None:
    """Refuse a table of SQL that has one key twice, or a row without a key; `what` names it."""
    wrong = f"HAVING count(*) > 1 OR {key} IS NULL ORDER BY {key} NULLS FIRST LIMIT 1"
    found = connection.execute(f"SELECT {key} FROM {table} GROUP BY {key} {wrong}").fetchone()
    if found == (None,):
        raise ValueError(f"{what} must be an id in every row, got nothing.")
    if found is not None:
        raise ValueError(f"{what} {found[0]} must occur once, got it again.")


class Check(NamedTuple):
    """What a column must hold."""

    column: str  # as messages name it
    condition: str  # SQL over the columns that are read, true where a value is right
    right: str  # in words
    text: str  # SQL of the value as it stands in the file
    advice: str = ""  # what to do about a gap


@dataclass(frozen=True)
class Source:
    """A file as a table of SQL; a value that fails a check is an error."""

    path: Path
    rows: str  # SQL of the file
    types: Mapping[str, str]  # of its columns, as DuckDB names them
    columns: Mapping[str, str] = field(default_factory=dict)  # SQL of each column that is read, by its new name
    checks: tuple[Check, ...] = ()  # of them

    def require(self, name: str, advice: str = "") -> None:
        """Refuse a column that is not there; what to do follows the names of those that are."""
        if name not in self.types:
            near = did_you_mean(name, list(self.types)) or f" It has {', '.join(self.types)[:_LISTED]}.{advice}"
            raise ValueError(f"{self.path} must have the column `{name}`, which is missing.{near}")

    @property
    def with_folders(self) -> Source:
        """With a column for each folder `name=value` it is in, as Spark writes them, that the file does not have."""
        known = {name.lower() for name in self.types}
        named = (folder.partition("=") for folder in self.path.parent.parts)
        found = {name: unquote(value) for name, _, value in named if name and value and name.lower() not in known}
        texts = (f", {'NULL' if v == _GAP else quoted(v)}::VARCHAR AS {column(name)}" for name, v in found.items())
        rows = f"(SELECT *{''.join(texts)} FROM {self.rows})" if found else self.rows
        return replace(self, rows=rows, types={**self.types, **dict.fromkeys(found, "VARCHAR")})

    @property
    def table(self) -> str:
        """SQL of the columns that are read."""
        right = " AND ".join(f"({check.condition})" for check in self.checks)
        checked = f" WHERE CASE WHEN {right} THEN true ELSE error('{_BROKEN}') END" if right else ""
        return f"(SELECT * FROM {self._selected()}{checked})"

    def _selected(self, more: str = "") -> str:
        columns = ", ".join(f"{expression} AS {column(name)}" for name, expression in self.columns.items())
        return f"(SELECT {columns}{more} FROM {self.rows})"

    def complain(self, connection: Connection) -> None:
        """Raise a ValueError that names the first value that fails a check; return if none does."""
        texts = ", ".join(f"({check.text})::VARCHAR" for check in self.checks)
        numbered = self._selected(f", row_number() OVER () AS row, [{texts}] AS texts")
        broken = " ".join(f"WHEN ({check.condition}) IS NOT TRUE THEN {k}" for k, check in enumerate(self.checks, 1))
        query = f"SELECT row, broken, texts[broken] FROM (SELECT *, CASE {broken} END AS broken FROM {numbered})"
        wrong = connection.execute(f"{query} WHERE broken > 0 LIMIT 1").fetchone() if self.checks else None
        if wrong is not None:
            row, at, text = wrong
            check, header = self.checks[at - 1], not is_parquet(self.path)
            got = f"nothing{check.advice}" if text is None else repr(text[:_SHOWN])
            raise ValueError(f"{self.path}, row {row + header}: `{check.column}` must be {check.right}, got {got}.")


def source(connection: Connection, path: Path, table: Table, texts: Iterable[str] = ()) -> Source:
    """A file with the columns of a table, or, where the table names none, all columns with the types that are found.

    It is CSV, also with gzip, or Parquet; `texts` are columns that are read as they are written, where types are found.
    """
    if is_parquet(path):
        return _declared(Source(path, parquet([path]), types_of(connection, path, parquet([path]))), table)
    mark, header = header_of(path)
    types = {name: table.columns.get(name, "VARCHAR") for name in header}
    _check_names(path, header if table.columns else [name for name in header if name])
    gapless = [name for name in table.required if name in types]
    known = f", force_not_null = {_listed(gapless)}" if gapless else ""
    exact = _csv(path, mark, f"auto_detect = false, columns = {_struct(types)}{known}")
    if table.columns:
        return _declared(Source(path, exact, types), table)
    kept = {name: "VARCHAR" for name in texts if name in header}
    rows = _csv(path, mark, f"skip = 0, sample_size = -1, {_DATES}{f', types = {_struct(kept)}' if kept else ''}")
    try:
        return Source(path, rows, types_of(connection, path, rows))
    except ValueError:  # without guessing, the error names the row
        types_of(connection, path, f"(SELECT count(*) FROM {exact})", "")
        raise


def texts(path: Path) -> str:
    """A CSV file as a table of SQL, each value as it is written."""
    check_gzip(path)
    mark, header = header_of(path)
    names = [name or f"column{k}" for k, name in enumerate(header)]
    _check_names(path, names)
    return _csv(path, mark, f"auto_detect = false, columns = {_struct(dict.fromkeys(names, 'VARCHAR'))}")


def _csv(path: Path, mark: str, more: str) -> str:
    how = f"header = true, delim = {quoted(mark)}, quote = '\"', escape = '\"', hive_partitioning = false"
    return f"read_csv({quoted(path)}, {how}, {more})"


def _check_names(path: Path, header: Sequence[str]) -> None:
    wrong = [name for name in header if not name or header.count(name) > 1]
    if wrong:
        shown = f"{wrong[0]!r} in {','.join(header)[:_LISTED]}"
        raise ValueError(f"{path}, row 1: must name every column once, got {shown}.")


def _declared(source: Source, table: Table) -> Source:
    """With the columns of a table, and checks by their ranges."""
    for name in table.columns:
        source.require(name)
    checks = list[Check]()
    for name, (low, high) in table.ranges.items():
        gap = "" if name in table.required else f"{column(name)} IS NULL OR "
        condition = f"{gap}{column(name)} BETWEEN {low} AND {high}"
        checks.append(Check(name, condition, f"in [{low}, {high}]", column(name)))
    return replace(source, columns={name: column(name) for name in table.columns}, checks=tuple(checks))


def types_of(connection: Connection, path: Path, rows: str, verb: str = "DESCRIBE ") -> dict[str, str]:
    """The columns of SQL rows, and their types."""
    try:
        described = connection.execute(f"{verb}SELECT * FROM {rows}").fetchall()
        return {str(row[0]): str(row[1]) for row in described if verb}
    except duckdb.Error as error:
        raise ValueError(in_one_line(path, str(error))) from None


def copy_checked(connection: Connection, query: str, sources: Sequence[Source], out: Path, options: str = "") -> None:
    """Write an answer that reads some sources as Parquet. Where a file is wrong, the error names it, and the row."""
    try:
        connection.execute(f"COPY ({query}) TO {quoted(out)} (FORMAT parquet{options})")
    except (duckdb.BinderException, duckdb.ParserException) as error:
        if missing := re.search(r'Referenced column "(.+?)" not found', str(error)):
            sources[0].require(missing[1])
        first = re.sub(r"^(Binder|Parser) Error: ", "", str(error).splitlines()[0]).rstrip(".")
        raise ValueError(f"{sources[0].path}: {first}.") from None
    except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
        message = str(error)
        wrong = next((each for each in sources if str(each.path) in message), sources[0])
        try:
            for each in sources if _BROKEN in message else ():
                each.complain(connection)
        except duckdb.Error as earlier:
            message = str(earlier)
        raise ValueError(in_one_line(wrong.path, message)) from None


def in_one_line(path: Path, message: str) -> str:
    """DuckDB's message on a CSV file: its row, and what is wrong with it."""
    at = re.search(r"CSV Error on Line: (\d+)", message)
    why = re.search(r"^(Expected Number|Error when|Invalid unicode|Maximum line|Value with).*", message, re.MULTILINE)
    if at is None or why is None:
        return f"{path} cannot be read: {message.splitlines()[0].rstrip('.')}."
    return f"{path}, row {at[1]}: {why[0].rstrip('. ')}."
