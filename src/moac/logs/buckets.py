"""The tasks of one bucket of users. They share nothing, write one file each and can be run again, anywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.kuairand.schema import LOG, NUM_TABS, SIGNALS, SIGNS, UTC_OFFSET_MS, WATCH_TIME_UNIT_MS
from moac.logs import queries
from moac.logs.engine import Limits, connect
from moac.logs.ingest import Work
from moac.logs.ordering import ordered

Arrays = dict[str, np.ndarray[Any, Any]]
_NEEDED = ("user_id", "video_id", "time_ms", "tab", "random", *SIGNALS.values())
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
    def raw(self) -> list[Path]:
        """Its rows as they were read."""
        return self.work.raw(self.bucket)

    @property
    def spill(self) -> Path:
        """Where this bucket's queries spill."""
        return self.work.scratch / f"spill-{self.bucket:03d}"


@final
@dataclass(frozen=True)
class Cleaned:
    """What came of a bucket's rows.

    Attributes:
        read: rows of the standard log and of the random one.
        kept: those without exact duplicates.
        digest: SHA-256 of the rows kept.
        stranger: a user without features; None where all have some.
    """

    read: tuple[int, int]
    kept: tuple[int, int]
    digest: str
    stranger: int | None

    @classmethod
    def of(cls, noted: Mapping[str, Any]) -> Cleaned:
        """From what was noted of it as JSON."""
        try:
            (standard, random), (kept, kept_random) = noted["read"], noted["kept"]
            counts = (int(standard), int(random)), (int(kept), int(kept_random))
            return cls(*counts, str(noted["digest"]), noted["stranger"])
        except (KeyError, TypeError, ValueError):
            raise ValueError("the notes of the unfinished build are damaged: start it again.") from None


def clean(task: Task) -> Cleaned:
    """Write a bucket's rows in order, without exact duplicates, and how often train users viewed each video."""
    work, rows = task.work, queries.parquet(task.work.rows(task.bucket))
    users = queries.parquet(work.users)
    with connect(task.limits, task.spill) as connection:
        read = connection.execute(queries.rows(queries.parquet(*task.raw))).fetchnumpy()
        kept = ordered({name: read[name] for name in (*LOG, "random")})
        connection.register("ordered", kept)
        connection.execute(queries.copy(queries.rows("ordered"), work.rows(task.bucket), ", COMPRESSION zstd"))
        connection.execute(queries.copy(queries.views(rows, users), work.views(task.bucket)))
        (stranger,) = connection.execute(queries.strangers(rows, users)).fetchone() or (None,)
    digest = hashlib.sha256()
    for column in kept.values():
        digest.update(column.data)
    return Cleaned(_by_log(read["random"]), _by_log(kept["random"]), digest.hexdigest(), stranger)


def _by_log(random: Any) -> tuple[int, int]:
    """Rows of the standard log and of the random one."""
    return int(np.count_nonzero(~random)), int(np.count_nonzero(random))


def index(task: Task, actions: np.ndarray[Any, Any]) -> None:
    """Write the index arrays of a bucket, given the ids of the actions."""
    query = queries.rows(queries.parquet(task.work.rows(task.bucket)), _NEEDED)
    with connect(task.limits, task.spill) as connection:
        columns = connection.execute(query).fetchnumpy()
    arrays: dict[str, Any] = piece(columns, actions, task.window)
    with task.work.piece(task.bucket).open("wb") as file:
        np.savez(file, **arrays)


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
        "reward": reward({name: columns[name][row] for name in SIGNALS.values()}),
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
    here = np.arange(count, dtype=np.int32)
    following = np.minimum.accumulate(np.where(row, here, np.int32(count))[::-1])[::-1]
    near = following - here <= window
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
    random = columns["random"]
    signals = {name: columns[column] for name, column in SIGNALS.items()}
    amounts = np.array([[np.count_nonzero(x), np.count_nonzero(x[random])] for x in signals.values()]).T
    watched = np.array([signals["WatchTime"].sum(dtype=np.int64), signals["WatchTime"][random].sum(dtype=np.int64)])
    days = ((columns["time_ms"] + UTC_OFFSET_MS) // _DAY).astype(np.int32)
    first, count = int(days.min()), int(np.ptp(days)) + 1
    shown = np.stack([np.bincount(part - first, minlength=count) for part in (days, days[random])])
    return {
        "total_signals": _apart(amounts),
        "total_watch_ms": _apart(watched),
        "total_days": np.arange(first, first + count),
        "total_day_rows": _apart(shown),
    }


def _apart(counted: Any) -> Any:
    """Of both logs together and of the random one, to each of the two."""
    return np.stack([counted[0] - counted[1], counted[1]])
