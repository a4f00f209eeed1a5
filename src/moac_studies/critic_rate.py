"""The study `critic-rate`: Theorem 1 measured. How E‖w_N − w*‖² falls with N, its floor with D, and the bound.

The theorem is run under its own conditions where these can be met, and elsewhere it is shown what it asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import theory
from moac.report.numbers import number
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean, mean
from moac_studies import compare, critic_error, drawings, framework
from moac_studies.critic_error import DISCOUNTED, EXACT, OURS, PAPER, VARIANTS, Decay, Measured, Plan, Problem
from moac_studies.framework import Study, Workspace

SLOPE, SLACK = -1.0, 0.15
"""A floor falls as 1/D where the whole interval of every objective's slope is this close to −1."""
STRAIGHT = 0.98  # The least R² of a geometric decay
AGREE = 0.1  # A rate is the expected one where its whole interval is within this share of it
AFFORDABLE = 1e6  # Transitions that anybody would spend on one TD step
_ASKED = "What Theorem 1 asks and promises"
_ERROR = r"$E\|w_N - w^*\|^2$"
_COLOUR = {variant: k for k, variant in enumerate(VARIANTS)}


@dataclass(frozen=True)
class Guarantee:
    """What Theorem 1 says of a problem at the largest β it allows."""

    problem: str  # its name
    setting: str  # `discounted` or `average`
    derivation: str  # `printed` or `derived`
    lam: float  # λ_A, modulo constants
    step_size: float  # the largest β
    batch_size: float  # the smallest D
    per_batch: float  # the bound's floor times D
    measured: Mean  # the measured floor times D, of the worst objective, with its interval over trials
    own: bool  # whether it was measured at this β and D; else at a practical β and the largest D

    @property
    def orders(self) -> Mean:
        """Powers of ten between the bound's floor and the measured one."""
        return self.measured.mapped(lambda floor: math.log10(self.per_batch / floor))


@dataclass(frozen=True, eq=False)
class Tested:
    """The theorem run under its own conditions."""

    guarantee: Guarantee  # what it says
    decay: Decay  # what was measured from w_0 = 0
    steps: Float[np.ndarray, " n"]  # N, beyond what was measured
    transient: Float[np.ndarray, " n"]  # the bound's first term at these N
    floor: float  # the bound's second term

    @property
    def bound_rate(self) -> float:
        """What log of the bound's first term loses per step."""
        return _rate_of_theorem(self.guarantee.step_size, self.guarantee.lam)

    @property
    def kept(self) -> compare.Part:
        """Whether every mean error, at every checkpoint and of every objective, is below the bound."""
        bound = (self.transient + self.floor)[: len(self.decay.plan.checkpoints)]
        errors = np.moveaxis(self.decay.errors, 0, 2)
        return compare.all_of(
            compare.below(mean(trials), most) for each, most in zip(errors, bound, strict=True) for trials in each
        )


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    tables = study.parameters
    chosen = (
        (critic_error.random_ergodic(tables["random"]), tables["random"]),
        (critic_error.resource_gathering(tables["resource-gathering"]), tables["resource-gathering"]),
    )
    measured = tuple(critic_error.measure(problem, table, study.seed, work) for problem, table in chosen)
    tested = under_its_conditions(critic_error.well_mixed(tables["bound"]), tables["bound"], study.seed, work)
    asked = (*(t.guarantee for t in tested), *(g for m in measured for g in elsewhere(m)))
    geometric, rates = zip(*(decay_claims(m) for m in measured), strict=True)
    claims = (
        *geometric,
        *rates,
        *(floor_claim(m, variant) for m in measured for variant in (DISCOUNTED, EXACT, OURS)),
        *(papers_mu(m) for m in measured),
        bound_holds(tested),
        bound_is_near(tested),
        bound_applies([g for g in asked if g.problem == measured[-1].problem.name]),
    )
    shown = (_rates_table(measured, asked), _floor_table(measured), _asked_table(asked))
    return Findings(claims, shown, figures(measured, tested, asked))


