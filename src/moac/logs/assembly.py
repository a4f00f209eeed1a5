"""Pieces of all buckets to the arrays of a dataset, one bucket in memory at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from moac.kuairand.schema import SIGNALS
from moac.logs import stored
from moac.logs.ingest import Work

Arrays = dict[str, np.ndarray[Any, Any]]
PARTS = ("rows", "random")
"""Folders of the arrays of the log trained on, and of the log of random exposure."""
PIECE = ("user_ids", "views", "first", "history", "user", "action", "reward", "time", "context", "end", "random",
         "total_signals", "total_watch_ms", "total_days", "total_day_rows")  # fmt: skip
"""Arrays of a bucket."""
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
            yield stored.bundle(work.piece(bucket))


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
    totals: list[Arrays] = []
    with ExitStack() as stack:
        out = _Outputs(folder, sizes, stack)
        for arrays in pieces(work):
            out.add(arrays, first_part_random)
            totals.append({name: column for name, column in arrays.items() if name.startswith("total_")})
    return {
        "total_signals": sum(t["total_signals"] for t in totals),
        "total_watch_ms": sum(t["total_watch_ms"] for t in totals),
        **{name: np.concatenate([t[name] for t in totals], axis=-1) for name in ("total_days", "total_day_rows")},
    }  # pyright: ignore[reportReturnType]


@final
class _Outputs:
    """Arrays on disk that grow bucket by bucket."""

    def __init__(self, folder: Path, sizes: Sizes, stack: ExitStack) -> None:
        self._items, self._users, self._history = sizes.items, 0, 0
        shared = dict.fromkeys(("user_ids", "views", "first"), (np.int32, (sizes.users,)))
        self._shared = _opened(folder, shared | {"history": (np.int32, (sizes.history,))}, stack)
        counts = [(part, count) for part, count in zip(PARTS, sizes.rows, strict=True) if count]
        self._parts = [_opened(folder / part, _columns(count), stack) for part, count in counts]

    def add(self, arrays: Arrays, first_part_random: bool) -> None:
        """One more bucket."""
        history = np.searchsorted(self._items, arrays["history"])
        shared = {name: arrays[name] for name in ("user_ids", "views")}
        _append(self._shared, shared | {"first": arrays["first"] + self._history, "history": history})
        second = arrays["random"] & (not first_part_random)
        for files, chosen in zip(self._parts, (~second, second), strict=False):
            rows = {name: arrays[name][chosen] for name in COLUMNS if name in arrays}
            rows["truncated"] = np.append(rows["user"][1:] != rows["user"][:-1], True)[: len(rows["user"])]
            _append(files, rows | {"user": rows["user"] + self._users, "end": rows["end"] + self._history})
        self._users, self._history = self._users + len(arrays["user_ids"]), self._history + len(history)


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


def _opened(folder: Path, arrays: dict[str, Any], stack: ExitStack) -> dict[str, tuple[BinaryIO, Any]]:
    """A file for each array, its header written; written through, not mapped: a full disk is an error, not a signal."""
    folder.mkdir(exist_ok=True)
    opened: dict[str, tuple[BinaryIO, Any]] = {}
    for name, (dtype, shape) in arrays.items():
        file = stack.enter_context((folder / f"{name}.npy").open("wb"))
        _write_header(file, np.dtype(dtype), shape)
        opened[name] = file, dtype
    return opened


def _write_header(file: BinaryIO, dtype: Any, shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def save(folder: Path, arrays: Arrays) -> None:
    """Whole arrays, by name."""
    for name, array in arrays.items():
        with (folder / f"{name}.npy").open("wb") as file:
            _write_header(file, array.dtype, array.shape)
            file.write(np.ascontiguousarray(array).tobytes())


def _append(files: dict[str, tuple[BinaryIO, Any]], arrays: Arrays) -> None:
    for name, array in arrays.items():
        file, dtype = files[name]
        file.write(np.ascontiguousarray(array, dtype=dtype).tobytes())


def digest(folder: Path) -> str:
    """Of all arrays under a folder, by name and content."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.npy")):
        found.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()
