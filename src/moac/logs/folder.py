"""A dataset's folder: written whole or not at all, read and checked, and described in numbers. Needs no JAX.

`manifest.json` says what the dataset was built from and what came out; `encoding.json` what was fitted; the arrays are
safetensors: `shared` of all logs together, `rows` of the log trained on, `random` of random exposure.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moac import files, locks
from moac.files import Arrays
from moac.logs.schema import Schema, column
from moac.logs.splits import SPLITS

if TYPE_CHECKING:
    from moac.logs.engine import Connection

FORMAT = 2
MANIFEST = "manifest.json"
ENCODING = "encoding.json"
_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def refuse_existing(target: Path, name: str | None = None) -> None:
    """Nothing of the user's is written over; `name` is the argument that names the place."""
    if target.exists() or target.is_symlink():
        right = f"`{name}` must not exist yet, got {target}" if name else f"{target} exists already"
        raise ValueError(f"{right}: use it, or remove it first.")


def check_room(folder: Path, what: str, needed: int) -> None:
    """Say that a disk is too small before the work, not hours later."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(f"{folder}: the disk is too full: {what} needs {needed:,} bytes, {free:,} are free.")


@contextmanager
def becoming(out: Path, fingerprint: str | None = None) -> Generator[Path]:
    """A folder to work in that becomes `out` at the end, for one process at a time. An error leaves nothing.

    Args:
        out: must not exist.
        fingerprint: of what is made. What an interrupt or a kill has left of the same is found in the folder by the
            next call; None, or a change of it, starts with an empty one.
    """
    place = out.absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = f".{out.name}.building-"
    folder = files.below(place.parent, f"{unfinished}{fingerprint or 'new'}")
    with locks.held(place.with_name(f".{out.name}.lock"), out):
        refuse_existing(out, "out")
        for left in place.parent.iterdir():
            if left.name.startswith(unfinished) and (left != folder or fingerprint is None):
                shutil.rmtree(left)
        folder.mkdir(exist_ok=True)
        try:
            yield folder
            folder.rename(out)
        except BaseException as error:
            if fingerprint is None or not isinstance(error, KeyboardInterrupt):
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(error.errno, os.strerror(error.errno), str(place.parent)) from None
            raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset, with one clear line where there is none or it is not ours."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} is no dataset: it has no {MANIFEST}. Build one with moac data build.")
    about = files.read_json(path)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{folder} was built by another version of moac: build the dataset again.")
    return about


def read_part(folder: Path, name: str) -> Arrays:
    """The arrays of all logs together, `shared`, or of one log; files.read_arrays checks that they are as written."""
    return files.read_arrays(folder / "arrays" / f"{name}.safetensors")[0]


def signal_table(names: Iterable[str], amounts: Any, sums: Any, rows: int) -> dict[str, dict[str, float]]:
    """For each signal: amount (rows that have it), share of all amounts as in the paper, sum, and mean per row."""
    total = max(int(np.sum(amounts)), 1)
    return {
        name: {"amount": int(a), "share": int(a) / total, "sum": float(s), "mean": float(s) / max(rows, 1)}
        for name, a, s in zip(names, amounts, sums, strict=True)
    }


def count_logs(connection: Connection, schema: Schema, rows: str) -> dict[str, Any]:
    """Counts of whole logs, given SQL of all ordered rows: rows with and without duplicates, signals, days."""
    columns = [column(signal.column) for signal in schema.signals]
    counts = ", ".join(f"count(*) FILTER ({name} != 0), sum({name})" for name in columns)
    query = f"SELECT random, sum(copies)::BIGINT, count(*), {counts} FROM {rows} GROUP BY random ORDER BY random"
    logs: dict[str, Any] = {}
    for random, read, kept, *totals in connection.execute(query).fetchall():
        sums = [float(total) / signal.unit for total, signal in zip(totals[1::2], schema.signals, strict=True)]
        table = signal_table((signal.name for signal in schema.signals), totals[::2], sums, kept)
        days: dict[str, int] = {}
        if schema.day is not None:
            day = f"(DATE '1970-01-01' + ({schema.day})::INTEGER)::VARCHAR AS day"
            query = f"SELECT {day}, count(*) FROM {rows} WHERE random = {random} GROUP BY day ORDER BY day"
            days = dict(connection.execute(query).fetchall())
        counted = {"rows_read": read, "duplicates": read - kept, "rows": kept, "signals": table, "days": days}
        logs["random" if random else "standard"] = counted
    return logs


def count_part(names: tuple[str, ...], rows: Arrays, belongs: Any) -> dict[str, Any]:
    """Counts of a log's rows, of all of them and by split; signals as they were logged, a cost positive."""
    user, reward = rows["user"], rows["reward"]

    def counts(chosen: Any) -> dict[str, Any]:
        picked = np.abs(reward[chosen])
        amounts, sums = np.count_nonzero(picked, axis=0), picked.sum(axis=0, dtype=np.float64)
        users = len(np.unique(user[chosen]))
        return {"users": users, "rows": len(picked), "signals": signal_table(names, amounts, sums, len(picked))}

    per_split = {name: counts(belongs == k) for k, name in enumerate(SPLITS)}
    spread = per_user(np.unique(user, return_counts=True)[1])
    return {**counts(slice(None)), "rows_per_user": spread, "splits": per_split}


