"""Figures of policies judged on a log: changes with their intervals, cap sweep, weights, and training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from moac.offline.evaluation import Line, OfflineEvaluation
from moac.report import style
from moac.report.figures import band
from moac.training.history import History

_GREY = "#777777"
_COLUMNS = 4


@style.styled
def forest(judged: OfflineEvaluation) -> Figure:
    """The relative change of each signal to Behavior-Clone, with its interval; hollow where it is not significant."""
    methods = {name: judged.lines(name) for name in judged.methods}
    signals, step = len(judged.report.signal_names), 0.8 / len(methods)
    figure, (ax,) = style.grid(1, 1, (9.2, 1.1 + signals * max(0.42, 0.3 * len(methods))))
    low, high = _reach([line for own in methods.values() for line in own])
    ax.set_xlim(low, high)
    ax.axvline(0, color=_GREY, linewidth=0.9)
    for index, (name, own) in enumerate(methods.items()):
        for k, line in enumerate(own):
            _change(ax, line, k + (index - (len(methods) - 1) / 2) * step, _colour(index))
        ax.plot([], [], "o-", color=_colour(index), label=name)
    first = next(iter(methods.values()))
    ax.set_yticks(range(signals), [line.label for line in first])
    ax.set_ylim(signals - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    _in_per_cent(ax.xaxis, (low, high))
    ax.set_xlabel(f"change to {judged.report.baseline}, of the signal: a cost that falls is to the left")
    if len(methods) > 1:
        ax.legend(loc="best", fontsize=9)
    return figure


@style.styled
def sweep(judged: OfflineEvaluation) -> Figure:
    """The change of each signal under each cap, one panel each, with bands over users."""
    found, names = judged.report.sweep, judged.report.signal_names
    figure, axes = _panels(len(names))
    x = np.arange(len(found.caps))
    for k, (ax, signal) in enumerate(zip(axes, names, strict=False)):
        ax.axhline(0, color=_GREY, linewidth=0.9)
        for index, name in enumerate(judged.methods):
            ax.plot(x, found.relative[name][:, k], label=name, marker=".", **style.line(index))
            low, high = found.relative_interval[name][:, k].T
            ax.fill_between(x, low, high, color=_colour(index), alpha=0.18, linewidth=0)
        ax.axvline(found.caps.index(float(judged.report.options.cap)), color=_GREY, linewidth=0.9, linestyle=":")
        ax.set_title(signal if _estimable(judged, k) else f"{signal}, not estimable", color=_ink(judged, k))
        ax.set_xticks(x, ["∞" if math.isinf(cap) else f"{cap:g}" for cap in found.caps])
        ax.set_xlabel("cap")
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        _in_per_cent(ax.yaxis, ax.get_ylim())
    _legend_below(figure, axes[0])
    return figure


@style.styled
def weights(judged: OfflineEvaluation) -> Figure:
    """How the uncapped weights are spread over rows, and what they leave of rows and users."""
    figure, axes = style.grid(1, 2, (10.4, 3.4))
    _histogram(axes[0], judged)
    _sizes(axes[1], judged)
    return figure


@style.styled
def training(history: History, objectives: Sequence[str]) -> Figure:
    """λ over iterations, and the value of each signal on validation users, one panel each."""
    figure, axes = _panels(1 + len(objectives))
    x = history.iteration
    for i, name in enumerate(objectives):
        band(axes[0], x, history.weights[:, :, i], i, name)
        band(axes[i + 1], x, history.returns[:, :, i], i, None)
        axes[i + 1].set_title(name)
    axes[0].set_title("Weights λ")
    axes[0].set_ylim(0, min(1.0, 1.3 * float(np.nanmax(history.weights.mean(axis=0), initial=0.1))))
    for ax in axes[: 1 + len(objectives)]:
        ax.set_xlabel("iteration")
        ax.locator_params(nbins=5)
        ax.ticklabel_format(axis="y", scilimits=(-3, 4))
    _legend_below(figure, axes[0])
    return figure


def signed(share: float, digits: int = 1) -> str:
    """A change in per cent: +1.1 %, −30 %."""
    return f"{100 * share:+.{digits}f}\u00a0%".replace("-", "−")


def _change(ax: Axes, line: Line, y: float, colour: str) -> None:
    """Marker, interval, and the numbers to the right of the axes."""
    unknown = line.outcome == "not estimable"
    colour = "#aaaaaa" if unknown else colour
    filled = line.outcome in ("better", "worse")
    if np.isfinite(line.relative_interval).all():
        ax.plot(line.relative_interval, (y, y), color=colour, linewidth=1.8, solid_capstyle="butt")
    ax.plot(line.relative, y, "o", color=colour, markersize=6.5, markerfacecolor=colour if filled else "white")
    said = "not estimable" if unknown else f"{signed(line.relative)} {between(line.relative_interval)}"
    word = f"  {line.outcome}" if filled else ""
    look: dict[str, Any] = {"va": "center", "fontsize": 9, "color": _GREY if unknown else "#222222"}
    ax.text(1.015, y, said + word, transform=ax.get_yaxis_transform(), **look)


def between(interval: tuple[float, float]) -> str:
    """An interval in per cent: [+0.9, +1.4]."""
    if not np.isfinite(interval).all():
        return ""
    return f"[{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]".replace("-", "−")


def _reach(found: Sequence[Line]) -> tuple[float, float]:
    """Limits that hold 0 and the intervals of what can be estimated; other intervals may leave the figure."""
    known = [line for line in found if line.outcome != "not estimable"] or list(found)
    ends = [end for line in known for end in (*line.relative_interval, line.relative) if np.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    width = (high - low) or 0.02
    return low - 0.12 * width, high + 0.12 * width


def _histogram(ax: Axes, judged: OfflineEvaluation) -> None:
    found = judged.weights
    edges = found.edges[1:-1]
    step = edges[1] / edges[0]
    edges = np.concatenate([[edges[0] / step], edges, [edges[-1] * step]])
    for index, name in enumerate(judged.methods):
        ax.stairs(found.shares[name], edges, label=name, linewidth=1.6, color=_colour(index))
    cap = judged.report.options.cap
    full = np.flatnonzero(np.sum([found.shares[name] for name in judged.methods], axis=0))
    beyond = 1.5 * cap if math.isfinite(cap) else 0.0
    ends = min(0.5, float(edges[full[0]])), max(2.0, float(edges[full[-1] + 1]), beyond)
    ax.axvline(1, color="#bbbbbb", linewidth=0.9)
    if math.isfinite(cap):
        ax.axvline(cap, color=_GREY, linewidth=0.9, linestyle=":")
        ax.text(cap, 1.0, " cap", transform=ax.get_xaxis_transform(), fontsize=9, color=_GREY, va="top")
    ax.set_xscale("log")
    ax.set_xlim(0.9 * ends[0], 1.1 * ends[1])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    ax.set_title("Weights π/π_b: share of the rows")
    ax.set_xlabel("weight, without a cap")
    ax.legend(fontsize=9)


def _sizes(ax: Axes, judged: OfflineEvaluation) -> None:
    """Effective shares, of the worst seed; 100 % is the log itself."""
    bars = [
        (f"{name}: {label}", min(getattr(one, measure) for one in judged.report.policies[name].diagnostics), index)
        for index, name in enumerate(judged.methods)
        for label, measure in (("rows", "row_effective_share"), ("users", "user_effective_share"))
    ]
    for y, (_, share, index) in enumerate(bars):
        ax.barh(y, share, height=0.6, color=_colour(index), alpha=0.85 if y % 2 == 0 else 0.5)
        ax.text(min(share, 1) + 0.01, y, f"{100 * share:.0f} %", va="center", fontsize=9)
    ax.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    ax.set_ylim(len(bars) - 0.5, -0.5)
    ax.set_xlim(0, 1.15)
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g} %"))
    ax.set_title("Effective share of rows and users")


def _colour(index: int) -> str:
    return style.line(index)["color"]


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """Small axes in rows of four."""
    rows, columns = math.ceil(count / _COLUMNS), min(count, _COLUMNS)
    figure, axes = style.grid(rows, columns, (2.9 * columns, 2.4 * rows + 0.5))
    for ax in axes[count:]:
        ax.remove()
    return figure, axes


def _in_per_cent(axis: Axis, limits: tuple[float, float]) -> None:
    """Ticks of changes: as many decimals as they need."""
    width = 100 * (limits[1] - limits[0])
    digits = 0 if width > 8 else 1 if width > 0.8 else 2
    axis.set_major_formatter(FuncFormatter(lambda x, _: signed(x, digits) if abs(x) > 1e-9 else "0 %"))


def _estimable(judged: OfflineEvaluation, k: int) -> bool:
    """Of all methods, and of Behavior-Clone."""
    return all(own.estimable[k] for own in judged.report.policies.values())


def _ink(judged: OfflineEvaluation, k: int) -> str:
    return "#222222" if _estimable(judged, k) else _GREY


def _legend_below(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 8), fontsize=9)
