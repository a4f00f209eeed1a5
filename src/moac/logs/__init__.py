"""Logged recommendations: a log's files, or arrays of one's own, as a source of training.

Names are imported when they are first used: building a dataset needs no JAX, and using one needs no DuckDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moac.logs.arrays import About, Rows
    from moac.logs.building import Options
    from moac.logs.dataset import LoggedDataset
    from moac.logs.folder import describe
    from moac.logs.own import build
    from moac.logs.schema import LogFiles, Schema

_HOME = {
    "About": "arrays", "Rows": "arrays", "Options": "building", "build": "own", "LoggedDataset": "dataset",
    "describe": "folder", "LogFiles": "schema", "Schema": "schema",
}  # fmt: skip

__all__ = ["About", "LogFiles", "LoggedDataset", "Options", "Rows", "Schema", "build", "describe"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"moac.logs.{_HOME[name]}"), name)
    raise AttributeError(f"module 'moac.logs' has no attribute {name!r}")