def per_user(counts: Any) -> dict[str, float]:
    """Mean and quantiles of a number per user."""
    counts = np.asarray(counts)
    if not len(counts):
        return dict.fromkeys((*_QUANTILES, "mean"), 0.0)
    values = np.quantile(counts, list(_QUANTILES.values()), method="inverted_cdf")
    return {**{name: float(v) for name, v in zip(_QUANTILES, values, strict=True)}, "mean": float(counts.mean())}


@dataclass(frozen=True, eq=False)
class Description:
    """A dataset in numbers."""

    manifest: dict[str, Any]  # of the dataset; `parts["rows"]` is what is trained on, `logs` are the whole logs
    rows_per_user: np.ndarray[Any, Any]  # [n] rows, for each user that has any; by split, where a user is in several
    user_splits: np.ndarray[Any, Any]  # [n] the split of each
    action_views: np.ndarray[Any, Any]  # [K] rows of each action, the most viewed by train users first

    @property
    def name(self) -> str:
        """Of the data."""
        return self.manifest["name"]

    @property
    def signals(self) -> dict[str, dict[str, float]]:
        """The paper's table: for each signal `amount`, `share` of all amounts, `sum`, and `mean` per row."""
        return self.manifest["parts"]["rows"]["signals"]

    @property
    def splits(self) -> dict[str, dict[str, Any]]:
        """Users, rows and signals of each split."""
        return self.manifest["parts"]["rows"]["splits"]

    @property
    def num_rows(self) -> int:
        """N: every row has a state of its own."""
        return self.manifest["parts"]["rows"]["rows"]

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.action_views)

    @property
    def days(self) -> dict[str, dict[str, int]]:
        """Rows of each whole log, by day."""
        return {name: log["days"] for name, log in self.manifest["logs"].items()}

    def summary(self) -> dict[str, Any]:
        """As one object for `--json`."""
        about = self.manifest
        counts = np.bincount(self.user_splits[self.user_splits >= 0], minlength=len(SPLITS))
        return {
            **{name: about[name] for name in ("name", "content", "logs", "absent", "options", "warnings")},
            "history_responses": bool(about.get("response_scale")),
            "rows": self.num_rows,
            "states": self.num_rows,
            "actions": self.num_actions,
            "users": about["parts"]["rows"]["users"],
            "signals": self.signals,
            "rows_per_user": about["parts"]["rows"]["rows_per_user"],
            "users_per_split": dict(zip(SPLITS, counts.tolist(), strict=True)),
            "splits": self.splits,
            "random": about["parts"].get("random"),
        }


def describe(path: str | Path) -> Description:
    """The description of a dataset that was built or saved."""
    about, shared, rows = read_manifest(Path(path)), read_part(Path(path), "shared"), read_part(Path(path), "rows")
    split = rows.get("row_split", shared["split"][rows["user"]])
    pairs, counts = np.unique(np.stack([rows["user"], split]), axis=1, return_counts=True)
    views = np.bincount(rows["action"], minlength=len(shared["action_ids"]))
    return Description(about, counts, pairs[1], views)
