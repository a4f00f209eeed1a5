"""Tables and figures of the examples with momentum."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from moac.files import Arrays
from moac.report.page import Table
from moac.statistics import mean
from moac_studies.drawings import rate_panels, rates
from moac_studies.rates import examples, judging
from moac_studies.rates.trajectories import COLOURS, FIRST_BATCH
from moac_studies.studies import Shown

LABELS = ("η = 1", "η = 1/t", "η = 1/t²", "η = 0", FIRST_BATCH)
GAP = "Gap against B with and without momentum"
WORST = "What every objective keeps"
BIAS = "Bias of the expected step"
_QUANTITIES = {
    "Momentum: gaps": "Exact gap",
    "Momentum: the worst change of a return": "Smallest change of a return as a share of what it could gain (below 0 "
    "one was harmed)",
}


def tables(gap: Any, change: Any, bias: Arrays, p: dict[str, Any]) -> tuple[Table, ...]:
    """Gaps and changes by example, weights and B, and the enumerated expected step."""
    titles = tuple(_QUANTITIES)
    return _table(titles[0], gap, p), _table(titles[1], change, p), _bias_table(bias, p)


def _table(title: str, values: Float[np.ndarray, "X E K L"], p: dict[str, Any]) -> Table:
    rows = tuple(
        (f"{name}, {label}", *(judging.with_interval(mean(values[k, e, :, b])) for b in range(values.shape[-1])))
        for k, name in enumerate(examples.NAMES)
        for e, label in enumerate(LABELS)
    )
    return Table(
        title,
        f"{_QUANTITIES[title]} after T = {p['iterations']} iterations with α = {p['step']:g}; mean over {p['trials']} "
        "trials with 95 % intervals, the same seeds for all. η = 0 keeps equal weights, “first batch” those of the "
        "first batch.",
        ("example, weights", *(f"B = {B}" for B in p["batches"])),
        rows,
    )


def _bias_table(bias: Arrays, p: dict[str, Any]) -> Table:
    rows = tuple(
        (f"B = {B}", *(float(bias[name][k]) for name in ("bias", "gap", "left")))
        for k, B in enumerate(p["expected_batches"])
    )
    return Table(
        BIAS,
        f"Example B, η = 1, all batches enumerated, exact advantages; α = {p['expected_step']:g}, "
        f"{p['expected_iterations']} expected steps from θ = 0. The last column is ‖E[gλ̂]‖ where they end: where it is "
        "0 the policy has stopped at a point that is not Pareto-stationary.",
        ("batch", "bias at the start", "gap at the end", "expected step at the end"),
        rows,
    )


def figures(gap: Any, change: Any, bias: Arrays, p: dict[str, Any]) -> tuple[Shown, ...]:
    """The gap against B, and what becomes of the worst-off objective."""
    label = "worst change of a return, as a share of what it could gain"
    return (
        Shown(
            GAP,
            "momentum-gap",
            rates.loglog((*_gap_panels(gap, p), _bias_panel(bias, p))),
            f"Exact gap after T = {p['iterations']} iterations, bands 95 % over trials; at the lower right the bias of "
            "the expected step of plain MGDA, by enumeration.",
            "Log–log charts of the exact gap against the batch size for five ways to weigh, in three examples.",
        ),
        Shown(
            WORST,
            "momentum-worst",
            rate_panels.dots(examples.NAMES, {name: COLOURS[name] for name in LABELS}, change[..., 0], label),
            f"The smallest change of a return at B = {p['batches'][0]}, as a share of what that return could gain; "
            "means with 95 % intervals over trials. Left of 0 some objective was harmed.",
            "Dot charts of the worst change of a return for five ways to weigh, in three examples.",
        ),
    )


def _gap_panels(gap: Float[np.ndarray, "X E K L"], p: dict[str, Any]) -> tuple[rates.Panel, ...]:
    def curves(k: int) -> tuple[rates.Curve, ...]:
        return tuple(rates.Curve(label, p["batches"], gap[k, e], COLOURS[label]) for e, label in enumerate(LABELS))

    return tuple(rates.Panel(name, ("B", "gap at the end"), curves(k)) for k, name in enumerate(examples.NAMES))


def _bias_panel(bias: Arrays, p: dict[str, Any]) -> rates.Panel:
    curves = (
        rates.Curve("‖E[gλ̂] − ∇Jλ*‖ at θ = 0", p["expected_batches"], bias["bias"][None], 6),
        rates.Curve("gap where E[gλ̂] = 0", p["expected_batches"], bias["gap"][None], 0),
    )
    return rates.Panel("B: the expected step at η = 1", ("B", "bias, gap"), curves)
