"""Figures that several pages share: training over iterations, bands over trials, points per pair of objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac import statistics
from moac.report import style

if TYPE_CHECKING:
    from moac.training.history import History

ROUNDING = 1e-24
"""A squared gradient below this is zero."""


@style.styled
def training(history: History, objectives: tuple[str, ...], title: str) -> Figure:
    """Returns, ‖g_t‖², gap, weights and alignment over iterations: means with 95 % bands over trials."""
    figure, axes = style.grid(2, 3, (11.5, 6.2))
    trials = history.returns.shape[0]
    about = "1 trial" if trials == 1 else f"{trials} trials, mean and its 95 % band"
    figure.suptitle(f"{title}: {about}", x=0.01, ha="left", fontweight="bold")
    x = history.iteration
    for i, name in enumerate(objectives):
        band(axes[0], x, history.returns[:, :, i], i, name)
        band(axes[3], x, history.weights[:, :, i], i, name)
        band(axes[4], x, history.min_norm_weights[:, :, i], i, name)
    squared_norms(axes[1], x, {"": history.gradient_norm_squared}, 6)
    squared_norms(axes[2], x, {"true gradient": history.gap, "stationary-law direction": history.direction_gap})
    band(axes[5], x, history.smallest_alignment, 6, None)
    titles = ("Return of each objective", r"$\|g_t\|^2$ of the step taken", "Exact stationarity gap")
    titles += (r"Weights $\lambda_t$", r"Min-norm weights $\hat\lambda_t$ of the batch")
    titles += (r"Smallest $\langle g^i, d\rangle$: below 0 hurts one",)
    for ax, text in zip(axes, titles, strict=True):
        ax.set_title(text, loc="left", fontweight="bold")
        ax.set_xlabel("iteration")
        ax.locator_params(axis="x", integer=True)
        _say_if_empty(ax)
    for ax in (axes[0], axes[2]):
        if ax.lines:
            ax.legend(frameon=False)
    for ax in axes[3:5]:
        ax.set_ylim(-0.03, 1.03)
    axes[5].axhline(0, color="#999999", linewidth=0.8)
    axes[5].ticklabel_format(axis="y", scilimits=(-2, 3))
    return figure


@final
@dataclass(frozen=True, eq=False)
class Points:
    """Points that are drawn alike."""

    label: str  # of the legend
    values: Float[np.ndarray, "N M"]  # [N, M] objective values
    look: dict[str, Any]  # of the marks, as `Axes.scatter` takes it
    low: Float[np.ndarray, "N M"] | None = None  # [N, M] ends of their intervals; None draws none
    high: Float[np.ndarray, "N M"] | None = None


def dots(index: int, size: float = 24, alpha: float = 0.7) -> dict[str, Any]:
    """The look of filled points in the k-th colour."""
    return {"s": size, "alpha": alpha, "linewidths": 0, "color": style.line(index)["color"], "zorder": 3}


def rings(size: float = 100, colour: str = "#222222") -> dict[str, Any]:
    """The look of rings, which stand around other points."""
    return {"s": size, "facecolors": "none", "edgecolors": colour, "linewidths": 1.2, "zorder": 4}


def pairs(num_objectives: int) -> list[tuple[int, int]]:
    """Every pair of objectives; a single one is paired with itself."""
    return list(combinations(range(num_objectives), 2)) or [(0, 0)]


@style.styled
def scatter(groups: Sequence[Points], objectives: Sequence[str], title: str | None = None) -> Figure:
    """Points in one panel for each pair of objectives, with one legend below."""
    of_panels = pairs(len(objectives))
    figure, axes = style.grid(1, len(of_panels), (max(6.4, 4.3 * len(of_panels)), 4.3))
    if title is not None:
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    for ax, (i, j) in zip(axes, of_panels, strict=True):
        for group in groups:
            ax.scatter(group.values[:, i], group.values[:, j], label=group.label, **group.look)
            _intervals(ax, group, i, j)
        ax.set_xlabel(objectives[i])
        ax.set_ylabel(objectives[j])
        ax.margins(0.1)
        ax.locator_params(nbins=5)
    style.legend_below(figure, axes, 3 if len(of_panels) == 1 else 6)
    return figure


def _intervals(ax: Axes, group: Points, i: int, j: int) -> None:
    if group.low is None or group.high is None or not (group.high > group.low).any():
        return
    below, above = np.maximum(group.values - group.low, 0), np.maximum(group.high - group.values, 0)
    error: dict[str, Any] = {"xerr": np.stack([below[:, i], above[:, i]]), "yerr": np.stack([below[:, j], above[:, j]])}
    ax.errorbar(
        group.values[:, i], group.values[:, j], fmt="none", ecolor="#333333", elinewidth=0.9, alpha=0.6, **error
    )


def front(points: Float[np.ndarray, "F M"], hull: Any, objectives: tuple[str, ...], title: str) -> Figure:
    """The exact front, one panel for each pair of objectives; filled points are on the hull."""
    groups = [Points("on the hull", points[hull], dots(0, 48, 1.0))]
    if not np.all(hull):
        groups.append(Points("a mixture is better", points[~np.asarray(hull)], rings(48, style.COLOURS[1])))
    return scatter(groups, objectives, title)


def band(ax: Axes, x: Any, values: Float[np.ndarray, "K L"], index: int, label: str | None) -> None:
    """The mean over trials and Student's 95 % band; on a log axis the band of its logarithm, which stays positive."""
    each = [statistics.mean(column) for column in np.asarray(values).T]
    mean, low, high = np.array([(one.value, one.low, one.high) for one in each]).T
    if not np.isfinite(mean).any():
        return
    marker: dict[str, Any] = {"marker": "o"} if len(x) == 1 else {}
    look = style.line(index) | marker
    ax.plot(x, mean, label=label, **look)
    if len(values) > 1:
        if ax.get_yscale() == "log":
            factor = np.exp(np.divide(high - mean, mean, out=np.zeros_like(mean), where=mean > 0))
            low, high = mean / factor, mean * factor
        ax.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def squared_norms(ax: Axes, x: Any, rows: dict[str, Float[np.ndarray, "K L"]], first: int = 0) -> None:
    """Squared norms on a log axis, or the word that they are zero."""
    largest = max(float(np.max(values, initial=0.0, where=np.isfinite(values))) for values in rows.values())
    if largest > ROUNDING:
        ax.set_yscale("log")
        for index, (label, values) in enumerate(rows.items(), start=first):
            band(ax, x, values, index, label or None)
    elif any(np.isfinite(values).any() for values in rows.values()):
        band(ax, x, np.zeros((1, len(x))), first, "0 up to rounding")
        ax.set_yticks([0])


def _say_if_empty(ax: Axes) -> None:
    if not ax.lines:
        ax.text(0.5, 0.5, "not known", transform=ax.transAxes, ha="center", color="#777777")
        ax.set_xticks([])
        ax.set_yticks([])
