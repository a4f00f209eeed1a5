"""Look at a file before it is read: its header, the length of its lines, its end, its hash."""

from __future__ import annotations

import codecs
import csv
import hashlib
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac.kuairand.schema import LOG, Kind
from moac.logs import records
from moac.logs.records import File

_BLOCK = 1 << 22
LONGEST = 1 << 17
"""Bytes of a line, with its end. DuckDB drops rows without a word where a line has more than two million."""
_OF_LOGS = b"0123456789-,\r\n"
"""All bytes of a log's rows."""


def inspect(path: Path, kind: Kind) -> File:
    """Read a file once: check header, lines and end, refuse what is no whole number in a log, and hash it."""
    with path.open("rb") as stream:
        first = stream.readline(LONGEST)
        header = _header(path, first, kind)
        scan = _Scan(path, kind, first)
        while block := stream.read(_BLOCK):
            scan.take(block)
    seen = File(path, kind, header, scan.size, scan.digest.hexdigest(), scan.rows, scan.dos)
    if scan.size == len(first):
        raise ValueError(f"{path}, line 2: must hold at least one row, got none.")
    if scan.begun:
        number, fields = deque(records.read(seen), maxlen=1)[0]
        raise ValueError(
            f"{path}, line {number}: must end with a new line, got {fields[-1][-40:]!r}: the file is truncated."
        )
    if scan.suspicious:
        records.complain(seen, None)
    return seen


@final
@dataclass
class _Scan:
    """What is known of a file, block by block.

    Attributes:
        path, kind: of the file.
        first: its first line.
    """

    path: Path
    kind: Kind
    first: bytes

    def __post_init__(self) -> None:
        """After the first line."""
        self.digest, self.size = hashlib.sha256(self.first), len(self.first)
        self.rows, self.begun, self.suspicious = 0, 0, False
        self.dos = self.first.endswith(b"\r\n")

    def take(self, block: bytes) -> None:
        """The next block; `begun` is how much of a line it ends with."""
        self.digest.update(block)
        self._refuse_overlong(block)
        unusual = block.translate(None, _OF_LOGS) if self.kind.columns is LOG else b"\0" in block
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


def _header(path: Path, line: bytes, kind: Kind) -> tuple[str, ...]:
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
    missing = [name for name in kind.columns if name not in header]
    if missing:
        raise ValueError(f"{where} must name the column `{missing[0]}` ({kind.name}), got {line[:60]!r}.")
    for name, count in Counter(header).items():
        if count > 1 or not name:
            raise ValueError(f"{where} must name every column, each once, got `{records.shown(name)}` {count} times.")
    return header
