"""Table and figures of the gap against the number of iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from moac.report.page import Table
from moac.statistics import Mean
from moac_studies.drawings import rates
from moac_studies.rates import judging, trajectories
from moac_studies.studies import Shown

LABELS = tuple(trajectories.SCHEDULES)
EXACT = "Gap against T, exact directions"
LEARNED = "Gap against T, learned critics"
TABLE = "Slopes in T"
_PREDICTED = {
    "η = 1": "does not fall",
    "η = 1/√t": "−0.5",
    "η = 1/t": "−1, up to ln T",
    "η = 1/t²": "−1",
    "η = 0": "−1",
}


def table(slopes: dict[str, dict[str, Mean]], measured: dict[str, Any]) -> Table:
    """Measured slopes beside those of the bound."""
    rows = tuple(
        (label, _PREDICTED[label], *(judging.with_interval(found[label]) for found in slopes.values()))
        for label in LABELS
    )
    counts = ", ".join(f"{values.shape[1]} models up to T = {x[-1]} ({name})" for name, (x, values) in measured.items())
    return Table(
        TABLE,
        f"Slope of log mean gap against log T over the last half decade of T, 95 % intervals over models: {counts}. "
        "An upper bound that falls more slowly than what it bounds is not contradicted, and not confirmed as tight.",
        ("schedule", "bound", *slopes),
        rows,
    )


def _bound(grid: Any, scale: float) -> tuple[rates.Curve, ...]:
    """(1 + Σ 2η_t)/T, scaled to begin where the measured means begin."""
    lines: list[rates.Curve] = []
    for index, (label, (c, p)) in enumerate(trajectories.SCHEDULES.items()):
        t = np.arange(1, grid[-1] + 1, dtype=np.float64)
        shape = (1 + 2 * np.cumsum(c * t**-p))[np.asarray(grid) - 1] / np.asarray(grid)
        lines.append(rates.Curve(label, grid, scale * shape[None] / shape[0], index))
    return tuple(lines)


def figures(measured: dict[str, Any]) -> tuple[Shown, ...]:
    """The bound's shape, exact directions, and learned critics where they were run."""
    exact = {name: found for name, found in measured.items() if "learned" not in name}
    grid, values = next(iter(exact.values()))
    bound = rates.Panel("The bound's dependence on T", ("T", "scaled bound"), _bound(grid, values[0, :, 0].mean()))
    panels = (bound, *(_panel(name, *found) for name, found in exact.items()))
    learned = tuple(_panel(name, *found) for name, found in measured.items() if "learned" in name)
    text = "Mean of the exact gap over the iterations up to T; bands are 95 % over models and starts."
    shown = [
        Shown(
            EXACT,
            "horizon-exact",
            rates.loglog(panels),
            f"{text} First what the bound says, scaled to the same beginning; then ascent along exact directions.",
            "Log–log charts of the mean gap against the number of iterations for five momentum schedules.",
        )
    ]
    if learned:
        caption = f"{text} Algorithm 2 with learned critics and sampled batches, the same seeds for all schedules."
        drawing = rates.loglog(learned, columns=len(learned))
        alt = "Log–log charts of the mean gap against the number of iterations with learned critics."
        shown.append(Shown(LEARNED, "horizon-learned", drawing, caption, alt))
    return tuple(shown)


def _panel(name: str, grid: Any, values: Float[np.ndarray, "E n L"]) -> rates.Panel:
    curves = tuple(rates.Curve(label, grid, values[e], e) for e, label in enumerate(LABELS))
    x = grid[grid >= grid[-1] / 10]
    beside = rates.Line("slope −1", x, 2 * values[:, :, -1].mean(axis=1).max() * x[-1] / x)
    return rates.Panel(name[0].upper() + name[1:], ("T", "mean gap up to T"), curves, (beside,))
