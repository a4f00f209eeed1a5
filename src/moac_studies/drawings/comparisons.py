"""Figures that compare methods over iterations, and where trials end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from moac.report import style
from moac.report.figures import band
from moac.training.history import History


@style.styled
def returns(history: History, objectives: tuple[str, ...]) -> Figure:
    """The exact return of each objective over iterations, one panel each."""
    figure, axes = style.grid(1, len(objectives), (3.9 * len(objectives), 3.4))
    for i, (ax, name) in enumerate(zip(axes, objectives, strict=True)):
        band(ax, history.iteration, history.returns[:, :, i], i, None)
        ax.set_title(name)
        ax.set_xlabel("iteration")
    return figure


@style.styled
def over_iterations(histories: Mapping[str, History], quantity: str, log: bool) -> Figure:
    """One quantity over iterations, one line per method."""
    figure, axes = style.grid(1, 1, (7.8, 4.2))
    ax = axes[0]
    if log:
        ax.set_yscale("log")
    for index, (label, history) in enumerate(histories.items()):
        band(ax, history.iteration, getattr(history, quantity), index, label)
    ax.set_xlabel("iteration")
    if not log:
        ax.axhline(0, color="#999999", linewidth=0.8)
        ax.ticklabel_format(axis="y", scilimits=(-2, 3))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    return figure


@style.styled
def gaps(history: History) -> Figure:
    """The exact gap of the true gradient and of Lemma 1's direction."""
    figure, axes = style.grid(1, 1, (6.4, 3.8))
    axes[0].set_yscale("log")
    band(axes[0], history.iteration, history.gap, 0, "true gradient")
    band(axes[0], history.iteration, history.direction_gap, 1, "stationary-law direction")
    axes[0].set_xlabel("iteration")
    axes[0].legend()
    return figure


@style.styled
def weights(history: History, objectives: tuple[str, ...]) -> Figure:
    """λ_t and the λ̂_t of the same batch."""
    figure, axes = style.grid(1, 2, (8.6, 3.6))
    for ax, quantity, title in zip(
        axes, ("weights", "min_norm_weights"), ("λ_t, smoothed", "λ̂_t of the batch"), strict=True
    ):
        for i, name in enumerate(objectives):
            band(ax, history.iteration, getattr(history, quantity)[:, :, i], i, name)
        ax.set_title(title)
        ax.set_xlabel("iteration")
        ax.set_ylim(-0.03, 1.03)
    axes[0].legend(fontsize=9)
    return figure


@style.styled
def ends(histories: Mapping[str, History], points: Float[np.ndarray, "F M"], objectives: tuple[str, ...]) -> Figure:
    """Where the trials of each method end, beside the exact front, one panel per pair of objectives."""
    M = len(objectives)
    pairs = [(i, j) for i in range(M) for j in range(i + 1, M)]
    figure, axes = style.grid(1, len(pairs), (4.3 * len(pairs), 4.3))
    for ax, (i, j) in zip(axes, pairs, strict=True):
        ax.scatter(points[:, i], points[:, j], s=90, marker="*", color="#333333", label="exact front", zorder=4)
        for index, (label, history) in enumerate(histories.items()):
            final = history.returns[:, -1]
            look: dict[str, Any] = {"s": 16, "alpha": 0.5, "linewidths": 0, "color": style.line(index)["color"]}
            ax.scatter(final[:, i], final[:, j], label=label, zorder=3, **look)
        ax.set_xlabel(objectives[i])
        ax.set_ylabel(objectives[j])
        ax.margins(0.1)
        ax.locator_params(nbins=5)
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure
