"""Figures of sweeps: what each setting does, and where tasks end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac.report import style
from moac.search.sweep_spec import is_number, readable

_NAMED = 8
"""Up to so many values of a setting are named one by one; more are drawn along an axis of numbers."""
_WIDE = 30.0
"""A range whose ends differ by more than this factor is drawn by its logarithm."""


@style.styled
def effects(values: Mapping[str, Sequence[Any]], columns: Mapping[str, Float[np.ndarray, " E"]]) -> Figure:
    """One row for each setting, one panel for each quantity of the E tasks."""
    figure, axes = style.grid(len(values), len(columns), (3.4 * len(columns), 2.7 * len(values)))
    for k, ax in enumerate(axes):
        (setting, given), (name, y) = list(values.items())[k // len(columns)], list(columns.items())[k % len(columns)]
        colour = style.line(k % len(columns))["color"]
        numbers = len({readable(value) for value in given}) > _NAMED and all(map(is_number, given))
        (_along if numbers else _by_value)(ax, given, y, colour)
        if name == "exact gap" and y.min() > 0:
            ax.set_yscale("log")
        if k < len(columns):
            ax.set_title(name)
        ax.set_xlabel(setting)
    return figure


@style.styled
def ends(
    points: Float[np.ndarray, "E M"],
    best: Bool[np.ndarray, " E"],
    objectives: tuple[str, ...],
    colours: tuple[str, Sequence[Any]] | None,
) -> Figure:
    """The E tasks for each pair of objectives, coloured by a setting's value; a ring around what is not dominated."""
    pairs = [(i, j) for i in range(len(objectives)) for j in range(i + 1, len(objectives))]
    figure, axes = style.grid(1, len(pairs), (4.1 * len(pairs), 4.0))
    groups = _groups(len(points), colours)
    for ax, (i, j) in zip(axes, pairs, strict=True):
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": "#333333", "linewidths": 1.0}
        ax.scatter(points[best, i], points[best, j], s=110, zorder=4, label="not dominated", **ring)
        for index, (label, chosen) in enumerate(groups.items()):
            colour = style.line(index)["color"]
            ax.scatter(points[chosen, i], points[chosen, j], s=30, alpha=0.75, color=colour, label=label, zorder=3)
        ax.set_xlabel(objectives[i])
        ax.set_ylabel(objectives[j])
        ax.margins(0.12)
        ax.locator_params(nbins=5)
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    return figure


def _groups(count: int, colours: tuple[str, Sequence[Any]] | None) -> dict[str, list[int]]:
    """Tasks by the value of a setting, where there are not too many for colours to tell apart."""
    if colours is None or len({readable(value) for value in colours[1]}) > len(style.COLOURS):
        return {"a task": list(range(count))}
    groups: dict[str, list[int]] = {}
    for k, value in enumerate(colours[1]):
        groups.setdefault(f"{colours[0]} = {readable(value)}", []).append(k)
    return groups


def _by_value(ax: Axes, given: Sequence[Any], y: Any, colour: str) -> None:
    """Values side by side, in the order in which they were given; numbers ascending."""
    numbers = all(map(is_number, given))
    ordered = sorted(given) if numbers else given
    names = list(dict.fromkeys(map(readable, ordered)))
    at = np.array([names.index(readable(value)) for value in given])
    spread = np.array([0.08 * ((int(np.sum(at[:k] == place)) % 5) - 2) for k, place in enumerate(at)])
    ax.scatter(at + spread, y, s=18, alpha=0.5, color=colour, linewidths=0)
    ax.plot(range(len(names)), [y[at == k].mean() for k in range(len(names))], "-o" if numbers else "o", color=colour)
    ax.set_xticks(range(len(names)), names, rotation=30 if max(map(len, names)) > 8 else 0)
    ax.set_xlim(-0.5, len(names) - 0.5)


def _along(ax: Axes, given: Sequence[float], y: Any, colour: str) -> None:
    if min(given) > 0 and max(given) > _WIDE * min(given):
        ax.set_xscale("log")
    ax.scatter(given, y, s=18, alpha=0.7, color=colour, linewidths=0)
