"""What a dataset holds in numbers: signals, splits, rows per user, days; the paper's data table. Needs no JAX."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from moac.logs import folder
from moac.logs.schema import Schema, column
from moac.logs.splits import SPLITS

if TYPE_CHECKING:
    from moac.logs.engine import Connection

_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def signal_table(names: Iterable[str], amounts: Any, sums: Any, rows: int) -> dict[str, dict[str, float]]:
    """For each signal: amount (rows that have it), share of all amounts as in the paper, sum, and mean per row."""
    total = max(int(np.sum(amounts)), 1)
    return {
        name: {"amount": int(a), "share": int(a) / total, "sum": float(s), "mean": float(s) / max(rows, 1)}
        for name, a, s in zip(names, amounts, sums, strict=True)
    }


def of_logs(connection: Connection, schema: Schema, rows: str) -> dict[str, Any]:
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


def of_part(names: tuple[str, ...], user: Any, reward: Any, split: Any) -> dict[str, Any]:
    """Counts of a log's rows, of all of them and by split; signals as they were logged, a cost positive."""
    belongs = split[user]

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


@final
@dataclass(frozen=True, eq=False)
class Description:
    """A dataset in numbers.

    Attributes:
        manifest: of the dataset; `parts["rows"]` is what is trained on, `logs` are the whole logs.
        rows_per_user: [n] rows trained on, for each user that has any.
        user_splits: [n] the split of each.
        action_views: [K] rows of each action, the most viewed by train users first.
    """

    manifest: dict[str, Any]
    rows_per_user: np.ndarray[Any, Any]
    user_splits: np.ndarray[Any, Any]
    action_views: np.ndarray[Any, Any]

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
        counts = np.bincount(self.user_splits, minlength=len(SPLITS))
        return {
            **{name: about[name] for name in ("name", "content", "logs", "absent", "options", "warnings")},
            "rows": self.num_rows,
            "states": self.num_rows,
            "actions": self.num_actions,
            "users": len(self.rows_per_user),
            "signals": self.signals,
            "rows_per_user": about["parts"]["rows"]["rows_per_user"],
            "users_per_split": dict(zip(SPLITS, counts.tolist(), strict=True)),
            "splits": self.splits,
            "random": about["parts"].get("random"),
        }


def describe(path: str | Path) -> Description:
    """The description of a built dataset."""
    about = folder.read_manifest(Path(path))
    shared = folder.read_shared(Path(path))
    rows = folder.read_rows(Path(path), "rows", shared, about)
    ids, counts = np.unique(rows["user"], return_counts=True)
    views = np.bincount(rows["action"], minlength=len(shared["action_ids"]))
    return Description(about, counts, shared["split"][ids], views)
