"""Returns and hypervolume over environment steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac import statistics
from moac.files import Arrays
from moac.report import style
from moac.report.figures import band
from moac_studies import playing
from moac_studies.networks.measure import START
from moac_studies.networks.peers import Peer
from moac_studies.playing import Table
from moac_studies.studies import Shown

_GREY = "#555555"
_PANEL = (3.9, 3.0)
"""Inches."""
_ROUNDING = 1e-3
"""Values that differ by less, as a share, are the same."""


def title(name: str) -> str:
    """Of the figure of an environment."""
    return f"{name} over steps"


def over_steps(name: str, table: Table, methods: Mapping[str, Arrays], peer: Peer | None) -> Shown:
    """All methods on one environment."""
    beside = "" if peer is None else f" Crosses: where {peer.name} ends, with the interval over its seeds."
    return Shown(
        title(name),
        name,
        _drawn(table, methods, peer),
        f"Discounted returns and hypervolume above {table['reference']} while training: means over {table['trials']} "
        f"trials of {table['evaluation_episodes']} episodes per evaluation, with 95 % bands. Dotted: the untrained "
        f"policy in {table['episodes']} episodes.{beside}",
        f"Line plots over environment steps on {name}: one panel per objective and one for the hypervolume, one line "
        "per method.",
    )


@style.styled
def _drawn(table: Table, methods: Mapping[str, Arrays], peer: Peer | None) -> Figure:
    M = len(table["reference"])
    rows, columns = _shape(M + 1)
    figure, axes = style.grid(rows, columns, (_PANEL[0] * columns, _PANEL[1] * rows + 0.4))
    for i, name in enumerate((*playing.objectives(str(table["env"]), M), "hypervolume")):
        unit = _unit(_quantity(table, methods[START]["discounted"], i))
        _panel(axes[i], {key: _line(table, found, i, unit) for key, found in methods.items()})
        if peer is not None:
            _cross(axes[i], peer, _quantity(table, peer.discounted, i) / 10.0**unit)
        axes[i].set_title(f"{name} / $10^{unit}$" if unit else name)
        axes[i].set_xlabel("thousand steps")
        axes[i].locator_params(axis="x", nbins=5)
        _show_constant(axes[i])
    for ax in axes[M + 1 :]:
        ax.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _panel(ax: Axes, lines: Mapping[str, tuple[Any, Any]]) -> None:
    """One line with its band per method, and a level for what has no steps."""
    for index, (key, (x, values)) in enumerate(lines.items(), start=-1):
        if x is None:
            ax.axhline(statistics.mean(values).value, color=_GREY, ls=":", lw=1.2, label=key)
        else:
            band(ax, x, values, index, key)


def _line(table: Table, found: Arrays, i: int, unit: int) -> tuple[Any, Any]:
    """Thousands of steps, or None without them, and what is drawn over them."""
    returns = found.get("over_steps", found["discounted"])
    return found["steps"] / 1000 if "steps" in found else None, _quantity(table, returns, i) / 10.0**unit


def _quantity(table: Table, returns: Any, i: int) -> Any:
    """The i-th return, or after the last of them the hypervolume."""
    return returns[..., i] if i < returns.shape[-1] else playing.volumes(returns, table["reference"])


def _unit(values: Any) -> int:
    """The power of ten in which large values are read most easily; 0 for small ones."""
    largest = float(np.abs(values).max())
    return int(np.log10(largest)) if largest >= 1e4 else 0


def _show_constant(ax: Axes) -> None:
    """Where all lines are the same up to rounding, show that and not the rounding."""
    low, high = ax.get_ylim()
    if high - low < _ROUNDING * max(abs(low), abs(high)):
        reach = 0.1 * max(abs(low), abs(high))
        ax.set_ylim(low - reach, high + reach)


def _cross(ax: Axes, peer: Peer, values: Any) -> None:
    ends = statistics.mean(values)
    reach: Any = [[ends.value - ends.low], [ends.high - ends.value]]
    look: dict[str, Any] = {"fmt": "x", "color": _GREY, "capsize": 3, "markersize": 7, "zorder": 4}
    ax.errorbar([peer.steps / 1000], [ends.value], yerr=reach, label=peer.name, **look)


def _shape(panels: int) -> tuple[int, int]:
    """Rows and columns."""
    columns = panels if panels <= 3 else (panels + 1) // 2
    return -(-panels // columns), columns
