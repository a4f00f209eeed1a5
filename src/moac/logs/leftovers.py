"""Files that an earlier build has left: what their headers claim is compared with what there can be before use."""

from __future__ import annotations

from pathlib import Path

import duckdb

from moac.logs import queries, stored
from moac.logs.assembly import PIECE
from moac.logs.engine import Connection
from moac.logs.records import File

_LEAST_ROW = 12
"""Bytes of a row: no file of KuaiRand has fewer columns, and each ends with a comma or the line."""


def most_rows(files: list[File]) -> int:
    """No table made from these files has more rows."""
    return sum(file.size for file in files) // _LEAST_ROW + 1


def sound(connection: Connection, most: int, path: Path) -> bool:
    """Whether a file can be opened, and speaks of no more than it can hold.

    Args:
        connection: reads headers.
        most: rows of a table.
        path: a Parquet file, a bundle of arrays or an array; another is always sound.
    """
    try:
        if path.suffix == ".parquet":
            (rows,) = connection.execute(queries.claimed_rows(path)).fetchone() or (None,)
            return rows is not None and 0 <= rows <= most
        if path.suffix == ".npz":
            return set(stored.bundle(path)) == set(PIECE)
        if path.suffix == ".npy":
            stored.array(path)
    except (duckdb.Error, ValueError):
        return False
    return True
