"""Gain over effective sample size, changes with their intervals, and λ over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from moac.report import style
from moac.report.figures import band
from moac_studies.comparison.judgements import Judgement
from moac_studies.comparison.measure import Trained
from moac_studies.comparison.training import Searched
from moac_studies.studies import Shown

CURVES, CHANGES, LAMBDA = "Gain over effective sample size", "Changes to Behavior-Clone", "λ over time"
_GREY = "#777777"


def curves(found: Searched, signals: Sequence[str]) -> Shown:
    """Each method's settings as a line, one panel per signal that can be estimated."""
    return Shown(
        CURVES,
        "gain-over-share",
        _curves(found, signals),
        "Change to Behavior-Clone on validation users of each setting of the search, over the effective share of rows: "
        "how much of the log speaks for it. To the right is close to the log. Bars are 95 % intervals over users. At "
        "one share, higher is better.",
        "Line charts of the relative change of each signal over the effective share of rows, one line per method.",
    )


@style.styled
def _curves(found: Searched, signals: Sequence[str]) -> Figure:
    figure, axes = style.grid(1, len(signals), (4.0 * len(signals), 3.7))
    for ax, signal in zip(axes, signals, strict=True):
        ax.axhline(0, color=_GREY, linewidth=0.9)
        for index, method in enumerate(found.trained):
            own = sorted(found.of(method), key=lambda each: each.share)
            lines = [each.line(signal) for each in own]
            y = np.array([np.nan if line is None else 100 * line.relative for line in lines])
            ends = [(np.nan, np.nan) if line is None else line.relative_interval for line in lines]
            reach = np.abs(100 * np.array(ends).T - y)
            look: dict[str, Any] = style.line(index)
            ax.errorbar([each.share for each in own], y, yerr=reach, marker="o", ms=4, capsize=2, label=method, **look)
        ax.set_title(signal)
        ax.set_xlabel("effective share of rows")
    axes[0].set_ylabel("change, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def changes(judged: Mapping[str, Judgement], signals: Sequence[str], users: str) -> Shown:
    """The chosen setting of each method, one panel per signal."""
    return Shown(
        CHANGES,
        "changes",
        _changes(judged, signals),
        f"Change to Behavior-Clone on {users} users, of the setting that validation users chose, with 95 % intervals "
        "over users; filled where significant after Holm. Of a cost, to the left is better.",
        "Forest plots of the relative change of each signal, one row per method.",
    )


@style.styled
def _changes(judged: Mapping[str, Judgement], signals: Sequence[str]) -> Figure:
    figure, axes = style.grid(1, len(signals), (3.6 * len(signals) + 1.2, 0.42 * len(judged) + 1.4))
    for panel, (ax, signal) in enumerate(zip(axes, signals, strict=True)):
        ax.axvline(0, color=_GREY, linewidth=0.9)
        for row, (_, own) in enumerate(judged.items()):
            line = own.line(signal)
            if line is None:
                continue
            low, high = (100 * end for end in line.relative_interval)
            colour = style.line(row)["color"]
            ax.plot([low, high], [row, row], color=colour, linewidth=1.6)
            filled = line.outcome in ("better", "worse")
            ax.plot(100 * line.relative, row, "o", color=colour, markerfacecolor=colour if filled else "white")
        ax.set_yticks(range(len(judged)), list(judged) if panel == 0 else [""] * len(judged))
        ax.set_ylim(len(judged) - 0.5, -0.5)
        ax.set_title(signal)
        ax.set_xlabel("change, %")
    return figure


def weights(own: Trained, signals: Sequence[str]) -> Shown:
    """λ of MOAC."""
    return Shown(
        LAMBDA,
        "lambda",
        _weights(own, signals),
        f"Weights λ_t of {own.name}: means over training seeds with 95 % bands.",
        "Line chart of the weight of each signal over iterations.",
    )


@style.styled
def _weights(own: Trained, signals: Sequence[str]) -> Figure:
    figure, (ax,) = style.grid(1, 1, (7.5, 3.6))
    for i, signal in enumerate(signals):
        band(ax, own.steps, own.weights[:, :, i], i, signal)
    ax.set_xlabel("iteration")
    ax.set_ylabel("λ")
    ax.set_ylim(0, min(1.0, 1.2 * float(own.weights.mean(axis=0).max())))  # with two seeds a band is wider than that
    ax.legend(loc="upper right", ncols=2, fontsize=9)
    return figure
