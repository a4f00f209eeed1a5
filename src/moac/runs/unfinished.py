"""Folders that a command of several runs has begun, and not ended."""

from __future__ import annotations

from pathlib import Path

_PARTS = {
    "rules": "an exploration",
    "menu": "a menu of policies",
    "tasks": "an experiment",
    "tasks-quick": "an experiment",
}
"""By the folder that such a command makes first."""


def hint(folder: Path) -> str:
    """A sentence, after a space, to end an error with; nothing where nothing was begun."""
    what = next((what for name, what in _PARTS.items() if (folder / name).is_dir()), None)
    return "" if what is None else f" It is {what} that was stopped: the same command continues it."
