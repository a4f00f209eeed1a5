"""What a dataset's rows hold, as numbers: signals, splits, rows per user, days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from moac.kuairand.schema import SIGNALS, WATCH_TIME_UNIT_MS
from moac.logs.splits import SPLITS

Arrays = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def signals(amounts: Any, sums: Any, rows: int) -> dict[str, dict[str, float]]:
    """For each signal: amount (rows that have it), share of all amounts as in the paper, sum, and mean per row."""
    total = max(int(np.sum(amounts)), 1)
    return {
        name: {"amount": int(a), "share": int(a) / total, "sum": float(s), "mean": float(s) / max(rows, 1)}
        for name, a, s in zip(SIGNALS, amounts, sums, strict=True)
    }


def of_log(totals: Arrays, part: int, rows: int) -> dict[str, dict[str, float]]:
    """Signals of all rows of a log, whatever their video: part 0 is the standard log, 1 the random one."""
    amounts = totals["total_signals"][part]
    sums = np.append(amounts[:-1], totals["total_watch_ms"][part] / WATCH_TIME_UNIT_MS)
    return signals(amounts, sums, rows)


def of_rows(reward: Any, chosen: Any) -> dict[str, dict[str, float]]:
    """Signals of chosen rows, as they were logged: a cost counts as positive."""
    picked = np.abs(np.asarray(reward)[chosen])
    return signals(np.count_nonzero(picked, axis=0), picked.sum(axis=0, dtype=np.float64), len(picked))


def by_split(user: Any, reward: Any, split: Any) -> dict[str, Any]:
    """Users, rows and signals of each split; users are those that have rows."""
    belongs = split[user]
    return {
        name: {
            "users": len(np.unique(user[belongs == k])),
            "rows": int(np.count_nonzero(belongs == k)),
            "signals": of_rows(reward, belongs == k),
        }
        for k, name in enumerate(SPLITS)
    }


def per_user(counts: Any) -> dict[str, float]:
    """Mean and quantiles of a number per user."""
    counts = np.asarray(counts)
    if not len(counts):
        return dict.fromkeys((*_QUANTILES, "mean"), 0.0)
    values = np.quantile(counts, list(_QUANTILES.values()), method="inverted_cdf")
    return {**{name: float(v) for name, v in zip(_QUANTILES, values, strict=True)}, "mean": float(counts.mean())}


def days(totals: Arrays, part: int) -> dict[str, int]:
    """Rows of a log on each day, in Beijing's time."""
    found, place = np.unique(totals["total_days"], return_inverse=True)
    rows = np.bincount(place, weights=totals["total_day_rows"][part], minlength=len(found))
    return {_date(int(day)): int(count) for day, count in zip(found, rows, strict=True) if count}


def _date(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()
