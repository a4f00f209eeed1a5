"""The access log of test users: each evaluation on them is recorded before any number is computed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

from moac import files
from moac.logs.dataset import LoggedDataset

ACCESS_LOG = "looks.jsonl"
"""One line of JSON for each evaluation on test users, in the run's folder and beside the data; never rewritten."""


@dataclass(frozen=True)
class AccessLog:
    """All accesses to test users that are known."""

    entries: tuple[dict[str, Any], ...]  # each once, in the order of time; of a line that cannot be read, `damaged`
    here: int  # how many of them the run's own log has
    missing: str | None = None  # why the last one is not recorded beside the data; None where it is

    def __str__(self) -> str:
        times = "once" if len(self.entries) == 1 else f"{len(self.entries)} times"
        others = "" if self.here == len(self.entries) else f", {self.here} of them for this run"
        return f"test users were accessed {times}{others}"


def record_access(
    run: Path | None, dataset: LoggedDataset, options: Mapping[str, Any], policies: Mapping[str, str]
) -> AccessLog:
    """Append an entry to the run's access log, if there is a run, and to that beside the data, if possible.

    `options` are those of the estimate and the caller, `policies` fingerprints by name.
    """
    entry = {
        "id": uuid4().hex,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "moac": metadata.version("moac"),
        "run": None if run is None else str(run),
        "split": "test",
        "options": files.finite(options),
        "data": dataset.fingerprint,
        "policies": dict(policies),
    }
    line, data = json.dumps(entry).encode() + b"\n", None if dataset.folder is None else Path(dataset.folder)
    failed = None if run is None else _append(run / ACCESS_LOG, line)
    if failed is not None:
        raise ValueError(f"{failed}, and every access must be recorded.")
    return read_accesses(run, data, "the data has no folder" if data is None else _append(data / ACCESS_LOG, line))


def read_accesses(run: Path | None, data: Path | None, missing: str | None = None) -> AccessLog:
    """All entries of the run's log and the data's."""
    here, beside = ([] if folder is None else _entries(folder / ACCESS_LOG) for folder in (run, data))
    every = {entry["id"]: entry for entry in (*here, *beside)}
    return AccessLog(tuple(sorted(every.values(), key=lambda entry: str(entry.get("time", "")))), len(here), missing)


def _append(path: Path, line: bytes) -> str | None:
    """Append in one write, on disk before anything else happens, on a line of its own; the reason where that fails."""
    try:
        with open(path, "a+b", buffering=0, opener=files.no_follow) as file:
            size = file.seek(0, os.SEEK_END)
            torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            if file.write(b"\n" * torn + line) != torn + len(line):
                raise OSError(28, "no space left", str(path))
            os.fsync(file.fileno())
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


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
