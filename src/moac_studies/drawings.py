"""Drawings that several studies share: curves over iterations, rates on log axes, ends of trials, dots with bars."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from moac.report import figures
from moac.report.figures import Points, above_rounding, around_zero, band, scatter
from moac.report.figures import dots as dots_of
from moac.report.numbers import number
from moac.statistics import Mean, mean
from moac.training.run import History

_GREY, _INK = "#888888", "#222222"
_FEW = 12  # Up to so many points are marked one by one
_TITLE = 34  # Letters in a line of a title
_TEXT_HEIGHT = 0.065  # Of a small line of text, as a share of the height of a panel


def ends(
    trials: Mapping[str, Float[np.ndarray, "K M"]], objectives: Sequence[str], front: Float[np.ndarray, "F M"] | None
) -> Figure:
    """Where trials end, one colour per label and one panel per pair of objectives, beside an exact front."""
    star = {"s": 110, "marker": "*", "facecolors": "none", "edgecolors": _INK, "linewidths": 1.0, "zorder": 5}
    groups = [Points(label, points, dots_of(k, 18, 0.5)) for k, (label, points) in enumerate(trials.items())]
    groups += [] if front is None else [Points("exact front", front, star)]
    return scatter(groups, objectives, "Where the trials end")


@dataclass(frozen=True)
class Dot:
    """A value with its interval; hollow where it is not significant."""

    interval: Mean
    filled: bool = True


@figures.styled
def dots(columns: Mapping[str, Sequence[Dot | None]], rows: Mapping[str, int], label: str) -> Figure:
    """One panel for each column, three in a row; in it a dot for each of `rows` with its interval, in its colour."""
    across, down = min(3, len(columns)), -(-len(columns) // 3)
    figure, axes = figures.grid(down, across, (2.6 * across + 1.2, (0.35 * len(rows) + 0.9) * down + 0.3))
    for ax in axes[len(columns) :]:
        ax.remove()
    for x, (ax, (title, column)) in enumerate(zip(axes, columns.items(), strict=False)):
        ax.axvline(0, color=_GREY, linewidth=0.9)
        for y, (dot, index) in enumerate(zip(column, rows.values(), strict=True)):
            if dot is not None:
                at, colour = dot.interval, figures.line(index)["color"]
                ax.plot([at.low, at.high], [y, y], color=colour, linewidth=1.6)
                ax.plot(at.value, y, "o", color=colour, markerfacecolor=colour if dot.filled else "white")
        ax.set_title(title)
        ax.set_yticks(range(len(rows)), list(rows) if x % across == 0 else [""] * len(rows))
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.margins(x=0.12)
        ax.locator_params(axis="x", nbins=4)
    figure.supxlabel(label, fontsize=10)
    return figure


@dataclass(frozen=True, eq=False)
class Curve:
    """Measured values over trials: their mean with its 95 % band, or bar where there is one point."""

    label: str  # of the legend
    x: Any  # [L]
    values: Float[np.ndarray, "K L"]  # [K, L]
    colour: int  # which colour and dash, as in `figures.line`; the same in all panels of a figure
    # of log mean against log x, drawn as a thin line through the curve's centre; None draws none
    slope: float | None = None


@dataclass(frozen=True, eq=False)
class Line:
    """What is known without trials, such as a bound; drawn thin and dark unless it has a colour."""

    label: str
    x: Any
    y: Any
    colour: int | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str  # above it
    labels: tuple[str, str]  # of x and y
    curves: tuple[Curve, ...]  # measured
    lines: tuple[Line, ...] = ()  # known
    log_x: bool = True  # whether x is logarithmic
    log_y: bool = True  # whether y is
    signed: bool = False  # whether the sign of y matters, in place of its logarithm


def by_label(x: Any, values: Float[np.ndarray, "E K L"], colours: Mapping[str, int]) -> tuple[Curve, ...]:
    """One curve for each label, in the order of the first axis."""
    return tuple(Curve(label, x, each, k) for each, (label, k) in zip(values, colours.items(), strict=True))


def over_iterations(title: str, y: str, history: History, values: Mapping[str, Any], log: bool = False) -> Panel:
    """One line for each label, [K, L] over the iterations of a history; on a log axis nothing below rounding."""
    curves = (
        Curve(label, history.iteration, above_rounding(each) if log else each, k)
        for k, (label, each) in enumerate(values.items())
    )
    return Panel(title, ("iteration", y), tuple(curves), log_x=False, log_y=log)


@figures.styled
def curves(shown: Sequence[Panel], columns: int = 2) -> Figure:
    """All panels in rows of `columns`, with one legend for all of them below."""
    figure, axes = figures.panels(len(shown), columns)
    for ax, panel in zip(axes, shown, strict=True):
        _draw(ax, panel)
    figures.legend_below(figure, axes)
    return figure


def _draw(ax: Axes, panel: Panel) -> None:
    if panel.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    for curve in panel.curves:
        _measured(ax, curve)
    if panel.signed:
        around_zero(ax, np.concatenate([curve.values.ravel() for curve in panel.curves]))
    for line in panel.lines:
        look: dict[str, Any] = {"color": _INK, "linewidth": 1.0, "linestyle": (0, (2, 2))}
        ax.plot(line.x, line.y, label=line.label, **(look if line.colour is None else figures.line(line.colour)))
    ax.set_title(textwrap.fill(panel.title, _TITLE))
    ax.set_xlabel(panel.labels[0])
    ax.set_ylabel(panel.labels[1])
    _ticks(ax, panel)
    _slopes(ax, panel)


def _measured(ax: Axes, curve: Curve) -> None:
    colour = figures.line(curve.colour)["color"]
    if len(curve.x) == 1:
        at = mean(curve.values[:, 0])
        reach: Any = [[at.value - at.low], [at.high - at.value]]
        ax.errorbar(curve.x, [at.value], yerr=reach, fmt="o", color=colour, capsize=3, label=curve.label)
        return
    band(ax, curve.x, curve.values, curve.colour, curve.label)
    if len(curve.x) <= _FEW:
        ax.plot(curve.x, curve.values.mean(axis=0), "o", markersize=3.5, color=colour)
    if curve.slope is not None:
        ax.plot(*_through(curve, curve.slope), color=colour, linewidth=0.8, alpha=0.8, linestyle=":")


def _through(curve: Curve, slope: float) -> tuple[Any, Any]:
    """The line of that slope through the centre of log x and log mean."""
    x, y = np.asarray(curve.x, float), curve.values.mean(axis=0)
    centre = np.exp(np.log(x).mean()), np.exp(np.log(np.maximum(y, np.finfo(float).tiny)).mean())
    return x, centre[1] * (x / centre[0]) ** slope


def _slopes(ax: Axes, panel: Panel) -> None:
    """Each fitted slope at the right edge, as high as its line ends, or a little higher where two would overlap."""
    fitted = [(float(_through(c, c.slope)[1][-1]), c, c.slope) for c in panel.curves if c.slope is not None]
    height = -1.0
    for y, curve, slope in sorted(fitted, key=lambda end: end[0]):
        low, high = np.log(ax.get_ylim())
        height = max((math.log(y) - low) / (high - low), height + _TEXT_HEIGHT)
        look: dict[str, Any] = {"color": figures.line(curve.colour)["color"], "fontsize": 9, "va": "center"}
        ax.text(1.01, height, f"{slope:.2f}".replace("-", "−"), transform=ax.transAxes, **look)


def _ticks(ax: Axes, panel: Panel) -> None:
    """Name the measured x where they are few; where y spans less than two powers of ten, name 2 and 5 between them."""
    points = sorted({float(x) for curve in panel.curves for x in np.atleast_1d(curve.x)})
    if not panel.log_x:
        ax.locator_params(axis="x", nbins=6)
    elif len(points) <= _FEW:
        ax.set_xticks(points, [f"{x:g}" for x in points])
        ax.xaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    if panel.log_y and high < 100 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: number(y, 1)))
        ax.yaxis.set_minor_formatter(NullFormatter())
