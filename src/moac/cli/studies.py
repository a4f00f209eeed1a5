"""The package of studies, found by its entry point: the library itself does not import it."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any


def studies() -> Any:
    """The package, or a ValueError that says how to get it."""
    for point in entry_points(group="moac.studies"):
        return point.load()
    raise ValueError("the studies are not installed: reinstall moac, whose wheel holds the package moac_studies.")


def installed_names() -> tuple[str, ...]:
    """Names of the studies, for a command's help; none where they are not installed."""
    return next((point.load().names() for point in entry_points(group="moac.studies")), ())
