"""Files of a log as bytes: what they are, whether they are whole, their hash, and the header of a CSV file."""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moac.choices import shown
from moac.logs.schema import Table

_BLOCK = 1 << 20
"""Bytes read at a time. A line without an end in a block is refused: DuckDB drops far longer ones without a word."""
_SHOWN, _SNIFFED = 40, 4096
_OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel file",
    b"\x1f\x8b": "gzip, which a name that ends in .gz shows",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"ARROW1": "Arrow",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"{": "JSON",
    b"[": "JSON",
}
"""What files begin with that are read as neither CSV nor Parquet."""


@dataclass(frozen=True)
class File:
    """A file of a log, by its content."""

    path: Path  # where it is
    table: Table  # of its columns
    size: int  # in bytes
    sha256: str  # of its content


def hashed(path: Path, table: Table) -> File:
    """Read a file once as bytes; one that is empty is refused, and one with known columns that ends within a line."""
    check_gzip(path)
    is_parquet(path)
    digest, size, end, text = hashlib.sha256(), 0, b"", path.suffix.lower() in (".csv", ".tsv", ".txt")
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            if text and len(block) == _BLOCK and b"\n" not in block and b"\r" not in block:
                raise ValueError(f"{path} must have lines of at most {_BLOCK} bytes, got a longer one.")
            digest.update(block)
            size, end = size + len(block), (end + block[-_SHOWN:])[-_SHOWN:]
    if not size:
        raise ValueError(f"{path} must hold rows, got an empty file.")
    if text and table.columns and not end.endswith((b"\n", b"\r")):
        raise ValueError(f"{path} must end with a new line, got {shown(end)}: the file is truncated.")
    return File(path, table, size, digest.hexdigest())


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name or content; one that is neither Parquet nor CSV is refused."""
    try:
        with _opened(path) as stream:
            start = stream.read(_SNIFFED).removeprefix(codecs.BOM_UTF8).lstrip()
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False  # `check_gzip` says what is wrong
    if path.suffix.lower() == ".parquet" or start.startswith(b"PAR1"):
        return True
    other = next((kind for mark, kind in _OTHERS.items() if start.startswith(mark)), None)
    if other is not None:
        raise ValueError(f"{path} must be CSV in UTF-8, also with gzip, or Parquet, got {other}.")
    return False


def _opened(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def check_gzip(path: Path) -> None:
    """Refuse a file that is cut or damaged: DuckDB may read such a one without end."""
    if path.suffix != ".gz":
        return
    try:
        with gzip.open(path) as stream:
            while stream.read(_BLOCK):
                pass
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {str(error).rstrip('.')}.") from None


def header_of(path: Path) -> tuple[str, list[str]]:
    """What stands between the columns of a CSV file, and their names."""
    with _opened(path) as stream:
        line = re.split(rb"[\r\n]", stream.read(_BLOCK).removeprefix(codecs.BOM_UTF8), maxsplit=1)[0]
    mark = max(",;\t|", key=lambda mark: line.count(mark.encode()))
    return mark, next(csv.reader([line.decode(errors="replace").replace("\0", "")], delimiter=mark), [])
