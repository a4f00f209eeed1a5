"""CSV files looked at before DuckDB reads them, and again where it finds something wrong: errors name line and column.

`inspect` reads a file once as bytes: header, length of its lines, its end, its hash. `complain` reads it record by
record to find the line that is wrong; that is slow, and done only where something is.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac.logs.schema import Table

LONGEST = 1 << 17
"""Bytes of a line, with its end. DuckDB drops rows without a word where a line has more than two million."""
_BLOCK = 1 << 22
_DIGITS = b"0123456789-,\r\n"
"""All bytes of the rows of a table that is `digits_only`."""
_HINT = re.compile(r"CSV Error on Line: (\d+)")
_WHOLE = re.compile(r"-?[0-9]{1,4000}")
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SHOWN = 40


@final
@dataclass(frozen=True)
class File:
    """A file that has been looked at.

    Attributes:
        path: where it is.
        table: of its columns.
        header: column names as they stand in it.
        size: in bytes.
        sha256: of its content.
        rows: lines after the header.
        dos: its lines end with carriage return and line feed.
    """

    path: Path
    table: Table
    header: tuple[str, ...]
    size: int
    sha256: str
    rows: int
    dos: bool


def inspect(path: Path, table: Table) -> File:
    """Read a file once: check header, lines and end, refuse bytes that cannot be in it, and hash it."""
    with path.open("rb") as stream:
        first = stream.readline(LONGEST)
        header = _header(path, first, table)
        scan = _Scan(path, table, first)
        while block := stream.read(_BLOCK):
            scan.take(block)
    file = File(path, table, header, scan.size, scan.digest.hexdigest(), scan.rows, first.endswith(b"\r\n"))
    if scan.size == len(first):
        raise ValueError(f"{path}, line 2: must hold at least one row, got none.")
    if scan.begun:
        number, fields = deque(records(file), maxlen=1)[0]
        raise ValueError(
            f"{path}, line {number}: must end with a new line, got {fields[-1][-40:]!r}: the file is truncated."
        )
    if scan.suspicious:
        complain(file, None)
    return file


def records(file: File) -> Iterator[tuple[int, list[str]]]:
    """Fields after the header with the number of their line, from 2; empty lines are left out."""
    with file.path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        next(stream)
        if file.table.digits_only:
            lines = ((n, text.removesuffix("\n")) for n, text in enumerate(stream, 2))
            yield from ((n, text.split(",")) for n, text in lines if text.strip("\r"))
            return
        reader, number = csv.reader(stream), 2
        try:
            for fields in reader:
                if fields:
                    yield number, fields
                number = reader.line_num + 2
        except csv.Error as error:
            raise ValueError(f"{file.path}, line {number}: cannot be read: {error}.") from None


def complain(file: File, error: Exception | None) -> None:
    """Raise a ValueError that names the line which is wrong; return if none is."""
    hinted = _HINT.search(str(error))
    for number, fields in records(file):
        if hinted is None or number == int(hinted.group(1)):
            mistake = _mistake(file, fields)
            if mistake is not None:
                raise ValueError(f"{file.path}, line {number}: {mistake}.")
    if hinted is not None:
        complain(file, None)


def place_of(files: Iterable[File], column: str, value: int, occurrence: int = 1) -> str:
    """`FILE, line N`, where a column of some files holds a value for the first time, or for a later one."""
    for file in files:
        at = file.header.index(column)
        for number, fields in records(file):
            if _WHOLE.fullmatch(fields[at]) and int(fields[at]) == value:
                occurrence -= 1
                if not occurrence:
                    return f"{file.path}, line {number}"
    return f"`{column}`"


@final
class _Scan:
    """What is known of a file, block by block; `begun` is how much of a line the last block ended with."""

    def __init__(self, path: Path, table: Table, first: bytes) -> None:
        self.path, self.table = path, table
        self.digest, self.size = hashlib.sha256(first), len(first)
        self.rows, self.begun, self.suspicious = 0, 0, False

    def take(self, block: bytes) -> None:
        """The next block."""
        self.digest.update(block)
        self._refuse_overlong(block)
        unusual = block.translate(None, _DIGITS) if self.table.digits_only else b"\0" in block
        self.suspicious = self.suspicious or bool(unusual)
        self.size, self.rows = self.size + len(block), self.rows + block.count(b"\n")
        end = block.rfind(b"\n")
        self.begun = self.begun + len(block) if end < 0 else len(block) - end - 1

    def _refuse_overlong(self, block: bytes) -> None:
        """Jump from line to line, as far as a line may reach."""
        start = -self.begun
        while start + LONGEST < len(block):
            end = block.rfind(b"\n", max(start, 0), start + LONGEST)
            if end < 0:
                number = self.rows + block.count(b"\n", 0, max(start, 0)) + 2
                raise ValueError(f"{self.path}, line {number}: must have at most {LONGEST} bytes, got more.")
            start = end + 1


def _header(path: Path, line: bytes, table: Table) -> tuple[str, ...]:
    where = f"{path}, line 1:"
    text = line.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
    if b"\r" in text:
        raise ValueError(f"{where} must end with a line feed, got a carriage return alone.")
    if len(line) == LONGEST and not line.endswith(b"\n"):
        raise ValueError(f"{where} must have at most {LONGEST} bytes, got more.")
    try:
        header = tuple(next(csv.reader([text.decode()]), []))
    except UnicodeDecodeError:
        header = ()
    missing = [name for name in table.columns if name not in header]
    if missing:
        raise ValueError(f"{where} must name the column `{missing[0]}` ({table.name}), got {line[:60]!r}.")
    for name, count in Counter(header).items():
        if count > 1 or not name:
            raise ValueError(f"{where} must name every column, each once, got `{_shown(name)}` {count} times.")
    return header


def _mistake(file: File, fields: list[str]) -> str | None:
    """What is wrong with a record, or nothing."""
    if len(fields) != len(file.header):
        return f"must have {len(file.header)} fields, got {len(fields)}"
    if file.table.digits_only and file.dos:
        if not fields[-1].endswith("\r"):
            return "must end with carriage return and line feed, as line 1 does"
        fields = [*fields[:-1], fields[-1][:-1]]
    for name, value in zip(file.header, fields, strict=True):
        rule = _broken_rule(file.table, name, value)
        if rule is not None:
            return f"`{name}` must be {rule}, got {_shown(value)!r}"
    return None


def _broken_rule(table: Table, name: str, value: str) -> str | None:
    """The rule that a value breaks, or nothing."""
    kind = table.columns.get(name, "VARCHAR")
    if kind == "VARCHAR":
        is_text = value.isprintable() or not re.search("[\0\udc80-\udcff]", value)
        return None if is_text else "text in UTF-8 without NUL"
    low, high = table.range_of(name)
    pattern, number, convert = (_NUMBER, "number", float) if kind == "DOUBLE" else (_WHOLE, "whole number", int)
    missing = value == "" and not table.is_required(name)
    if missing or (pattern.fullmatch(value) and low <= convert(value) <= high):
        return None
    return f"a {number} in [{low}, {high}]"


def _shown(value: str) -> str:
    """What a message shows of a text: its beginning."""
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
