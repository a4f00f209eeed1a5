"""Figures that several pages share: training over iterations, bands over trials, points per pair of objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac import statistics
from moac.report import style
from moac.statistics import ROUNDING

if TYPE_CHECKING:
    from moac.training.run import History

_PANELS = (
    ("Returns", r"$J^i(\theta_t)$"),
    ("Squared step norm", r"$\|g_t\|^2$"),
    ("Exact stationarity gap", r"$\min_\lambda \|\nabla J \lambda\|^2$"),
    ("Weights used", r"$\lambda_t$"),
    ("Min-norm weights", r"$\hat\lambda_t$"),
    ("Alignment (< 0 hurts)", r"$\min_i\, \langle g^i, d\rangle$"),
)
"""Title and quantity of each panel of `training`, so that a figure that is saved alone says what it shows."""


@style.styled
def training(history: History, objectives: tuple[str, ...], title: str) -> Figure:
    """Returns, ‖g_t‖², gap, weights and alignment over iterations: means with 95 % bands over trials."""
    figure, axes = style.panels(6)
    trials, x = history.returns.shape[0], history.iteration
    about = "1 trial" if trials == 1 else f"{trials} trials, mean and its 95 % band"
    figure.suptitle(f"{title}: {about}", x=0.01, ha="left", fontweight="bold")
    returns, norm, gap, weights, of_batch, alignment = axes
    for i, name in enumerate(objectives):
        band(returns, x, history.returns[:, :, i], i, name)
        band(weights, x, history.weights[:, :, i], i, name)
        band(of_batch, x, history.min_norm_weights[:, :, i], i, name)
    squared_norms(norm, x, {"": history.gradient_norm_squared}, 6)
    squared_norms(gap, x, gaps(history))
    band(alignment, x, history.smallest_alignment, 6, None)
    for ax, (name, symbol) in zip(axes, _PANELS, strict=True):
        ax.set_title(name)
        ax.set(xlabel="iteration", ylabel=symbol)
        ax.locator_params(axis="x", integer=True)
        if not ax.lines:
            ax.text(0.5, 0.5, "not known", transform=ax.transAxes, ha="center", color="#777777")
            ax.set(xticks=[], yticks=[])
    style.legend_below(figure, [returns])
    if gap.lines:
        gap.legend()
    around_zero(alignment, history.smallest_alignment)
    for ax in (weights, of_batch):
        ax.set_ylim(-0.03, 1.03)
    return figure


def gaps(history: History) -> dict[str, Float[np.ndarray, "K L"]]:
    """Both exact gaps by name; one where they are the same, as they must be in the average setting."""
    true, followed = "true gradient", "stationary law"
    if np.allclose(history.gap, history.direction_gap, rtol=1e-6, atol=ROUNDING, equal_nan=True):
        return {"both (equal)": history.gap}
    return {true: history.gap, followed: history.direction_gap}


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
    figure, axes = style.panels(len(of_panels))
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
    style.legend_below(figure, axes)
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
            band(ax, x, above_rounding(values), index, label or None)
    elif any(np.isfinite(values).any() for values in rows.values()):
        band(ax, x, np.zeros((1, len(x))), first, "0 up to rounding")
        ax.set_yticks([0])


def above_rounding(values: Float[np.ndarray, "K L"]) -> Float[np.ndarray, "K L"]:
    """The values; NaN, which is not drawn, at iterations where all of them are 0 but for rounding."""
    return np.where((values > ROUNDING).any(axis=0), values, np.nan)


def around_zero(ax: Axes, values: Any) -> None:
    """An axis for values whose sign matters: linear near 0, by powers of ten beyond a thousandth of the largest."""
    ax.axhline(0, color="#999999", linewidth=0.8, zorder=0)
    largest = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    if largest > 0:
        ax.set_yscale("symlog", linthresh=10.0 ** (np.floor(np.log10(largest)) - 3), linscale=1.0)
