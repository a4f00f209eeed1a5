"""Figures of explorations: what was found beside what can be reached, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac.report import style

FEW = 3
"""Up to so many objectives are drawn pair by pair; more along parallel axes."""
_LINES = {"policies": ("#d5d5d5", 0.8), "exact hull": (style.COLOURS[1], 1.2), "archive": (style.COLOURS[0], 1.4)}
"""Colour and width."""
Points = Float[np.ndarray, "N M"]


@final
@dataclass(frozen=True, eq=False)
class Picture:
    """What a figure of an exploration shows.

    Attributes:
        objectives: their names.
        found: every policy.
        rules: how each was trained.
        archive: those that none dominates.
        low, high: ends of their intervals; the archive itself where it is exact.
        front: exact; None where it is not known.
        hull: which points of the front no mixture dominates.
    """

    objectives: tuple[str, ...]
    found: Points
    rules: tuple[str, ...]
    archive: Points
    low: Points
    high: Points
    front: Points | None
    hull: Points | None


@style.styled
def fronts(picture: Picture) -> Figure:
    """The archive among all policies, with the exact front where it is known."""
    return _parallel(picture) if len(picture.objectives) > FEW else _pairs(picture)


def _pairs(picture: Picture) -> Figure:
    pairs = list(combinations(range(len(picture.objectives)), 2)) or [(0, 0)]
    figure, axes = style.grid(1, len(pairs), (max(6.4, 4.3 * len(pairs)), 4.3))
    for ax, (i, j) in zip(axes, pairs, strict=True):
        _scatter(ax, picture, i, j)
        ax.set_xlabel(picture.objectives[i])
        ax.set_ylabel(picture.objectives[j])
        ax.margins(0.1)
        ax.locator_params(nbins=5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), 3 if len(pairs) == 1 else 6), fontsize=9
    )
    return figure


def _scatter(ax: Axes, picture: Picture, i: int, j: int) -> None:
    for index, rule in enumerate(dict.fromkeys(picture.rules)):
        own = picture.found[[k for k, name in enumerate(picture.rules) if name == rule]]
        colour = style.line(index)["color"]
        ax.scatter(own[:, i], own[:, j], s=14, alpha=0.45, color=colour, linewidths=0, label=f"policies, {rule}")
    for points, marker, label in ((picture.front, "x", "exact front"), (picture.hull, "*", "exact hull")):
        if points is not None:
            colour = "#333333" if marker == "*" else "#999999"
            ax.scatter(points[:, i], points[:, j], s=70, marker=marker, color=colour, linewidths=1.0, label=label)
    error = [np.stack([picture.archive[:, k] - picture.low[:, k], picture.high[:, k] - picture.archive[:, k]])
             for k in (i, j)]  # fmt: skip
    if any(each.any() for each in error):
        look: dict[str, Any] = {"fmt": "none", "ecolor": "#333333", "elinewidth": 0.9, "alpha": 0.6}
        ax.errorbar(
            picture.archive[:, i], picture.archive[:, j], np.maximum(error[1], 0), np.maximum(error[0], 0), **look
        )
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": "#111111", "linewidths": 1.1}
    ax.scatter(picture.archive[:, i], picture.archive[:, j], s=95, zorder=4, label="archive", **ring)


def _parallel(picture: Picture) -> Figure:
    """Each objective on an axis of its own, scaled to the range of what is shown; a line is a policy."""
    sets = {"policies": picture.found, "exact hull": picture.hull, "archive": picture.archive}
    shown = {label: points for label, points in sets.items() if points is not None}
    low, high = (end(np.concatenate(list(shown.values())), axis=0) for end in (np.min, np.max))
    figure, (ax,) = style.grid(1, 1, (max(6.0, 1.6 * len(picture.objectives)), 4.3))
    x = np.arange(len(picture.objectives))
    for label, points in shown.items():
        colour, width = _LINES[label]
        for k, row in enumerate(_scaled(points, low, high)):
            ax.plot(x, row, color=colour, alpha=0.7, linewidth=width, label=label if k == 0 else None)
    named = [f"{n}\n{a:.3g} to {b:.3g}" for n, a, b in zip(picture.objectives, low, high, strict=True)]
    ax.set_xticks(x, named, fontsize=9)
    ax.set_yticks([0, 1], ["least", "most"])
    ax.set_ylim(-0.05, 1.05)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _scaled(points: Points, low: Any, high: Any) -> Points:
    """To [0, 1] in each objective; to the middle where all are alike."""
    return np.where(high > low, (points - low) / np.where(high > low, high - low, 1.0), 0.5)


@style.styled
def over_steps(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Hypervolume and IGD+ of all that was found so far, over environment steps, a line for each rule."""
    figure, axes = style.grid(1, 2, (9.6, 3.6))
    panels = (("hypervolume", "Hypervolume: more is better"), ("igd_plus", "IGD+: less is better"))
    for ax, (name, title) in zip(axes, panels, strict=True):
        for index, (rule, curve) in enumerate(curves.items()):
            values = np.array([np.nan if value is None else value for value in curve[name]], dtype=np.float64)
            mark: dict[str, Any] = {"marker": "o"} if len(values) == 1 else {}
            ax.plot(np.asarray(curve["steps"]), values, label=rule, **style.line(index), **mark)
        ax.set_title(title)
        ax.set_xlabel("environment steps")
        ax.set_ylim(bottom=0)
    axes[0].legend(loc="lower right")
    return figure