def under_its_conditions(problem: Problem, table: framework.Table, seed: int, work: Workspace) -> tuple[Tested, ...]:
    """The theorem as the table's `derivations` read it, each at the β and the D that it asks for."""
    constants = theory.constants(problem.model, problem.logits, problem.setting(DISCOUNTED))

    def tested(derivation: Any) -> Tested:
        terms = theory.critic_terms(constants, derivation)
        beta = terms.largest_beta
        D = math.ceil(terms.smallest_batch(beta) * (1 - 1e-9))
        sizes = (int(table["num_steps"]), int(table["batches_per_walk"]) * D, int(table["trials"]))
        plans = [Plan(beta, D, *sizes, seed, from_zero) for from_zero in (False, True)]
        from_target, from_zero = (critic_error.run(problem, p, (DISCOUNTED,), work)[DISCOUNTED] for p in plans)
        late, N = critic_error.late_mean(from_target), plans[1].checkpoints
        promised = (terms.lambda_A, beta, D, terms.per_batch(beta))
        said = Guarantee(problem.name, "discounted", derivation, *promised, _largest(late, D), own=True)
        steps = np.concatenate([N, np.geomspace(N[-1], 30 * N[-1], 60)[1:]])
        bounds = [theory.critic_bound(constants, round(n), D, beta, derivation) for n in steps]
        transient = np.array([bound.transient for bound in bounds])
        decay = critic_error.decay(problem, DISCOUNTED, plans[1], from_zero, late.mean(axis=0))
        return Tested(said, decay, steps, transient, bounds[0].floor)

    return tuple(tested(derivation) for derivation in table["derivations"])


def _largest(floors: Float[np.ndarray, "K M"], D: int) -> Mean:
    """The mean floor times D of the objective that has the largest."""
    return mean(floors[:, floors.mean(axis=0).argmax()] * D)


def elsewhere(measured: Measured) -> tuple[Guarantee, ...]:
    """What the theorem asks of a problem in both settings, beside the floor at the largest D that was run."""
    problem, D, guarantees = measured.problem, int(measured.floors.sizes[-1]), list[Guarantee]()
    for variant, setting in ((DISCOUNTED, "discounted"), (EXACT, "average")):
        constants = theory.constants(problem.model, problem.logits, problem.setting(variant))
        floor = _largest(measured.floors.trials(variant, D), D)
        for derivation in theory.DERIVATIONS:
            terms = theory.critic_terms(constants, derivation)
            beta = terms.largest_beta
            sizes = (terms.lambda_A, beta, terms.smallest_batch(beta), terms.per_batch(beta))
            guarantees.append(Guarantee(problem.name, setting, derivation, *sizes, floor, own=False))
    return tuple(guarantees)


def _rate_of_theorem(beta: float, lam: float) -> float:
    """−log(1 − βλ_A/8)."""
    return -math.log1p(-beta * lam / 8)


def promised_rate(measured: Measured, setting: str, asked: Sequence[Guarantee]) -> float:
    """The theorem's rate at the β that was run."""
    lam = next(g.lam for g in asked if (g.problem, g.setting) == (measured.problem.name, setting))
    return _rate_of_theorem(measured.step_size, lam)


def _listed(values: Iterable[Mean]) -> str:
    return ", ".join(map(compare.with_interval, values))


def _factors(powers: Sequence[Mean]) -> str:
    """Powers of ten as factors."""
    return ", ".join(f"×{compare.with_interval(power.mapped(lambda x: 10**x))}" for power in powers)


def decay_claims(measured: Measured) -> tuple[Claim, Claim]:
    """Whether the decay is a straight line on a log axis, over more than one order; and at the expected rate."""
    fits = {variant: measured.decays[variant].fits for variant in (DISCOUNTED, EXACT)}
    every, name = [fit for several in fits.values() for fit in several], measured.problem.name
    lines = "; ".join(
        f"{variant}: R² {_listed(fit.straight for fit in own)}, over {_factors([fit.orders for fit in own])} down"
        for variant, own in fits.items()
    )
    rates = "; ".join(f"{variant}: {_listed(fit.agreement for fit in own)}" for variant, own in fits.items())
    straight = [compare.all_of([compare.above(f.straight, STRAIGHT), compare.above(f.orders, 1)]) for f in every]
    return (
        compare.claim(
            f"On {name} E‖w_N − w*‖² falls geometrically in N down to a floor, in both settings.",
            f"log(error − floor) against N, per objective: {lines}. Required: R² above {STRAIGHT} over more than ×10.",
            straight,
            "Decay",
        ),
        compare.claim(
            f"On {name} the rate is that of the mean dynamics (ours; the theorem promises 1 − βλ_A/8).",
            f"Fitted rate as a multiple of the rate of ‖(I + βA)ᴺ(w_0 − w*)‖² over the same N, per objective: {rates}; "
            f"required: 1 ± {AGREE}.",
            [compare.near(fit.agreement, 1.0, AGREE) for fit in every],
            "Rates",
        ),
    )


def floor_claim(measured: Measured, variant: str) -> Claim:
    """Whether the floor falls as 1/D."""
    slopes = measured.floors.slopes[variant]
    about = "" if variant != OURS else " (ours; the theorem covers the exact J only)"
    beside = "" if variant != OURS else _beside_exact(measured)
    return compare.claim(
        f"On {measured.problem.name}, {variant}, the floor falls as 1/D{about}.",
        f"Slope of log floor against log D, per objective: {_listed(slopes)}; required: −1 ± {SLACK}.{beside}",
        [compare.near(slope, SLOPE, SLACK) for slope in slopes],
        "Floor",
    )


