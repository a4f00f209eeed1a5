"""The numbers behind an experiment's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moac.report.page import Table
from moac.statistics import mean
from moac.training.history import History

NEAR = 0.01
"""A trial ends at a point when it comes within this share of the hull's extent."""


def methods(histories: Mapping[str, History], objectives: tuple[str, ...], points: Any) -> Table:
    """Where each method ends: returns with intervals, gap, regret, how many trials on the hull and how many trapped."""
    header = ("method", *objectives, "exact gap", "regret", "on a corner of the hull", "in the zero trap")
    rows = tuple(
        (label, *(str(mean(h.returns[:, -1, i])) for i in range(len(objectives))), *_ends(h, points))
        for label, h in histories.items()
    )
    count = min(len(history.returns) for history in histories.values())
    caption = (
        f"Means over {count} trials after the last iteration, with 95 % intervals. A trial is on a corner of the exact "
        f"hull within {NEAR:.0%} of the hull's extent, and trapped when all its returns are within {NEAR:.0%} of zero."
    )
    return Table("Methods", caption, header, rows)


def _ends(history: History, points: Any) -> tuple[str, ...]:
    final = history.returns[:, -1]
    reach = NEAR * float(np.ptp(points, axis=0).max())
    useful = points[np.abs(points).max(axis=1) > reach]
    distance = np.linalg.norm(final[:, None] - useful, axis=2).min(axis=1)
    trapped = np.abs(final).max(axis=1) <= reach
    count = len(final)
    return (
        f"{mean(history.gap[:, -1]).value:.1e}",
        f"{mean(history.regret[:, -1]).value:.1e}",
        f"{int((distance <= reach).sum())} of {count}",
        f"{int(trapped.sum())} of {count}",
    )


def sensitivity(histories: Mapping[str, History], objectives: tuple[str, ...], points: Any) -> Table:
    """The same for each cell of the grid."""
    table = methods(histories, objectives, points)
    return Table("Sensitivity", table.caption, ("setting", *table.header[1:]), table.rows)
