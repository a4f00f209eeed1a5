"""The tasks of one bucket of users. They share nothing, write one file each and can be run again, anywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.logs import queries
from moac.logs.engine import Limits, connect
from moac.logs.ingest import Work
from moac.logs.schema import LOG, NUM_TABS, SIGNALS, SIGNS, UTC_OFFSET_MS, WATCH_TIME_UNIT_MS

Arrays = dict[str, np.ndarray[Any, Any]]
_HOUR, _DAY, _THURSDAY = 3_600_000, 86_400_000, 3


@final
@dataclass(frozen=True)
class Task:
    """A bucket of a build, as plain data.

    Attributes:
        work: the folder.
        bucket: its number.
        limits: what it may use.
        window: how many viewed videos a state holds.
    """

    work: Work
    bucket: int
    limits: Limits
    window: int

    @property
    def spill(self) -> Path:
        """Where this bucket's queries spill."""
        return self.work.scratch / f"spill-{self.bucket:03d}"


def clean(task: Task) -> dict[str, int]:
    """Rows without exact duplicates, ordered by user, time, video, then all columns; and train users' views.

    Returns how many rows of each log were read and kept, and a user without features, if there is one.
    """
    work, rows = task.work, queries.parquet(task.work.rows(task.bucket))
    raw, users = queries.parquet(*work.raw(task.bucket)), queries.parquet(work.users)
    with connect(task.limits, task.spill) as connection:
        connection.execute(queries.copy(queries.ordered(raw), work.rows(task.bucket), ", COMPRESSION zstd"))
        connection.execute(queries.copy(queries.views(rows, users), work.views(task.bucket)))
        read, kept = (connection.execute(queries.counts(source)).fetchone() or (0, 0) for source in (raw, rows))
        (stranger,) = connection.execute(queries.strangers(rows, users)).fetchone() or (None,)
    names = ("standard_read", "random_read", "standard_kept", "random_kept")
    found: dict[str, int] = dict(zip(names, (*read, *kept), strict=True))
    return found if stranger is None else found | {"stranger": stranger}


def index(task: Task, actions: np.ndarray[Any, Any]) -> str:
    """Write the index arrays of a bucket, given the ids of the actions; the hash of its rows."""
    with connect(task.limits, task.spill) as connection:
        found = connection.execute(queries.rows(queries.parquet(task.work.rows(task.bucket)))).fetchnumpy()
    columns = {name: np.ascontiguousarray(column) for name, column in found.items()}
    digest = hashlib.sha256()
    for name in (*LOG, "random"):
        digest.update(columns[name].tobytes())
    arrays: dict[str, Any] = piece(columns, actions, task.window)
    with task.work.piece(task.bucket).open("wb") as file:
        np.savez(file, **arrays)
    return digest.hexdigest()


def piece(columns: Arrays, actions: np.ndarray[Any, Any], window: int) -> Arrays:
    """Arrays of the rows whose video is an action, and of the views within reach of them.

    A view is within reach of a row if it is the row itself or one of the `window` views of the same user before it;
    other views are in no state, and are left out. Positions count from the start of the bucket.
    """
    ids, video = columns["user_id"], columns["video_id"]
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    sizes = np.diff(np.append(starts, len(ids)))
    user = np.repeat(np.arange(len(starts), dtype=np.int32), sizes)
    action = _actions(video, actions)
    row = action >= 0
    reach = _within_reach(user, row, window)
    before = np.cumsum(reach) - reach
    return {
        "user_ids": ids[starts],
        "views": sizes.astype(np.int32),
        "first": before[starts],
        "history": video[reach],
        "user": user[row],
        "action": action[row],
        "reward": reward({name: column[row] for name, column in columns.items()}),
        "time": columns["time_ms"][row],
        "context": context(columns["time_ms"][row], columns["tab"][row]),
        "end": before[row],
        "random": columns["random"][row],
        **_totals(columns),
    }


def _actions(video: Any, actions: Any) -> Any:
    """The action that each video is, or −1."""
    order = np.argsort(actions).astype(np.int32)
    ids = actions[order]
    low, high = ids[0], ids[-1]
    found = np.full(len(video), -1, dtype=np.int32)
    near = np.flatnonzero((video >= low) & (video <= high))
    place = np.searchsorted(ids, video[near])
    found[near] = np.where(ids[place] == video[near], order[place], -1)
    return found


def _within_reach(user: Any, row: Any, window: int) -> Any:
    """Whether each view is one of the rows, or at most `window` views before one of the same user."""
    count = len(row)
    following = np.where(row, np.arange(count), count)
    following = np.minimum.accumulate(following[::-1])[::-1]
    near = following - np.arange(count) <= window
    return near & (following < count) & (user[np.minimum(following, count - 1)] == user)


def reward(columns: Arrays) -> np.ndarray[Any, Any]:
    """[n, 7] signs × signals; WatchTime in tens of seconds."""
    units = [WATCH_TIME_UNIT_MS if name == "WatchTime" else 1 for name in SIGNALS]
    signals = np.stack([columns[name] for name in SIGNALS.values()], axis=1).astype(np.float64)
    return (signals * (np.array(SIGNS) / units) + 0.0).astype(np.float32)  # + 0.0: no −0


def context(time_ms: Any, tab: Any) -> np.ndarray[Any, Any]:
    """[n, 3] tab, hour and day of the week (0 is Monday), in Beijing's time; a tab that is none is −1."""
    local = time_ms + UTC_OFFSET_MS
    known = np.where((tab >= 0) & (tab < NUM_TABS), tab, -1)
    return np.stack([known, local // _HOUR % 24, (local // _DAY + _THURSDAY) % 7], axis=1).astype(np.int8)


def _totals(columns: Arrays) -> Arrays:
    """Signals and days of all rows of the standard log and of the random one, whatever their video."""
    days = (columns["time_ms"] + UTC_OFFSET_MS) // _DAY
    parts = [~columns["random"], columns["random"]]
    first = int(days.min())
    shown = np.stack([np.bincount(days[part] - first, minlength=int(days.max()) - first + 1) for part in parts])
    return {
        "total_signals": np.array([[np.count_nonzero(columns[c][part]) for c in SIGNALS.values()] for part in parts]),
        "total_watch_ms": np.array([columns["play_time_ms"][part].sum(dtype=np.int64) for part in parts]),
        "total_days": np.arange(first, first + shown.shape[1]),
        "total_day_rows": shown,
    }
