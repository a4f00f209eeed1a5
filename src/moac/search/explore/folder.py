"""The folder of an exploration: a finished run whose trials are the archived policies, with their values beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from moac import files, locks
from moac.runs.directory import RunDirectory
from moac.runs.log_files import BEHAVIOUR
from moac.search.archive import Archive
from moac.search.explore.running import FOLDER
from moac.training import result

RECORD = "explore.json"
FORMAT = 1
_MAKING = ".archive"
_LAST = "policy.safetensors"
"""With it the run has finished: it goes first and comes last."""


def check(out: Path) -> None:
    """Refuse a folder that holds something else; one that an earlier call has begun is fine."""
    begun = out.is_dir() and (locks.is_empty(out) or (out / FOLDER).is_dir() or _only_behaviour(out))
    if out.exists() and not begun:
        raise ValueError(f"{out} exists already, and is no exploration: choose a new folder.")
    files.check_folder("out", out)


def write(out: Path, outcome: result.Result, archive: Archive, env: str, record: dict[str, Any]) -> None:
    """Make `out` the run directory of the archived policies; each file appears whole or not at all."""
    making = out / FOLDER / _MAKING
    shutil.rmtree(making, ignore_errors=True)
    directory = RunDirectory.create(making, outcome.run, env)
    directory.finish(outcome)
    archive.write(making)
    files.write_json(making / RECORD, {"format": FORMAT} | record)
    (out / _LAST).unlink(missing_ok=True)
    for path in sorted(making.iterdir(), key=lambda path: path.name == _LAST):
        if path.is_file():
            path.replace(out / path.name)
    shutil.rmtree(making)


def _only_behaviour(out: Path) -> bool:
    """Whether a call on a log was stopped before its first run began."""
    return (out / BEHAVIOUR).exists() and not (out / "config.json").exists()
