"""Figures of logged data, and of policies evaluated on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator, NullFormatter

from moac.choices import counted
from moac.logs.folder import Description
from moac.logs.splits import SPLITS
from moac.offline.ncis.limits import BALANCE
from moac.report import figures
from moac.report.numbers import change, signed_percent, typeset

if TYPE_CHECKING:
    from moac.offline.evaluation import Line, OfflineEvaluation
    from moac.offline.ncis.checks import Balance

_GREY, _INK, _PALE = "#777777", "#222222", "#aaaaaa"
_MOST_COVARIATES = 20


@figures.styled
def forest(evaluation: OfflineEvaluation) -> Figure:
    """The relative change of each signal to Behavior-Clone, with its interval; hollow where it is not significant."""
    methods = {name: evaluation.lines(name) for name in evaluation.methods}
    signals, step = len(evaluation.report.signal_names), 0.8 / len(methods)
    figure, (ax,) = figures.grid(1, 1, (9.2, 1.1 + signals * max(0.42, 0.3 * len(methods))))
    low, high = _reach([line for lines in methods.values() for line in lines])
    ax.set_xlim(low, high)
    ax.axvline(0, color=_GREY, linewidth=0.9)
    for index, (name, lines) in enumerate(methods.items()):
        for k, line in enumerate(lines):
            _change(ax, line, k + (index - (len(methods) - 1) / 2) * step, _colour(index))
        ax.plot([], [], "o-", color=_colour(index), label=name)
    first = next(iter(methods.values()))
    ax.set_yticks(range(signals), [line.label for line in first])
    ax.set_ylim(signals - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    _in_per_cent(ax.xaxis, (low, high))
    ax.set_title(f"Change of each signal against {evaluation.report.baseline}")
    ax.set_xlabel("relative change; a cost that falls is to the left")
    if len(methods) > 1:
        ax.legend(loc="best")
    return figure


@figures.styled
def sweep(evaluation: OfflineEvaluation) -> Figure:
    """The change of each signal under each cap, one panel each, with bands over users."""
    caps, names = evaluation.report.sweep, evaluation.report.signal_names
    figure, axes = figures.panels(len(names))
    x = np.arange(len(caps.caps))
    for k, (ax, signal) in enumerate(zip(axes, names, strict=True)):
        ax.axhline(0, color=_GREY, linewidth=0.9)
        for index, name in enumerate(evaluation.methods):
            ax.plot(x, caps.relative[name][:, k], label=name, marker=".", **figures.line(index))
            low, high = caps.relative_interval[name][:, k].T
            ax.fill_between(x, low, high, color=_colour(index), alpha=0.18, linewidth=0)
        ax.axvline(caps.caps.index(float(evaluation.report.options.cap)), color=_GREY, linewidth=0.9, linestyle=":")
        estimable = all(policy.estimable[k] for policy in evaluation.report.policies.values())
        ax.set_title(signal, color=_INK if estimable else _GREY)
        ax.text(0.5, 0.5, "" if estimable else "not estimable", transform=ax.transAxes, ha="center", color=_GREY)
        ax.set_xticks(x, ["∞" if math.isinf(cap) else f"{cap:g}" for cap in caps.caps])
        ax.set(xlabel="cap of the weights", ylabel="change")
        _in_per_cent(ax.yaxis, ax.get_ylim())
    figures.legend_below(figure, axes[:1])
    return figure


@figures.styled
def weights(evaluation: OfflineEvaluation) -> Figure:
    """How the uncapped weights are spread over rows."""
    figure, (ax,) = figures.grid(1, 1, (7.2, 3.2))
    shares, edges = evaluation.weights.shares, evaluation.weights.edges[1:-1]
    step, cap = edges[1] / edges[0], evaluation.report.options.cap
    edges = np.concatenate([[edges[0] / step], edges, [edges[-1] * step]])  # what lies beyond has a bin on either side
    for index, name in enumerate(evaluation.methods):
        ax.stairs(shares[name], edges, label=name, linewidth=1.6, color=_colour(index))
    full = np.flatnonzero(np.sum([shares[name] for name in evaluation.methods], axis=0))
    ax.axvline(1, color="#bbbbbb", linewidth=0.9)
    right = max(2.0, float(edges[full[-1] + 1]))
    if math.isfinite(cap):
        right = max(right, 1.5 * cap)
        ax.axvline(cap, color=_GREY, linewidth=0.9, linestyle=":")
        ax.text(cap, 1.0, " cap", transform=ax.get_xaxis_transform(), fontsize=9, color=_GREY, va="top")
    ax.set_xscale("log")
    ax.set_xlim(0.9 * min(0.5, float(edges[full[0]])), 1.1 * right)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(_per_cent)
    ax.set_title(r"Importance weights $\pi/\pi_b$ before the cap")
    ax.set(xlabel="weight", ylabel="share of rows")
    ax.legend()
    return figure


@figures.styled
def balance(policies: Mapping[str, Balance]) -> Figure:
    """Standardised differences of the worst covariates of each policy, with intervals over users."""
    names = list(dict.fromkeys(name for own in policies.values() for name in own.names))[:_MOST_COVARIATES]
    figure, (ax,) = figures.grid(1, 1, (7.2, 1.1 + 0.3 * len(names)))
    for index, (policy, own) in enumerate(policies.items()):
        at = [k for k, name in enumerate(own.names) if name in names]
        y = np.array([names.index(own.names[k]) for k in at]) + 0.5 * (index / len(policies))
        ax.hlines(y, *own.interval[at].T, color=_colour(index), linewidth=1.6)
        ax.plot(own.difference[at], y, "o", color=_colour(index), markersize=5.5, label=policy)
    ax.axvline(0, color=_GREY, linewidth=0.9)
    for limit in (-BALANCE.care, BALANCE.care):
        ax.axvline(limit, color=_GREY, linewidth=0.9, linestyle=":")
    ax.set_yticks(range(len(names)), map(typeset, names))
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set_title("Balance of covariates")
    ax.set_xlabel("weighted minus unweighted mean, standard deviations")
    if len(policies) > 1:
        ax.legend()
    return figure


def _change(ax: Axes, line: Line, y: float, colour: str) -> None:
    """Marker, interval, and the numbers to the right of the axes."""
    unknown = line.outcome == "not estimable"
    colour = _PALE if unknown else colour
    filled = line.outcome in ("better", "worse")
    if np.isfinite(line.relative_interval).all():
        ax.plot(line.relative_interval, (y, y), color=colour, linewidth=1.8, solid_capstyle="butt")
    ax.plot(line.relative, y, "o", color=colour, markersize=6.5, markerfacecolor=colour if filled else "white")
    text = "not estimable" if unknown else change(line.relative, line.relative_interval)
    outcome = f"  {line.outcome}" if filled else ""
    look: dict[str, Any] = {"va": "center", "fontsize": 9, "color": _GREY if unknown else _INK}
    ax.text(1.015, y, text + outcome, transform=ax.get_yaxis_transform(), **look)


def _reach(lines: Sequence[Line]) -> tuple[float, float]:
    """Limits that hold 0 and the intervals of what can be estimated; other intervals may leave the figure."""
    known = [line for line in lines if line.outcome != "not estimable"] or list(lines)
    ends = [end for line in known for end in (*line.relative_interval, line.relative) if np.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    width = (high - low) or 0.02
    return low - 0.12 * width, high + 0.12 * width


def _colour(index: int) -> str:
    return figures.line(index)["color"]


def _per_cent(value: float, _: Any) -> str:
    return f"{100 * value:g} %"


def _in_per_cent(axis: Axis, limits: tuple[float, float]) -> None:
    """Ticks of changes: as many decimals as they need."""
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    width = 100 * (limits[1] - limits[0])
    digits = 0 if width > 8 else 1 if width > 0.8 else 2
    axis.set_major_formatter(lambda x, _: signed_percent(x, digits) if abs(x) > 1e-9 else "0 %")


@figures.styled
def description(log: Description) -> Figure:
    """How often each signal occurs, rows per user, rows per day, and how often each action was shown."""
    figure, axes = figures.grid(2, 2, (8.6, 6.4))
    size = f"{counted(log.num_rows, 'row', ',')} of {counted(len(log.rows_per_user), 'user', ',')}"
    title = f"{log.name}: {size} on {counted(log.num_actions, 'item')}"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    for ax, draw in zip(axes, (_rates, _rows_per_user, _days, _actions), strict=True):
        draw(ax, log)
    figures.legend_below(figure, axes[:1])
    return figure


def _rates(ax: Axes, log: Description) -> None:
    """The share of rows that have each signal, with 95 % intervals that stay above 0 (Wilson, 1927)."""
    names = list(log.signals)
    for k, split in enumerate(SPLITS):
        part = log.splits[split]
        rows = max(part["rows"], 1)
        p = np.array([part["signals"][name]["amount"] / rows for name in names])
        z = 1.96
        centre, spread = p + z * z / (2 * rows), z * np.sqrt(p * (1 - p) / rows + (z / (2 * rows)) ** 2)
        low, high = np.maximum(centre - spread, 1e-9) / (1 + z * z / rows), (centre + spread) / (1 + z * z / rows)
        x = np.arange(len(names)) + 0.24 * (k - 1)
        ax.vlines(x, low, high, color=figures.COLOURS[k], linewidth=1.6)
        ax.plot(x[p > 0], p[p > 0], "o", markersize=5, color=figures.COLOURS[k], label=split)
    ax.set_yscale("log")
    rarest = min((s["amount"] / log.num_rows for s in log.signals.values() if s["amount"]), default=0.1)
    ax.set_ylim(rarest / 10, 2)
    ax.yaxis.set_major_formatter(_per_cent)
    ax.set_xticks(range(len(names)), names, rotation=25, ha="right")
    ax.set_title("Rows that have each signal")
    ax.set_ylabel("share of rows, 95 % interval")


def _rows_per_user(ax: Axes, log: Description) -> None:
    """The share of users that have at least n rows."""
    for k, split in enumerate(SPLITS):
        counts = np.sort(log.rows_per_user[log.user_splits == k])
        if not len(counts):
            continue
        values, first = np.unique(counts, return_index=True)
        share = 1 - first / len(counts)
        marker = "o" if len(values) == 1 else None
        ax.plot(values, share, label=f"{split}, {counted(len(counts), 'user', ',')}", marker=marker, **figures.line(k))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    ax.yaxis.set_major_formatter(_per_cent)
    ax.set(xlabel="n, number of rows", ylabel="share of users")
    ax.set_title("Users with at least n rows")
    ax.legend()


def _days(ax: Axes, log: Description) -> None:
    """Rows of the whole logs on each day, where times are dates."""
    if not any(log.days.values()):
        ax.set_title("Rows per day: not known")
        return
    for k, (name, days) in enumerate(log.days.items()):
        x = np.array([np.datetime64(date.fromisoformat(day)) for day in days])
        ax.plot(x, list(days.values()), marker="o", markersize=4, label=f"{name} log", **figures.line(k))
    known = np.unique([np.datetime64(date.fromisoformat(day)) for days in log.days.values() for day in days])
    ax.set_xticks(known[:: -(-len(known) // 5)])  # at most five days, each once
    ax.xaxis.set_major_formatter(DateFormatter("%d %b"))
    ax.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylim(bottom=0)
    ax.set_title("Rows per day, all items")
    ax.set(xlabel="day", ylabel="rows")
    if len(log.days) > 1:
        ax.legend()


def _actions(ax: Axes, log: Description) -> None:
    """How often each action was shown, the most viewed by train users first."""
    shown = log.action_views / max(log.num_rows, 1)
    ax.set_axisbelow(True)
    ax.bar(np.arange(1, log.num_actions + 1), shown, width=1.0, color=figures.COLOURS[0])
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.yaxis.set_major_formatter(_per_cent)
    ax.set(xlabel="action, by views of train users", ylabel="share of rows")
    ax.set_title("How often each action was shown")
