"""Figures of runs and fronts."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac.history import History
from moac.report import style


def training(history: History, objectives: tuple[str, ...], title: str) -> Figure:
    """Returns, ‖g_t‖², gap, weights and alignment over iterations: means with 95 % bands over trials."""
    figure, axes = style.grid(2, 3, (11.5, 6.2))
    trials = history.returns.shape[0]
    figure.suptitle(f"{title}: {trials} trial{'s' if trials > 1 else ''}", x=0.01, ha="left", fontweight="bold")
    x = history.iteration
    for i, name in enumerate(objectives):
        band(axes[0], x, history.returns[:, :, i], i, name)
        band(axes[3], x, history.weights[:, :, i], i, name)
        band(axes[4], x, history.min_norm_weights[:, :, i], i, name)
    band(axes[1], x, history.gradient_norm_squared, 6, None)
    band(axes[2], x, history.gap, 0, "true gradient")
    band(axes[2], x, history.direction_gap, 1, "stationary-law direction")
    band(axes[5], x, history.smallest_alignment, 6, None)
    titles = ("Return of each objective", "‖g_t‖² of the step taken", "Exact stationarity gap")
    titles += ("Weights λ_t", "Min-norm weights λ̂_t of the batch", "Smallest ⟨gⁱ, d⟩: below 0 hurts one")
    for ax, text in zip(axes, titles, strict=True):
        ax.set_title(text)
        ax.set_xlabel("iteration")
    for ax in (axes[0], axes[2]):
        ax.legend()
    _log_where_positive(axes[1], history.gradient_norm_squared)
    _log_where_positive(axes[2], history.gap)
    axes[3].set_ylim(-0.03, 1.03)
    axes[4].set_ylim(-0.03, 1.03)
    axes[5].axhline(0, color="#999999", linewidth=0.8)
    axes[5].ticklabel_format(axis="y", scilimits=(-2, 3))
    return figure


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
    axes[0].legend(loc="best", fontsize=9)
    return figure


def band(ax: Axes, x: Any, values: Float[np.ndarray, "K L"], index: int, label: str | None) -> None:
    """The mean over trials and its 95 % band."""
    known = np.isfinite(values)
    if not known.any():
        return
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (values - mean) ** 2, 0).sum(axis=0) / np.maximum(count - 1, 1) / count)
    ax.plot(x, mean, label=label, **style.line(index))
    if len(values) > 1:
        low, high = mean - 1.96 * spread, mean + 1.96 * spread
        ax.fill_between(x, low, high, color=style.line(index)["color"], alpha=0.2, linewidth=0)


def _points(ax: Axes, x: Any, y: Any, hull: Any) -> None:
    ax.scatter(x[hull], y[hull], s=48, color=style.COLOURS[0], label="on the hull", zorder=3)
    rest = ~hull
    if rest.any():
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": style.COLOURS[1], "linewidths": 1.5}
        ax.scatter(x[rest], y[rest], s=48, label="a mixture is better", zorder=3, **look)


def _log_where_positive(ax: Axes, values: Any) -> None:
    if np.nanmax(values, initial=0.0) > 0:
        ax.set_yscale("log")
