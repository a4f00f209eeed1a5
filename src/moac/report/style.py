"""One look for all figures: quiet axes, colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from moac import files

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
"""Okabe and Ito's palette, in the order in which neighbours differ most."""
_GAPS = ((5, 2), (1, 1.2), (5, 1, 1, 1), (8, 2), (3, 1, 1, 1, 1, 1))
_PANEL = ((4.8, 3.4), (3.8, 3.0), (2.8, 2.5))
"""Width and height in inches of one panel: alone, of two in a row, of three or more."""
DASHES: tuple[Any, ...] = ("-", *((0, gaps) for gaps in _GAPS), "-")
_RC: dict[Any, Any] = {
    "font.size": 10, "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
    "grid.linewidth": 0.6, "legend.frameon": False, "svg.hashsalt": "moac",
}  # fmt: skip


P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw a figure in the house style; nothing outside changes."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(_RC):
            return draw(*args, **kwargs)

    return in_style


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure as a file's content, `png` or `svg`; the same figure gives the same bytes.

    The layout of its first file is kept for the second: finding it takes longer than drawing.
    """
    drawn = io.BytesIO()
    with mpl.rc_context(_RC):
        figure.savefig(drawn, format=kind, dpi=144, metadata={"Date": None} if kind == "svg" else None)
    figure.set_layout_engine("none")
    return drawn.getvalue()


def svg(figure: Figure) -> str:
    """The figure as an SVG document."""
    return rendered(figure, "svg").decode()


def write(folder: Path, name: str, figure: Figure) -> None:
    """Write NAME.svg and NAME.png into a folder."""
    for kind in ("svg", "png"):
        files.write_bytes(folder / f"{name}.{kind}", rendered(figure, kind))


def grid(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure with rows × columns axes, drawn without any display."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(rows, columns, k + 1) for k in range(rows * columns)]


def panels(count: int, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """So many panels in rows of `columns`, with room for a legend below; all text is legible at a width of 8 cm."""
    rows, across = -(-count // columns), min(count, columns)
    width, height = _PANEL[min(across, len(_PANEL)) - 1]
    figure, axes = grid(rows, across, (width * across, height * rows + 0.5))
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count]


def legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, as many columns as there is room for; what several of them show is named once."""
    shown: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    room = figure.get_size_inches()[0] / (0.7 + 0.085 * max(map(len, shown), default=0))  # inches of line and letters
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=max(1, min(len(shown), int(room))))


def in_steps(ax: Axes) -> None:
    """Label the horizontal axis as environment steps: 50k, 2M."""
    ax.xaxis.set(major_locator=MaxNLocator(4), major_formatter=EngFormatter(sep=""))


def line(index: int) -> dict[str, Any]:
    """Colour and dash of the k-th line."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.6}
