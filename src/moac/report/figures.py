"""Figures of runs and fronts."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

from moac.report import style
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


@style.styled
def front(points: Float[np.ndarray, "F M"], hull: Any, objectives: tuple[str, ...], title: str) -> Figure:
    """The exact front, one panel for each pair of objectives; filled points are on the hull."""
    M = points.shape[1]
    pairs = [(i, j) for i in range(M) for j in range(i + 1, M)] or [(0, 0)]
    figure, axes = style.grid(1, len(pairs), (3.9 * len(pairs), 3.9))
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    for ax, (i, j) in zip(axes, pairs, strict=True):
        _points(ax, points[:, i], points[:, j], np.asarray(hull))
        ax.set_xlabel(objectives[i])
        ax.set_ylabel(objectives[j])
        ax.margins(0.12)
        ax.locator_params(nbins=5)
    axes[0].legend(loc="best", fontsize=9, frameon=False)
    return figure


def band(ax: Axes, x: Any, values: Float[np.ndarray, "K L"], index: int, label: str | None) -> None:
    """The mean over trials and Student's 95 % band; on a log axis the band of its logarithm, which stays positive."""
    known = np.isfinite(values)
    if not known.any():
        return
    count = known.sum(axis=0)
    seen = np.maximum(count, 1)
    mean = np.where(known, values, 0).sum(axis=0) / seen
    deviation = np.where(known, values, mean) - mean
    freedom = np.maximum(seen - 1, 1)
    spread = stdtrit(freedom, 0.975) * np.sqrt((deviation**2).sum(axis=0) / freedom / seen)
    mean = np.where(count > 0, mean, np.nan)
    marker: dict[str, Any] = {"marker": "o"} if len(x) == 1 else {}
    look = style.line(index) | marker
    ax.plot(x, mean, label=label, **look)
    if len(values) > 1:
        low, high = mean - spread, mean + spread
        if ax.get_yscale() == "log":
            factor = np.exp(np.divide(spread, mean, out=np.zeros_like(spread), where=mean > 0))
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


def _points(ax: Axes, x: Any, y: Any, hull: Any) -> None:
    ax.scatter(x[hull], y[hull], s=48, color=style.COLOURS[0], label="on the hull", zorder=3)
    rest = ~hull
    if rest.any():
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": style.COLOURS[1], "linewidths": 1.5}
        ax.scatter(x[rest], y[rest], s=48, label="a mixture is better", zorder=3, **look)
