"""The book of looks: every time that numbers of test users were computed, noted before they were.

One line of JSON for each look, appended and never rewritten; in the run's folder, and beside the data, where the looks
of all runs come together.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, final
from uuid import uuid4

import jax
import numpy as np

from moac import files
from moac.files import checked, no_follow
from moac.offline.evaluation import Method

NAME = "looks.jsonl"


@final
@dataclass(frozen=True)
class Look:
    """One look at a split's users.

    Attributes:
        id: tells it from others, wherever it is noted.
        time: in UTC.
        moac: version.
        run: whose policies.
        split: whose users.
        options: of the estimate and the command.
        data: fingerprint.
        policies: fingerprint of each method's parameters.
    """

    id: str
    time: str
    moac: str
    run: str
    split: str
    options: dict[str, Any]
    data: str
    policies: dict[str, str]


@final
@dataclass(frozen=True)
class Book:
    """All looks that are known.

    Attributes:
        looks: in the order of time, each once; a line that cannot be read is a look of which nothing else is known.
        here: how many of them the run's own book has.
        missing: why the look is not noted beside the data; None where it is.
    """

    looks: tuple[dict[str, Any], ...]
    here: int
    missing: str | None = None

    def __str__(self) -> str:
        times = "once" if len(self.looks) == 1 else f"{len(self.looks)} times"
        others = "" if self.here == len(self.looks) else f", {self.here} of them for this run"
        return f"test users were looked at {times}{others}"


def look(run: Path, split: str, options: dict[str, Any], data: str, methods: Mapping[str, Method]) -> Look:
    """A look that is about to be taken."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    version = metadata.version("moac")
    return Look(uuid4().hex, now, version, str(run), split, files.finite(options), data, fingerprints(methods))


def note(own: Look, run: Path, data: Path | None) -> Book:
    """Append a look to the run's book, which must succeed, and to the one beside the data, if that can be written."""
    line = json.dumps(asdict(own)).encode() + b"\n"
    try:
        _append(run / NAME, line)
    except OSError as error:
        raise ValueError(f"{run / NAME} cannot be written, and no look goes unnoted: {error.strerror}.") from None
    missing = "the data has no folder" if data is None else None
    if data is not None:
        try:
            _append(data / NAME, line)
        except OSError as error:
            missing = f"{data / NAME} cannot be written: {error.strerror}"
    return read(run, data, missing)


def read(run: Path, data: Path | None, missing: str | None = None) -> Book:
    """All looks that the run's book or the data's know of."""
    books = [_lines(folder / NAME) for folder in (run, data) if folder is not None]
    every = {one["id"]: one for book in books for one in book}
    return Book(tuple(sorted(every.values(), key=lambda one: str(one.get("time", "")))), len(books[0]), missing)


def fingerprints(methods: Mapping[str, Method]) -> dict[str, str]:
    """Of each method's parameters."""
    return {name: _digest(jax.tree.leaves(theta)) for name, (_, theta) in methods.items()}


def _digest(leaves: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(repr(np.shape(leaf)).encode() + np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def _append(path: Path, line: bytes) -> None:
    """In one write at the end of the file, on disk before anything else happens; what is there stays."""
    handle = no_follow(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        if os.write(handle, b"\n" * torn + line) != torn + len(line):
            raise OSError(28, "no space left", str(path))
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    found = path.read_bytes().decode("utf-8", "replace").splitlines()
    return [_parsed(line) for line in found if line.strip()]


def _parsed(line: str) -> dict[str, Any]:
    """A look; one whose line is damaged still counts."""
    try:
        read = checked(json.loads(line))
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, dict) and isinstance(read.get("id"), str):
        return read
    return {"id": hashlib.sha256(line.encode()).hexdigest(), "damaged": True}
