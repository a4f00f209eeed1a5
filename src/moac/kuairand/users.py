"""KuaiRand's user features as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from moac.kuairand.schema import USER_CATEGORIES, USER_NUMBERS
from moac.logs import encoding, queries
from moac.logs.encoding import Category, Encoding, Number
from moac.logs.engine import Connection

_WIDTH = 4
"""Numbers of a category with many values."""


def table(connection: Connection, path: Path, ids: Any, train: Any) -> tuple[Any, Encoding]:
    """[U, d] int8 for the given users, in that order, and what was fitted on `train` among them; column by column."""
    connection.register("wanted", {"user_id": ids, "place": np.arange(len(ids))})
    numbers: list[Number] = []
    categories: list[Category] = []
    encoded: list[Any] = []
    for name in USER_NUMBERS:
        column = _column(connection, path, f"{name}::DOUBLE", np.nan)
        numbers.append(encoding.number(name, column[train]))
        encoded.append(encoding.quantised([numbers[-1].scaled(column)]))
    for name in USER_CATEGORIES:
        column = _column(connection, path, name, None)
        categories.append(encoding.category(name, column[train], _WIDTH))
        encoded.append(encoding.quantised([categories[-1].vectors[categories[-1].codes(column)]]))
    return np.concatenate(encoded, axis=1), Encoding(tuple(numbers), tuple(categories))


def _column(connection: Connection, path: Path, name: str, missing: Any) -> Any:
    """A column of the users of the table `wanted`, in its order."""
    (column,) = connection.execute(queries.user_column(name, queries.parquet(path))).fetchnumpy().values()
    return column.filled(missing) if isinstance(column, np.ma.MaskedArray) else column
