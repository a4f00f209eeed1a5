"""Hypervolume and hull points over CPU seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from moac import statistics
from moac.report import style
from moac_studies.studies import Shown

if TYPE_CHECKING:
    from moac_studies.fronts.judging import Curve

_PANEL = (3.9, 2.9)
"""Inches."""
_CAPTION = "means over seeds with 95 % bands. CPU seconds of training, without compiling."


def volumes(curves: Mapping[str, Mapping[str, list[Curve]]]) -> Shown:
    """One panel per problem."""
    return Shown(
        "Hypervolume over CPU seconds",
        "volumes",
        _drawn(curves, "volume", "hypervolume"),
        f"Hypervolume of the policies that are kept: {_CAPTION}",
        "Line plots over CPU seconds, one panel per problem and one line per method.",
    )


def hulls(curves: Mapping[str, Mapping[str, list[Curve]]]) -> Shown:
    """One panel per problem whose hull is known."""
    known = {name: own for name, own in curves.items() if np.isfinite(next(iter(own.values()))[0].hull).all()}
    return Shown(
        "Hull points over CPU seconds",
        "hulls",
        _drawn(known, "hull", "hull points found"),
        f"Points of the exact hull that a policy kept has: {_CAPTION}",
        "Line plots over CPU seconds, one panel per problem and one line per method.",
    )


@style.styled
def _drawn(curves: Mapping[str, Mapping[str, list[Curve]]], quantity: str, label: str) -> Figure:
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = style.grid(rows, columns, (_PANEL[0] * columns, _PANEL[1] * rows + 0.4))
    methods = list(dict.fromkeys(method for own in curves.values() for method in own))
    for ax, (name, own) in zip(axes, curves.items(), strict=False):
        for method, seeds in own.items():
            _line(ax, seeds, quantity, methods.index(method), method)
        ax.set_title(name)
        ax.set_xscale("log")
        ax.set_xlabel("CPU seconds")
        ax.set_ylabel(label)
    for ax in axes[len(curves) :]:
        ax.remove()
    named = {text: handle for ax in axes for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _line(ax: Any, seeds: list[Curve], quantity: str, index: int, label: str) -> None:
    """Seeds stand at nearly the same moments; the last of those that have fewer is repeated."""
    longest = max(len(curve.cpu) for curve in seeds)
    x = np.mean([_padded(curve.cpu, longest) for curve in seeds], axis=0)
    values = np.array([_padded(getattr(curve, quantity), longest) for curve in seeds])
    means = [statistics.mean(column) for column in values.T]
    look = style.line(index)
    ax.plot(x, [m.value for m in means], marker=".", label=label, **look)
    ax.fill_between(x, [m.low for m in means], [m.high for m in means], color=look["color"], alpha=0.15, lw=0)


def _padded(values: Any, length: int) -> Any:
    return np.concatenate([values, np.repeat(values[-1:], length - len(values))])
