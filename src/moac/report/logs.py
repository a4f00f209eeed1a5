"""Figures of logged data."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from moac.logs.description import Description
from moac.logs.splits import SPLITS
from moac.report import style


@style.styled
def description(found: Description) -> Figure:
    """How often each signal occurs, rows per user, rows per day, and how often each action was shown."""
    figure, axes = style.grid(2, 2, (11.0, 7.0))
    title = f"{found.name}: {found.num_rows:,} rows of {len(found.rows_per_user):,} users on {found.num_actions} videos"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    _rates(axes[0], found)
    _rows_per_user(axes[1], found)
    _days(axes[2], found)
    _actions(axes[3], found)
    return figure


def _rates(ax: Axes, found: Description) -> None:
    """The share of rows that have each signal, with 95 % intervals."""
    names = list(found.signals)
    for k, split in enumerate(SPLITS):
        part = found.splits[split]
        rows = max(part["rows"], 1)
        p = np.array([part["signals"][name]["amount"] / rows for name in names])
        low, high = _wilson(p, rows)
        x = np.arange(len(names)) + 0.24 * (k - 1)
        ax.vlines(x, low, high, color=style.COLOURS[k], linewidth=1.6)
        ax.plot(x[p > 0], p[p > 0], "o", markersize=5, color=style.COLOURS[k], label=split)
    ax.set_yscale("log")
    rarest = min((s["amount"] / found.num_rows for s in found.signals.values() if s["amount"]), default=0.1)
    ax.set_ylim(rarest / 10, 2)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    ax.set_xticks(range(len(names)), names, rotation=25, ha="right")
    ax.set_title("Rows that have each signal, 95 % intervals by row", loc="left", fontweight="bold")
    ax.legend(frameon=False)


def _wilson(p: Any, n: int) -> tuple[Any, Any]:
    """Wilson's interval of a share p of n rows, which stays above 0 (Wilson, 1927)."""
    z = 1.96
    centre, spread = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    return np.maximum(centre - spread, 1e-9) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)


def _rows_per_user(ax: Axes, found: Description) -> None:
    """Users that have at least so many rows."""
    for k, split in enumerate(SPLITS):
        counts = np.sort(found.rows_per_user[found.user_splits == k])
        if not len(counts):
            continue
        values, first = np.unique(counts, return_index=True)
        share = 1 - first / len(counts)
        marker = "o" if len(values) == 1 else None
        ax.plot(values, share, label=f"{split}, {len(counts):,} users", marker=marker, **style.line(k))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    ax.set_xlabel("rows")
    ax.set_title("Users with at least so many rows", loc="left", fontweight="bold")
    ax.legend(frameon=False)


def _days(ax: Axes, found: Description) -> None:
    """Rows of the whole logs on each day."""
    for k, (name, days) in enumerate(found.days.items()):
        x = np.array([np.datetime64(date.fromisoformat(day)) for day in days])
        ax.plot(x, list(days.values()), marker="o", markersize=4, label=f"{name} log", **style.line(k))
    ax.xaxis.set_major_locator(AutoDateLocator(maxticks=8))
    ax.xaxis.set_major_formatter(DateFormatter("%d %b"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_ylim(bottom=0)
    ax.set_title("Rows on each day, all videos", loc="left", fontweight="bold")
    ax.legend(frameon=False)


def _actions(ax: Axes, found: Description) -> None:
    """How often each action was shown, the most viewed by train users first."""
    shown = found.action_views / max(found.num_rows, 1)
    ax.set_axisbelow(True)
    ax.bar(np.arange(1, found.num_actions + 1), shown, width=1.0, color=style.COLOURS[0])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    ax.set_xlabel("action, by views of train users")
    ax.set_title("Share of rows of each action", loc="left", fontweight="bold")