def _beside_exact(measured: Measured) -> str:
    """What a running μ costs: on a slowly mixing chain small batches are correlated with it, which biases w."""
    floors = measured.floors
    sizes = [int(floors.sizes[k]) for k in (0, -1)]
    times = [float((floors.of(OURS, D) / floors.of(EXACT, D)).max()) for D in sizes]
    told = " and ".join(f"{ratio:.2f} at D = {D}" for ratio, D in zip(times, sizes, strict=True))
    half, values = max(2, len(floors.sizes) // 2), floors.values[OURS]
    lower = [compare.slope(floors.sizes[:half], values[:, :half, i]) for i in range(values.shape[2])]
    return (
        f" Over the smaller half of the D alone, up to {int(floors.sizes[half - 1])}: {_listed(lower)}. "
        f"Its floor is at most {told} times that with the exact J."
    )


def papers_mu(measured: Measured) -> Claim:
    """Whether the floor of the paper's μ stays."""
    floors = measured.floors
    slopes, last = floors.slopes[PAPER], int(floors.sizes[-1])
    times = floors.of(PAPER, last).max() / floors.of(OURS, last).max()
    return compare.claim(
        f"On {measured.problem.name} no batch size removes the error of the paper's μ: it does not fall as 1/D (ours).",
        f"Slope of log floor against log D, per objective: {_listed(slopes)}; at D = {last} its floor is "
        f"{times:.0f} times that of our μ.",
        [compare.above(slope, SLOPE + SLACK) for slope in slopes],
        "Floor",
    )


def bound_holds(tested: Sequence[Tested]) -> Claim:
    """Whether every mean error is below the bound."""
    told = "; ".join(
        f"{t.guarantee.derivation}: β = {number(t.guarantee.step_size, 3)}, D = {number(t.guarantee.batch_size)}"
        for t in tested
    )
    return compare.claim(
        "Under its own conditions Theorem 1 is not violated (three states, γ = 0.5, every state equally likely next).",
        f"Required: the interval of every mean error lies below the bound ({told}). With the margins of the next row "
        "almost anything would: this is a check of the code, no evidence for the rate.",
        [t.kept for t in tested],
        "Bound",
    )


def bound_is_near(tested: Sequence[Tested]) -> Claim:
    """Whether the bound's floor is within an order of the measured one."""
    told = "; ".join(
        f"{t.guarantee.derivation}: floor {_factors([t.guarantee.orders])} too high, decay "
        f"×{t.decay.fits[t.decay.worst].rate.value / t.bound_rate:.1f} too slow"
        for t in tested
    )
    # A floor above the first transient says no more than that w_0 = 0 is at distance ‖w*‖ from w*.
    vacuous = [t.guarantee.derivation for t in tested if t.floor > t.transient[0]]
    about = f"Its floor alone is above the error of w_0 = 0: {' and '.join(vacuous)}." if vacuous else ""
    return compare.claim(
        "The bound says how large the error is, within a factor of ten.",
        f"{told}. {about}",
        [compare.near(t.guarantee.orders, 0.0, 1.0) for t in tested],
        _ASKED,
    )


def bound_applies(asked: Sequence[Guarantee]) -> Claim:
    """Whether anybody could afford the batch that the theorem asks for."""
    told = "; ".join(f"{g.setting}, {g.derivation}: D ≥ {number(g.batch_size, 2)}" for g in asked)
    return compare.claim(
        f"On {asked[0].problem} the conditions of Theorem 1 can be met with D ≤ 10⁶ transitions a TD step.",
        f"At the largest β allowed: {told}.",
        [compare.known(g.batch_size <= AFFORDABLE) for g in asked],
        _ASKED,
    )


def figures(measured: Sequence[Measured], tested: Sequence[Tested], asked: Sequence[Guarantee]) -> tuple[Shown, ...]:
    """Decay, floor and bound."""
    band = "Mean over trials with its 95 % band, of the objective with the largest error."
    return (
        Shown(
            "Decay",
            "decay",
            drawings.curves([panel for m in measured for panel in _decay_panels(m, asked)]),
            f"The error from w_0 = 0 on at a practical β, beside the mean dynamics plus the measured floor, in which "
            f"nothing is fitted, and beside the decay C_1(1 − βλ_A/8)ᴺ of the theorem for the same β. {band}",
            "Line charts of the critic's error over TD steps, logarithmic, for two problems in two settings.",
        ),
        Shown(
            "Floor",
            "floor",
            drawings.curves([_floor_panel(m) for m in measured]),
            f"The error late in runs that began at w* (and μ at J), against D, with fitted slopes. {band}",
            "Log-log charts of the floor of the critic's error against the batch size, one line per variant.",
        ),
        Shown(
            "Bound",
            "bound",
            drawings.curves([_bound_panel(t) for t in tested]),
            f"Theorem 1 under its own conditions, as {' and as '.join(t.guarantee.derivation for t in tested)}, beside "
            "the error from w_0 = 0 on and the floor of runs that began at w*. Mean over trials with its 95 % band, of "
            "the objective of highest floor.",
            "Log-log charts of the measured error and of the bound over TD steps.",
        ),
    )


def _decay_panels(measured: Measured, asked: Sequence[Guarantee]) -> list[drawings.Panel]:
    panels: list[drawings.Panel] = []
    for setting, variants in (("discounted", (DISCOUNTED,)), ("average", VARIANTS[1:])):
        first = measured.decays[variants[0]]
        i, N = first.worst, first.plan.checkpoints
        start = float((measured.problem.target(variants[0])[:, i] ** 2).sum())
        promised = start * np.exp(-N * promised_rate(measured, setting, asked))
        lines = (
            drawings.Line("mean dynamics + floor", N, first.expected[:, i] + first.floor[i]),
            drawings.Line("rate of the theorem", N, promised, 6),
        )
        curves = tuple(drawings.Curve(v, N, measured.decays[v].errors[:, :, i], _COLOUR[v]) for v in variants)
        title = f"{measured.problem.name}, {setting}, D = {first.plan.batch_size}"
        panels.append(drawings.Panel(title, ("TD steps N", _ERROR), curves, lines, log_x=False))
    return panels


def _floor_panel(measured: Measured) -> drawings.Panel:
    floors, curves = measured.floors, list[drawings.Curve]()
    for v, values in floors.values.items():
        i = floors.worst(v)
        curves.append(drawings.Curve(v, floors.sizes, values[:, :, i], _COLOUR[v], floors.slopes[v][i].value))
    lowest = min(float(curve.values.mean(axis=0)[0]) for curve in curves)
    beside = drawings.Line("slope −1", floors.sizes, lowest / 3 * floors.sizes[0] / floors.sizes)
    title = f"{measured.problem.name}, β = {measured.step_size:g}"
    return drawings.Panel(title, ("batch size D", f"floor of {_ERROR}"), tuple(curves), (beside,))


def _bound_panel(tested: Tested) -> drawings.Panel:
    decay, said, i = tested.decay, tested.guarantee, int(tested.decay.floor.argmax())
    floor = float(decay.floor[i])
    seen = tested.transient > floor / 10
    N = tested.steps[seen]
    lines = (
        drawings.Line("bound", N, (tested.transient + tested.floor)[seen], 1),
        drawings.Line("its first term", N, tested.transient[seen], 4),
        drawings.Line("measured floor", N, np.full(len(N), floor)),
    )
    curve = drawings.Curve("measured", decay.plan.checkpoints, decay.errors[:, :, i], 0)
    title = f"as {said.derivation}: β = {number(said.step_size, 3)}, D = {number(said.batch_size)}"
    return drawings.Panel(title, ("TD steps N", _ERROR), (curve,), lines)


def _rates_table(measured: Sequence[Measured], asked: Sequence[Guarantee]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for m in measured:
        for variant, setting in ((DISCOUNTED, "discounted"), (EXACT, "average")):
            slow = promised_rate(m, setting, asked)
            for name, fit in zip(m.problem.model.objective_names, m.decays[variant].fits, strict=True):
                line = (10**fit.orders.value, fit.straight.value, str(fit.rate), fit.expected, fit.limit)
                rows.append((f"{m.problem.name}, {variant}, {name}", *line, slow, fit.rate.value / slow))
    header = ("problem", "falls by ×", "R²", "rate", "mean dynamics", "their limit", "theorem", "times faster")
    caption = (
        "What log(error − floor) loses per TD step. Mean dynamics: the same line fitted to ‖(I + βA)ᴺ(w_0 − w*)‖²; "
        "their limit: −2 log(1 − β min Re eig(−A)). Theorem: −log(1 − βλ_A/8), and how much faster the error falls."
    )
    return Table("Rates", caption, header, tuple(rows))


def _floor_table(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for m in measured:
        for v in VARIANTS:
            sizes = (int(m.floors.sizes[k]) for k in (0, -1))
            ends = (f"{number(float(m.floors.of(v, D).max()), 3)} at D = {D}" for D in sizes)
            rows.append((f"{m.problem.name}, {v}", _listed(m.floors.slopes[v]), *ends, f"{m.floors.rising[v]:+.1%}"))
    caption = (
        "Slopes of log floor against log D per objective, with 95 % bootstrap intervals over trials; the floor of the "
        "worst objective at the ends; and how much the error still rises from the run's third quarter to its last."
    )
    header = ("problem", "slope per objective", "smallest D", "largest D", "still rising")
    return Table("Floors", caption, header, tuple(rows))


def _asked_table(asked: Sequence[Guarantee]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for g in asked:
        sizes = (g.lam, g.step_size, g.batch_size, g.per_batch, g.measured.value)
        own = "yes" if g.own else "no"
        rows.append((f"{g.problem}, {g.setting}, {g.derivation}", *sizes, 10**g.orders.value, own))
    promised = ("λ_A", "largest β", "smallest D", "bound's floor · D", "measured · D", "ratio", "own conditions")
    caption = (
        "Theorem 1 at the largest β it allows; a floor times D does not depend on D. Under its own conditions it is "
        "measured at this β and D, elsewhere at a larger, practical β, for which the theorem promises nothing."
    )
    return Table(_ASKED, caption, ("problem", *promised), tuple(rows))
