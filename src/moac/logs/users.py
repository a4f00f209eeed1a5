"""KuaiRand's user features as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from moac.logs import encoding, queries
from moac.logs.encoding import Encoding
from moac.logs.engine import Connection
from moac.logs.schema import USER_CATEGORIES, USER_NUMBERS

_WIDTH = 4
"""Numbers of a category with many values."""


def columns(connection: Connection, path: Path, ids: Any) -> dict[str, Any]:
    """The features of the given users, in that order: text with None, numbers with NaN."""
    connection.register("wanted", {"user_id": ids, "place": np.arange(len(ids))})
    found = connection.execute(queries.user_features(queries.parquet(path))).fetchnumpy()
    return {name: _filled(column) for name, column in found.items()}


def _filled(column: Any) -> Any:
    """Masked arrays as plain ones: NaN or None where a value is missing."""
    missing = np.nan if column.dtype.kind == "f" else None
    return column.filled(missing) if isinstance(column, np.ma.MaskedArray) else column


def fit(columns: dict[str, Any], train: Any) -> Encoding:
    """Scales and categories of train users."""
    numbers = tuple(encoding.number(name, columns[name][train]) for name in USER_NUMBERS)
    categories = tuple(encoding.category(name, columns[name][train], _WIDTH) for name in USER_CATEGORIES)
    return Encoding(numbers, categories)


def table(columns: dict[str, Any], fitted: Encoding) -> Any:
    """[U, d] int8."""
    scaled = [part.scaled(columns[part.name]) for part in fitted.numbers]
    vectors = [part.vectors[part.codes(columns[part.name])] for part in fitted.categories]
    return encoding.quantised([*scaled, *vectors])
