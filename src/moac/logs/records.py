"""The records of a file, read one by one to find the line that is wrong; slow, for DuckDB reads what is right."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac.kuairand.schema import LOG, Kind, range_of

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
        kind: of its columns.
        header: column names as they stand in it.
        size: in bytes.
        sha256: of its content.
        rows: lines after the header.
        dos: its lines end with carriage return and line feed.
    """

    path: Path
    kind: Kind
    header: tuple[str, ...]
    size: int
    sha256: str
    rows: int
    dos: bool

    @property
    def is_log(self) -> bool:
        """Whether its columns are a log's."""
        return self.kind.columns is LOG

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns without a gap: all of a log's, and ids."""
        return tuple(name for name in self.header if self.is_log or name in ("user_id", "video_id"))


def read(file: File) -> Iterator[tuple[int, list[str]]]:
    """Fields after the header with the number of their line, from 2; empty lines are left out."""
    with file.path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        next(stream)
        if file.is_log:
            yield from (
                (n, text.removesuffix("\n").split(",")) for n, text in enumerate(stream, 2) if text.strip("\r\n")
            )
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
    for number, fields in read(file):
        if hinted is None or number == int(hinted.group(1)):
            _refuse(file, number, fields)
    if hinted is not None:
        complain(file, None)


def line_of(file: File, column: str, value: int, occurrence: int = 1) -> int:
    """The line on which a column holds a value for the first time, or the one after that; 0 where it does not."""
    place = file.header.index(column)
    for number, fields in read(file):
        if _WHOLE.fullmatch(fields[place]) and int(fields[place]) == value:
            occurrence -= 1
            if not occurrence:
                return number
    return 0


def shown(value: str) -> str:
    """What a message shows of a text: its beginning."""
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"


def _refuse(file: File, number: int, fields: list[str]) -> None:
    wrong = _wrong(file, fields)
    if wrong is not None:
        raise ValueError(f"{file.path}, line {number}: {wrong}.")


def _wrong(file: File, fields: list[str]) -> str | None:
    """What is wrong with a record, or nothing."""
    if len(fields) != len(file.header):
        return f"must have {len(file.header)} fields, got {len(fields)}"
    if file.is_log and file.dos:
        if not fields[-1].endswith("\r"):
            return "must end with carriage return and line feed, as line 1 does"
        fields = [*fields[:-1], fields[-1][:-1]]
    for name, value in zip(file.header, fields, strict=True):
        rule = _rule_against(file, name, value)
        if rule is not None:
            return f"`{name}` must be {rule}, got {shown(value)!r}"
    return None


def _rule_against(file: File, name: str, value: str) -> str | None:
    """The rule that a value breaks, or nothing."""
    kind = file.kind.columns.get(name, "VARCHAR")
    if kind == "VARCHAR":
        return None if _is_text(value) else "text in UTF-8 without NUL"
    low, high = range_of(name, kind)
    pattern, number, convert = (_NUMBER, "number", float) if kind == "DOUBLE" else (_WHOLE, "whole number", int)
    missing = value == "" and name not in file.needed
    if missing or (pattern.fullmatch(value) and low <= convert(value) <= high):
        return None
    return f"a {number} in [{low}, {high}]"


def _is_text(value: str) -> bool:
    return value.isprintable() or not re.search("[\0\udc80-\udcff]", value)
