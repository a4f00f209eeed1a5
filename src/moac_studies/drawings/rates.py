"""Figures of rates: panels of curves with bands over trials, fitted slopes, and what a theorem predicts beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from moac.report import style
from moac.report.figures import band

_GREY, _INK = "#888888", "#222222"
_FEW = 12
"""Up to so many points are marked one by one."""
_TEXT_HEIGHT = 0.065
"""Of a small line of text, as a share of the height of a panel."""


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """Measured values over trials: their mean with its 95 % band.

    Attributes:
        label: of the legend.
        x: [L] positive.
        values: [K, L].
        colour: which colour and dash, as in `style.line`; the same in all panels of a figure.
        slope: of log mean against log x, drawn as a thin line through the curve's centre; None draws none.
    """

    label: str
    x: Any
    values: Float[np.ndarray, "K L"]
    colour: int
    slope: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Line:
    """What is known without trials, such as a bound; drawn thin and dark unless it has a colour."""

    label: str
    x: Any
    y: Any
    colour: int | None = None


@final
@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: above it.
        labels: of x and y.
        curves: measured.
        lines: known.
        reference: a slope drawn in grey below the lowest curve, to compare with; None draws none.
        log_x: whether x is logarithmic; y always is.
    """

    title: str
    labels: tuple[str, str]
    curves: tuple[Curve, ...]
    lines: tuple[Line, ...] = ()
    reference: float | None = None
    log_x: bool = True


@style.styled
def loglog(panels: tuple[Panel, ...], columns: int = 2) -> Figure:
    """All panels in rows of `columns`, with one legend for all of them below."""
    rows = math.ceil(len(panels) / columns)
    figure, axes = style.grid(rows, columns, (4.7 * columns, 3.5 * rows + 0.5))
    for ax, panel in zip(axes, panels, strict=False):
        _draw(ax, panel)
    for ax in axes[len(panels) :]:
        ax.remove()
    shown: dict[str, Any] = {}
    for ax in axes[: len(panels)]:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    across = min(len(shown), max(2, 2 * columns - 1))
    figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=across, fontsize=9)
    return figure


def _draw(ax: Axes, panel: Panel) -> None:
    if panel.log_x:
        ax.set_xscale("log")
    ax.set_yscale("log")
    for curve in panel.curves:
        _measured(ax, curve)
    for line in panel.lines:
        look: dict[str, Any] = {"color": _INK, "linewidth": 1.0, "linestyle": (0, (2, 2))}
        ax.plot(line.x, line.y, label=line.label, **(look if line.colour is None else style.line(line.colour)))
    if panel.reference is not None and panel.curves:
        lowest = min(panel.curves, key=lambda curve: float(curve.values.mean(axis=0).min()))
        x, y = _through(lowest, panel.reference)
        label = f"slope {panel.reference:g}".replace("-", "−")
        ax.plot(x, np.asarray(y) / 3, color=_GREY, linewidth=1.3, label=label)
    ax.set_title(panel.title)
    ax.set_xlabel(panel.labels[0])
    ax.set_ylabel(panel.labels[1])
    _ticks(ax, panel)
    _slopes(ax, panel)


def _measured(ax: Axes, curve: Curve) -> None:
    band(ax, curve.x, curve.values, curve.colour, curve.label)
    colour = style.line(curve.colour)["color"]
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
    low, high = np.log(ax.get_ylim())
    ends = [(float(_through(c, c.slope)[1][-1]), c, c.slope) for c in panel.curves if c.slope is not None]
    below = -1.0
    for y, curve, slope in sorted(ends, key=lambda end: end[0]):
        below = max((math.log(y) - low) / (high - low), below + _TEXT_HEIGHT)
        look: dict[str, Any] = {"color": style.line(curve.colour)["color"], "fontsize": 9, "va": "center"}
        ax.text(1.01, below, f"{slope:.2f}".replace("-", "−"), transform=ax.transAxes, **look)


def _ticks(ax: Axes, panel: Panel) -> None:
    """Name the measured x where they are few; where y spans less than two powers of ten, name 2 and 5 between them."""
    points = sorted({float(x) for curve in panel.curves for x in np.atleast_1d(curve.x)})
    if not panel.log_x:
        ax.locator_params(axis="x", nbins=6)
    elif len(points) <= _FEW:
        ax.set_xticks(points, [f"{x:g}" for x in points])
        ax.xaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    if high < 100 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
