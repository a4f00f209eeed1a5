"""Look at a file before it is read: its header, its end, its hash; and find the line that is wrong."""

from __future__ import annotations

import csv
import hashlib
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac.kuairand.schema import LOG, Kind

_BLOCK = 1 << 22
_NO_DIGIT = (b".", b"e", b"E", b"+", b" ")
"""What DuckDB would round or skip on its way to a whole number."""
_SIZES = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}
_HINT = re.compile(r"CSV Error on Line: (\d+)")
_WHOLE = re.compile(r"-?\d+")


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
    """

    path: Path
    kind: Kind
    header: tuple[str, ...]
    size: int
    sha256: str

    @property
    def is_log(self) -> bool:
        """Whether its columns are a log's."""
        return self.kind.columns is LOG


def inspect(path: Path, kind: Kind) -> File:
    """Read a file once: check header and end, refuse fractions in a log, and hash it."""
    digest, size, last = hashlib.sha256(), 0, b"\n"
    with path.open("rb") as file:
        first = file.readline()
        digest.update(first)
        suspicious = False
        while block := file.read(_BLOCK):
            digest.update(block)
            suspicious = suspicious or (kind.columns is LOG and any(byte in block for byte in _NO_DIGIT))
            size, last = size + len(block), block[-1:]
    header = _header(path, first, kind)
    found = File(path, kind, header, size + len(first), digest.hexdigest())
    if not size:
        raise ValueError(f"{path}, line 2: must hold at least one row, got none.")
    if last != b"\n":
        number, text = _last(path)
        raise ValueError(f"{path}, line {number}: must end with a new line, got {text[-40:]!r}: the file is truncated.")
    if suspicious:
        complain(found, None)
    return found


def _header(path: Path, line: bytes, kind: Kind) -> tuple[str, ...]:
    try:
        header = tuple(next(csv.reader([line.decode()]), []))
    except UnicodeDecodeError:
        header = ()
    missing = [name for name in kind.columns if name not in header]
    if missing:
        raise ValueError(f"{path}, line 1: must name the column `{missing[0]}` ({kind.name}), got {line[:60]!r}.")
    return header


def complain(file: File, error: Exception | None) -> None:
    """Raise a ValueError that names the line which is wrong; return if none is."""
    hinted = _HINT.search(str(error))
    if hinted is not None:
        number = int(hinted.group(1))
        text = next((text for n, text in _numbered(file.path) if n == number), "")
        _refuse(file, number, text)
    for number, text in _numbered(file.path):
        _refuse(file, number, text)


def line_of(file: File, column: str, value: int, occurrence: int = 1) -> int:
    """The line on which a column holds a value for the first time, or the one after that; 0 where it does not."""
    place = file.header.index(column)
    for number, text in _numbered(file.path):
        fields = next(csv.reader([text]))
        if fields[place : place + 1] == [str(value)]:
            occurrence -= 1
            if not occurrence:
                return number
    return 0


def _refuse(file: File, number: int, text: str) -> None:
    wrong = _wrong(dict(file.kind.columns), file, text) if text else None
    if wrong is not None:
        raise ValueError(f"{file.path}, line {number}: {wrong}.")


def _wrong(columns: Mapping[str, str], file: File, text: str) -> str | None:
    """What is wrong with a line, or nothing."""
    fields = next(csv.reader([text]), [])
    if len(fields) != len(file.header):
        return f"must have {len(file.header)} fields, got {len(fields)}"
    for name, value in zip(file.header, fields, strict=True):
        kind = columns.get(name, "VARCHAR")
        if kind in _SIZES and not (value == "" and not _needed(file, name)) and not _fits(value, _SIZES[kind]):
            return f"`{name}` must be a whole number below 2^{_SIZES[kind]}, got {value!r}"
        if kind == "DOUBLE" and not _is_number(value):
            return f"`{name}` must be a number, got {value!r}"
    return None


def _needed(file: File, column: str) -> bool:
    return file.is_log or column in ("user_id", "video_id")


def _fits(value: str, bits: int) -> bool:
    return _WHOLE.fullmatch(value) is not None and -(2**bits) <= int(value) < 2**bits


def _is_number(value: str) -> bool:
    try:
        return value == "" or float(value) == float(value)
    except ValueError:
        return False


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Lines after the header with their numbers, from 2."""
    with path.open(errors="replace", newline="") as file:
        for number, text in enumerate(file, start=1):
            if number > 1:
                yield number, text.rstrip("\r\n")


def _last(path: Path) -> tuple[int, str]:
    """The last line and its number."""
    return deque(_numbered(path), maxlen=1)[0]
