"""The access log of test users: every evaluation on them is recorded before its numbers are computed.

One line of JSON for each, appended and never rewritten; in the run's folder, and beside the data, where those of all
runs come together.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, final
from uuid import uuid4

import jax
import numpy as np

from moac import files
from moac.logs.dataset import LoggedDataset
from moac.types import Params

Methods = Mapping[str, tuple[Any, Params]]
NAME = "looks.jsonl"


@final
@dataclass(frozen=True)
class AccessLog:
    """All accesses to test users that are known."""

    entries: tuple[dict[str, Any], ...]  # each once, in the order of time; of a line that cannot be read, `damaged`
    here: int  # how many of them the run's own log has
    missing: str | None = None  # why the last one is not recorded beside the data; None where it is

    def __str__(self) -> str:
        times = "once" if len(self.entries) == 1 else f"{len(self.entries)} times"
        others = "" if self.here == len(self.entries) else f", {self.here} of them for this run"
        return f"test users were looked at {times}{others}"


def record(run: Path, dataset: LoggedDataset, split: str, options: Mapping[str, Any], methods: Methods) -> AccessLog:
    """Append an entry to the log of the run's folder, which must succeed, and to that beside the data, if possible.

    `options` are those of the estimate and the command, `methods` the policies by name.
    """
    entry = {
        "id": uuid4().hex,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "moac": metadata.version("moac"),
        "run": str(run),
        "split": split,
        "options": files.finite(options),
        "data": dataset.fingerprint,
        "policies": fingerprints(methods),
    }
    line = json.dumps(entry).encode() + b"\n"
    try:
        _append(run / NAME, line)
    except OSError as error:
        raise ValueError(f"{run / NAME} cannot be written, and no look goes unnoted: {error.strerror}.") from None
    if dataset.folder is None:
        return read(run, None, "the data has no folder")
    data = Path(dataset.folder)
    try:
        _append(data / NAME, line)
    except OSError as error:
        return read(run, data, f"{data / NAME} cannot be written: {error.strerror}")
    return read(run, data)


def read(run: Path, data: Path | None, missing: str | None = None) -> AccessLog:
    """All entries of the run's log and the data's."""
    logs = [_entries(folder / NAME) for folder in (run, data) if folder is not None]
    every = {entry["id"]: entry for log in logs for entry in log}
    return AccessLog(tuple(sorted(every.values(), key=lambda entry: str(entry.get("time", "")))), len(logs[0]), missing)


def fingerprints(methods: Methods) -> dict[str, str]:
    """A hash of each method's parameters: shapes and numbers."""
    leaves = {name: map(np.asarray, jax.tree.leaves(theta)) for name, (_, theta) in methods.items()}
    content = {name: b"".join(repr(x.shape).encode() + x.tobytes() for x in each) for name, each in leaves.items()}
    return {name: hashlib.sha256(each).hexdigest()[:16] for name, each in content.items()}


def _append(path: Path, line: bytes) -> None:
    """Append in one write, on disk before anything else happens; after a torn line a new one begins."""
    with open(path, "a+b", buffering=0, opener=files.no_follow) as file:
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        if file.write(b"\n" * torn + line) != torn + len(line):
            raise OSError(28, "no space left", str(path))
        os.fsync(file.fileno())


def _entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a log; a damaged line still counts."""
    if not path.is_file():
        return []
    return [_parsed(line) for line in path.read_bytes().decode("utf-8", "replace").splitlines() if line.strip()]


def _parsed(line: str) -> dict[str, Any]:
    try:
        entry = files.checked(json.loads(line))
    except (ValueError, RecursionError):
        entry = None
    if isinstance(entry, dict) and isinstance(entry.get("id"), str):
        return entry
    return {"id": hashlib.sha256(line.encode()).hexdigest(), "damaged": True}
