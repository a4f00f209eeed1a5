"""Rows of a bucket in order, each once."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
FIRST = ("user_id", "time_ms", "video_id")
"""Rows are ordered by these, then by all other columns."""


def ordered(columns: Arrays) -> Arrays:
    """Rows by user, time, video, then all other columns, without exact duplicates.

    Nearly all rows differ in user and time, so these are sorted as one number; only rows that agree in both are
    compared in full, and only among them are duplicates.
    """
    order = np.argsort(_keys(columns["user_id"], columns["time_ms"]))
    agree = np.ones(len(order) - 1, dtype=bool)
    for name in FIRST[:2]:
        column = columns[name][order]
        agree &= column[1:] == column[:-1]
    tied = np.flatnonzero(np.append(agree, False) | np.append(False, agree))
    full = [columns[name][order[tied]] for name in (*FIRST, *(name for name in columns if name not in FIRST))]
    within = np.lexsort(full[::-1])
    order[tied] = order[tied][within]
    kept = np.ones(len(order), dtype=bool)
    if len(tied):
        kept[tied[1:]] = ~np.logical_and.reduce([column[within][1:] == column[within][:-1] for column in full])
    return {name: column[order[kept]] for name, column in columns.items()}


def _keys(user: Any, time: Any) -> Any:
    """Numbers in the order of (user, time): both in one where they fit, else their ranks."""
    since = time - time.min()
    if user.min() >= 0 and since.max() < 2**32:
        return (user.astype(np.uint64) << np.uint64(32)) | since.astype(np.uint64)
    ranks = np.empty(len(user), dtype=np.int64)
    ranks[np.lexsort((time, user))] = np.arange(len(user))
    return ranks
