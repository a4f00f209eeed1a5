"""Returns and hypervolume over environment steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moac.experiments import playing, statistics
from moac.experiments.files import Arrays
from moac.experiments.networks.peers import Peer
from moac.experiments.playing import Table
from moac.experiments.studies import Shown
from moac.report import style
from moac.report.figures import band

_GREY = "#555555"
_PANEL = (3.9, 3.0)
"""Inches."""


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
    trained = {key: found for key, found in methods.items() if "steps" in found}
    start = next(found for key, found in methods.items() if key not in trained)
    names = playing.objectives(str(table["env"]), start["discounted"].shape[1])
    rows, columns = _shape(len(names) + 1)
    figure, axes = style.grid(rows, columns, (_PANEL[0] * columns, _PANEL[1] * rows + 0.4))
    for i, (ax, name) in enumerate(zip(axes, (*names, "hypervolume"), strict=False)):
        for index, (key, found) in enumerate(trained.items()):
            band(ax, found["steps"], _quantity(table, found["over_steps"], i), index, key)
        ax.axhline(statistics.mean(_quantity(table, start["discounted"], i)).value, color=_GREY, ls=":", lw=1.2)
        if peer is not None:
            _cross(ax, peer, _quantity(table, peer.discounted, i))
        ax.set_title(name)
        ax.set_xlabel("environment steps")
        ax.ticklabel_format(axis="x", style="plain")
        ax.locator_params(axis="x", nbins=5)
    for ax in axes[len(names) + 1 :]:
        ax.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9)
    return figure


def _quantity(table: Table, returns: Any, i: int) -> Any:
    """The i-th return, or after the last of them the hypervolume."""
    return returns[..., i] if i < returns.shape[-1] else playing.volumes(returns, table["reference"])


def _cross(ax: Axes, peer: Peer, values: Any) -> None:
    ends = statistics.mean(values)
    reach: Any = [[ends.value - ends.low], [ends.high - ends.value]]
    look: dict[str, Any] = {"fmt": "x", "color": _GREY, "capsize": 3, "markersize": 7, "zorder": 4}
    ax.errorbar([peer.steps], [ends.value], yerr=reach, label=peer.name, **look)


def _shape(panels: int) -> tuple[int, int]:
    """Rows and columns."""
    columns = panels if panels <= 3 else (panels + 1) // 2
    return -(-panels // columns), columns
