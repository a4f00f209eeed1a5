"""Logged recommendations: a log's files, or arrays of one's own, as a source of training.

Names are imported when they are first used: building a dataset needs no JAX, and using one needs no DuckDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moac.logs.arrays import About as About
    from moac.logs.arrays import Rows as Rows
    from moac.logs.building import Options as Options
    from moac.logs.dataset import LoggedDataset as LoggedDataset
    from moac.logs.folder import describe as describe
    from moac.logs.own import build as build
    from moac.logs.schema import LogFiles as LogFiles
    from moac.logs.schema import Schema as Schema

_HOMES = {
    "arrays": ("About", "Rows"),
    "building": ("Options",),
    "own": ("build",),
    "dataset": ("LoggedDataset",),
    "folder": ("describe",),
    "schema": ("LogFiles", "Schema"),
}
_HOME = {name: f"moac.logs.{home}" for home, names in _HOMES.items() for name in names}

__all__ = ["About", "LogFiles", "LoggedDataset", "Options", "Rows", "Schema", "build", "describe"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'moac.logs' has no attribute {name!r}")
