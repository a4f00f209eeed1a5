"""One look for all figures, in colours that the colour-blind can tell apart; and figures that several pages share."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from moac import files, statistics
from moac.statistics import ROUNDING

if TYPE_CHECKING:
    from moac.training.run import History

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
_PANELS = (
    ("Returns", r"$J^i(\theta_t)$"),
    ("Squared step norm", r"$\|g_t\|^2$"),
    ("Exact stationarity gap", r"$\min_\lambda \|\nabla J \lambda\|^2$"),
    ("Weights used", r"$\lambda_t$"),
    ("Min-norm weights", r"$\hat\lambda_t$"),
    ("Alignment (< 0 hurts)", r"$\min_i\, \langle g^i, d\rangle$"),
)
"""Title and quantity of each panel of `training`, so that a figure that is saved alone says what it shows."""
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


@styled
def training(history: History, objectives: tuple[str, ...], title: str) -> Figure:
    """Returns, ‖g_t‖², gap, weights and alignment over iterations: means with 95 % bands over trials."""
    figure, axes = panels(6)
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
    legend_below(figure, [returns])
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
    return {"s": size, "alpha": alpha, "linewidths": 0, "color": line(index)["color"], "zorder": 3}


def rings(size: float = 100, colour: str = "#222222") -> dict[str, Any]:
    """The look of rings, which stand around other points."""
    return {"s": size, "facecolors": "none", "edgecolors": colour, "linewidths": 1.2, "zorder": 4}


def pairs(num_objectives: int) -> list[tuple[int, int]]:
    """Every pair of objectives; a single one is paired with itself."""
    return list(combinations(range(num_objectives), 2)) or [(0, 0)]


@styled
def scatter(groups: Sequence[Points], objectives: Sequence[str], title: str | None = None) -> Figure:
    """Points in one panel for each pair of objectives, with one legend below."""
    of_panels = pairs(len(objectives))
    figure, axes = panels(len(of_panels))
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
    legend_below(figure, axes)
    return figure


def _intervals(ax: Axes, group: Points, i: int, j: int) -> None:
    if group.low is None or group.high is None or not (group.high > group.low).any():
        return
    below, above = np.maximum(group.values - group.low, 0), np.maximum(group.high - group.values, 0)
    error: dict[str, Any] = {"xerr": np.stack([below[:, i], above[:, i]]), "yerr": np.stack([below[:, j], above[:, j]])}
    x, y = group.values[:, i], group.values[:, j]
    ax.errorbar(x, y, fmt="none", ecolor="#333333", elinewidth=0.9, alpha=0.6, **error)


def front(points: Float[np.ndarray, "F M"], hull: Any, objectives: tuple[str, ...], title: str) -> Figure:
    """The exact front, one panel for each pair of objectives; filled points are on the hull."""
    groups = [Points("on the hull", points[hull], dots(0, 48, 1.0))]
    if not np.all(hull):
        groups.append(Points("a mixture is better", points[~np.asarray(hull)], rings(48, COLOURS[1])))
    return scatter(groups, objectives, title)


def band(ax: Axes, x: Any, values: Float[np.ndarray, "K L"], index: int, label: str | None) -> None:
    """The mean over trials and Student's 95 % band; on a log axis the band of its logarithm, which stays positive."""
    each = [statistics.mean(column) for column in np.asarray(values).T]
    mean, low, high = np.array([(one.value, one.low, one.high) for one in each]).T
    if not np.isfinite(mean).any():
        return
    marker: dict[str, Any] = {"marker": "o"} if len(x) == 1 else {}
    look = line(index) | marker
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
