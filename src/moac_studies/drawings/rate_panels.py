"""Means with intervals side by side, one row for each method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.stats import t as student

from moac.report import style


@style.styled
def dots(titles: tuple[str, ...], rows: Mapping[str, int], values: Float[np.ndarray, "X E K"], label: str) -> Figure:
    """One panel for each of X titles; in it a dot for each of E rows, the mean over K trials with its 95 % interval.

    `rows` gives the colour of each row, as in `style.line`.
    """
    figure, axes = style.grid(1, len(titles), (3.9 * len(titles), 0.42 * len(rows) + 1.3))
    for x, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        ax.axvline(0, color="#999999", linewidth=0.8)
        for e, index in enumerate(rows.values()):
            known, colour = values[x, e], style.line(index)["color"]
            half = student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
            ax.errorbar(known.mean(), e, xerr=half, fmt="o", color=colour, markersize=6, capsize=3)
        ax.set_title(title)
        ax.set_yticks(range(len(rows)), list(rows) if x == 0 else [""] * len(rows))
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.margins(x=0.12)
    figure.supxlabel(label, fontsize=10)
    return figure
