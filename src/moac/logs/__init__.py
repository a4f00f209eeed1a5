"""Logged recommendations: KuaiRand's files, or a log of one's own, as a source of training.

Names are imported when they are first used: building a dataset needs no JAX, and using one needs no DuckDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moac.logs.building import Options as Options
    from moac.logs.building import build as build
    from moac.logs.dataset import About as About
    from moac.logs.dataset import LoggedDataset as LoggedDataset
    from moac.logs.dataset import Rows as Rows
    from moac.logs.description import describe as describe

_HOME = {
    "About": "moac.logs.dataset",
    "LoggedDataset": "moac.logs.dataset",
    "Options": "moac.logs.building",
    "Rows": "moac.logs.dataset",
    "build": "moac.logs.building",
    "describe": "moac.logs.description",
}

__all__ = ["About", "LoggedDataset", "Options", "Rows", "build", "describe"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'moac.logs' has no attribute {name!r}")
