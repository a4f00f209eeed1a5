"""The critic's rates as figures and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from moac.report.numbers import number
from moac.report.page import Table
from moac_studies.drawings import rates
from moac_studies.rates.critic.bounds import Guarantee, Tested
from moac_studies.rates.critic.fits import Measured
from moac_studies.rates.critic.problems import DISCOUNTED, EXACT, VARIANTS
from moac_studies.studies import Shown

_ERROR = r"$E\|w_N - w^*\|^2$"
_COLOUR = {variant: k for k, variant in enumerate(VARIANTS)}


def figures(measured: Sequence[Measured], tested: Sequence[Tested], asked: Sequence[Guarantee]) -> tuple[Shown, ...]:
    """Decay, floor and bound."""
    band = "Mean over trials with its 95 % band, of the objective with the largest error."
    return (
        Shown(
            "Decay",
            "decay",
            rates.loglog(tuple(panel for m in measured for panel in _decays(m, asked))),
            f"The error from w_0 = 0 on at a practical β, beside the mean dynamics plus the measured floor, in which "
            f"nothing is fitted, and beside the decay C_1(1 − βλ_A/8)ᴺ of the theorem for the same β. {band}",
            "Line charts of the critic's error over TD steps, logarithmic, for two problems in two settings.",
        ),
        Shown(
            "Floor",
            "floor",
            rates.loglog(tuple(_floors(m) for m in measured)),
            f"The error late in runs that began at w* (and μ at J), against D, with fitted slopes. {band}",
            "Log-log charts of the floor of the critic's error against the batch size, one line per variant.",
        ),
        Shown(
            "Bound",
            "bound",
            rates.loglog(tuple(_bounds(t) for t in tested)),
            f"Theorem 1 under its own conditions, as {' and as '.join(t.guarantee.derivation for t in tested)}, beside "
            "the error from w_0 = 0 on and the floor of runs that began at w*. Mean over trials with its 95 % band, of "
            "the objective of highest floor.",
            "Log-log charts of the measured error and of the bound over TD steps.",
        ),
    )


def _decays(measured: Measured, asked: Sequence[Guarantee]) -> tuple[rates.Panel, ...]:
    panels: list[rates.Panel] = []
    for setting, variants in (("discounted", (DISCOUNTED,)), ("average", VARIANTS[1:])):
        first = measured.decays[variants[0]]
        i, N = first.worst, first.plan.checkpoints
        start = float((measured.problem.target(variants[0])[:, i] ** 2).sum())
        lines = (
            rates.Line("mean dynamics + floor", N, np.asarray(first.expected)[:, i] + first.floor[i]),
            rates.Line("rate of the theorem", N, start * np.exp(-N * promised(measured, setting, asked)), 6),
        )
        curves = tuple(rates.Curve(v, N, measured.decays[v].errors[:, :, i], _COLOUR[v]) for v in variants)
        title = f"{measured.problem.name}, {setting}, D = {first.plan.batch_size}"
        panels.append(rates.Panel(title, ("TD steps N", _ERROR), curves, lines, log_x=False))
    return tuple(panels)


def promised(measured: Measured, setting: str, asked: Sequence[Guarantee]) -> float:
    """−log(1 − βλ_A/8) at the β that was run."""
    lam = next(g.lambda_A for g in asked if (g.problem, g.setting) == (measured.problem.name, setting))
    return -math.log1p(-measured.step_size * lam / 8)


def _floors(measured: Measured) -> rates.Panel:
    floors = measured.floors
    curves = tuple(
        rates.Curve(v, floors.sizes, values[:, :, floors.worst(v)], _COLOUR[v], floors.slopes[v][floors.worst(v)].value)
        for v, values in floors.values.items()
    )
    title = f"{measured.problem.name}, β = {measured.step_size:g}"
    return rates.Panel(title, ("batch size D", f"floor of {_ERROR}"), curves, reference=-1.0)


def _bounds(tested: Tested) -> rates.Panel:
    decay, said, i = tested.decay, tested.guarantee, int(tested.decay.floor.argmax())
    floor = float(decay.floor[i])
    seen = tested.transient > floor / 10
    lines = (
        rates.Line("bound", tested.steps[seen], (tested.transient + tested.floor)[seen], 1),
        rates.Line("its first term", tested.steps[seen], tested.transient[seen], 4),
        rates.Line("measured floor", tested.steps[seen], np.full(int(seen.sum()), floor)),
    )
    curve = rates.Curve("measured", decay.plan.checkpoints, decay.errors[:, :, i], 0)
    title = f"as {said.derivation}: β = {number(said.step_size, 3)}, D = {number(said.batch_size)}"
    return rates.Panel(title, ("TD steps N", _ERROR), (curve,), lines)


def tables(measured: Sequence[Measured], asked: Sequence[Guarantee]) -> tuple[Table, ...]:
    """Rates, floors and what the theorem asks."""
    return _rates(measured, asked), _floor_table(measured), _asked(asked)


def _rates(measured: Sequence[Measured], asked: Sequence[Guarantee]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for m in measured:
        for variant in (DISCOUNTED, EXACT):
            slow = promised(m, "discounted" if variant == DISCOUNTED else "average", asked)
            for i, name in enumerate(m.problem.model.objective_names):
                fit = m.decays[variant].fits[i]
                found = (
                    fit.orders.value,
                    fit.straight.value,
                    str(fit.rate),
                    fit.expected,
                    fit.limit,
                    slow,
                    fit.rate.value / slow,
                )
                rows.append((f"{m.problem.name}, {variant}, {name}", *found))
    header = ("problem", "orders", "R²", "rate", "mean dynamics", "their limit", "theorem", "times faster")
    caption = (
        "What log(error − floor) loses per TD step. Mean dynamics: the same line fitted to ‖(I + βA)ᴺ(w_0 − w*)‖²; "
        "their limit: −2 log(1 − β min Re eig(−A)). Theorem: −log(1 − βλ_A/8), and how much faster the error falls."
    )
    return Table("Rates", caption, header, tuple(rows))


def _floor_table(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for m in measured:
        for v in VARIANTS:
            slopes = "; ".join(f"{s.value:.3f} [{s.low:.3f}, {s.high:.3f}]" for s in m.floors.slopes[v])
            sizes = (int(m.floors.sizes[k]) for k in (0, -1))
            ends = (f"{number(float(m.floors.of(v, D).max()), 3)} at D = {D}" for D in sizes)
            told = (cell.replace("-", "−") for cell in (slopes, *ends, f"{m.floors.rising[v]:+.1%}"))
            rows.append((f"{m.problem.name}, {v}", *told))
    caption = (
        "Slopes of log floor against log D per objective, with 95 % bootstrap intervals over trials; the floor of the "
        "worst objective at the ends; and how much the error still rises from the run's third quarter to its last."
    )
    header = ("problem", "slope per objective", "smallest D", "largest D", "still rising")
    return Table("Floors", caption, header, tuple(rows))


def _asked(asked: Sequence[Guarantee]) -> Table:
    rows = tuple(
        (
            f"{g.problem}, {g.setting}, {g.derivation}",
            g.lambda_A,
            g.step_size,
            g.batch_size,
            g.per_batch,
            g.measured.value,
            f"{g.orders.value:.1f}",
            "yes" if g.own else "no",
        )
        for g in asked
    )
    header = (
        "problem",
        "λ_A",
        "largest β",
        "smallest D",
        "bound's floor · D",
        "measured · D",
        "orders",
        "own conditions",
    )
    caption = (
        "Theorem 1 at the largest β it allows; a floor times D does not depend on D. Under its own conditions it is "
        "measured at this β and D, elsewhere at a larger, practical β, for which the theorem promises nothing."
    )
    return Table("What Theorem 1 asks and promises", caption, header, rows)
