"""Pieces of all buckets to the arrays of a dataset, one bucket in memory at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.logs.ingest import Work
from moac.logs.schema import SIGNALS

Arrays = dict[str, np.ndarray[Any, Any]]
PARTS = ("rows", "random")
"""Folders of the arrays of the log trained on, and of the log of random exposure."""
COLUMNS = ("user", "action", "reward", "time", "context", "end", "truncated")


@final
@dataclass(frozen=True)
class Sizes:
    """How much there is in all pieces together.

    Attributes:
        users: U.
        history: H.
        rows: N of each part.
        items: [I] ids of all videos within reach, ascending.
    """

    users: int
    history: int
    rows: tuple[int, int]
    items: np.ndarray[Any, Any]


def pieces(work: Work) -> Iterator[Arrays]:
    """The arrays of each bucket that has any."""
    for bucket in range(work.buckets):
        if work.piece(bucket).exists():
            with np.load(work.piece(bucket), allow_pickle=False) as stored:
                yield dict(stored)


def measure(work: Work, first_part_random: bool) -> Sizes:
    """Count, and collect the ids of the items."""
    users, history, rows = 0, 0, np.zeros(2, dtype=np.int64)
    items = np.zeros(0, dtype=np.int32)
    for arrays in pieces(work):
        users, history = users + len(arrays["user_ids"]), history + len(arrays["history"])
        second = arrays["random"] & (not first_part_random)
        rows += (np.count_nonzero(~second), np.count_nonzero(second))
        items = np.union1d(items, arrays["history"])
    return Sizes(users, history, (int(rows[0]), int(rows[1])), items)


def write(work: Work, sizes: Sizes, folder: Path, first_part_random: bool) -> Arrays:
    """Write users, histories and rows into `folder`; totals of the signals, and days, as they were counted."""
    out = _Outputs(folder, sizes)
    totals: list[Arrays] = []
    for arrays in pieces(work):
        out.add(arrays, first_part_random)
        totals.append({name: column for name, column in arrays.items() if name.startswith("total_")})
    out.flush()
    return {
        "total_signals": sum(t["total_signals"] for t in totals),
        "total_watch_ms": sum(t["total_watch_ms"] for t in totals),
        **{name: np.concatenate([t[name] for t in totals], axis=-1) for name in ("total_days", "total_day_rows")},
    }  # pyright: ignore[reportReturnType]


@final
class _Outputs:
    """Arrays on disk that grow bucket by bucket."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self._sizes, self._users, self._history, self._rows = sizes, 0, 0, [0, 0]
        U, H = sizes.users, sizes.history
        shared = {"user_ids": (np.int32, (U,)), "views": (np.int32, (U,)), "first": (np.int32, (U,))}
        self._shared = _opened(folder, shared | {"history": (np.int32, (H,))})
        self._parts = [
            _opened(folder / part, _columns(count)) for part, count in zip(PARTS, sizes.rows, strict=True) if count
        ]

    def add(self, arrays: Arrays, first_part_random: bool) -> None:
        """One more bucket."""
        users, views = slice(self._users, self._users + len(arrays["user_ids"])), len(arrays["history"])
        for name in ("user_ids", "views"):
            self._shared[name][users] = arrays[name]
        self._shared["first"][users] = arrays["first"] + self._history
        self._shared["history"][self._history : self._history + views] = np.searchsorted(
            self._sizes.items, arrays["history"]
        )
        second = arrays["random"] & (not first_part_random)
        for part, chosen in zip(range(len(self._parts)), (~second, second), strict=False):
            self._add_rows(part, {name: arrays[name][chosen] for name in COLUMNS if name in arrays})
        self._users, self._history = users.stop, self._history + views

    def _add_rows(self, part: int, rows: Arrays) -> None:
        at = slice(self._rows[part], self._rows[part] + len(rows["user"]))
        rows["truncated"] = np.append(rows["user"][1:] != rows["user"][:-1], True)[: len(rows["user"])]
        rows |= {"user": rows["user"] + self._users, "end": rows["end"] + self._history}
        for name, column in rows.items():
            self._parts[part][name][at] = column
        self._rows[part] = at.stop

    def flush(self) -> None:
        """To disk."""
        for arrays in (self._shared, *self._parts):
            for array in arrays.values():
                array.flush()


def _columns(count: int) -> dict[str, Any]:
    return {
        "user": (np.int32, (count,)),
        "action": (np.int32, (count,)),
        "reward": (np.float32, (count, len(SIGNALS))),
        "time": (np.int64, (count,)),
        "context": (np.int8, (count, 3)),
        "end": (np.int32, (count,)),
        "truncated": (np.bool_, (count,)),
    }


def _opened(folder: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)
        for name, (dtype, shape) in arrays.items()
    }


def digest(folder: Path) -> str:
    """Of all arrays under a folder, by name and content."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.npy")):
        found.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()
