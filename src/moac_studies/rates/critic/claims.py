"""What Theorem 1 says of the critic, and what our data say of it. Every verdict is computed."""

from __future__ import annotations

from collections.abc import Sequence

from moac.report.numbers import number
from moac.report.page import Claim
from moac.statistics import Mean
from moac_studies import compare
from moac_studies.rates import fits
from moac_studies.rates.critic.bounds import Guarantee, Tested
from moac_studies.rates.critic.fits import Fit, Measured
from moac_studies.rates.critic.problems import DISCOUNTED, EXACT, OURS, PAPER

SLOPE, SLACK = -1.0, 0.15
"""A floor falls as 1/D where the whole interval of every objective's slope is this close to −1."""
STRAIGHT = 0.98
"""The least R² of a geometric decay."""
AGREE = 0.1
"""A rate is the expected one where its whole interval is within this share of it."""
AFFORDABLE = 1e6
"""Transitions that anybody would spend on one TD step."""


def of(measured: Sequence[Measured], tested: Sequence[Tested], asked: Sequence[Guarantee]) -> tuple[Claim, ...]:
    """All claims, in reading order."""
    return (
        *(_geometric(m) for m in measured),
        *(_rate(m) for m in measured),
        *(_floor(m, variant) for m in measured for variant in (DISCOUNTED, EXACT, OURS)),
        *(_papers_mu(m) for m in measured),
        _bound_holds(tested),
        _bound_is_near(tested),
        _bound_applies([g for g in asked if g.problem == measured[-1].problem.name]),
    )


def _fits(measured: Measured) -> dict[str, list[Fit]]:
    return {variant: list(measured.decays[variant].fits) for variant in (DISCOUNTED, EXACT)}


def _geometric(measured: Measured) -> Claim:
    found = _fits(measured)
    each = [fit for several in found.values() for fit in several]
    told = "; ".join(
        f"{variant}: R² {_listed([fit.straight for fit in several], 3)}, over "
        f"{_listed([fit.orders for fit in several], 1)} orders"
        for variant, several in found.items()
    )
    return compare.claim(
        f"On {measured.problem.name} E‖w_N − w*‖² falls geometrically in N down to a floor, in both settings.",
        f"log(error − floor) against N, per objective: {told}. Asked: R² above {STRAIGHT} over more than one order.",
        [compare.all_of([compare.above(fit.straight, STRAIGHT), compare.above(fit.orders, 1)]) for fit in each],
        "Decay",
    )


def _rate(measured: Measured) -> Claim:
    found = _fits(measured)
    each = [fit.agreement for several in found.values() for fit in several]
    told = "; ".join(f"{variant}: {_listed([fit.agreement for fit in fitted], 3)}" for variant, fitted in found.items())
    return compare.claim(
        f"On {measured.problem.name} the rate is that of the mean dynamics (ours; the theorem promises 1 − βλ_A/8).",
        f"Fitted rate as a multiple of the rate of ‖(I + βA)ᴺ(w_0 − w*)‖² over the same N, per objective: {told}; "
        f"asked: 1 ± {AGREE}.",
        [compare.slope_near(times, 1.0, AGREE) for times in each],
        "Rates",
    )


def _floor(measured: Measured, variant: str) -> Claim:
    slopes = measured.floors.slopes[variant]
    about = "" if variant != OURS else " (ours; the theorem covers the exact J only)"
    beside = "" if variant != OURS else _beside_exact(measured)
    return compare.claim(
        f"On {measured.problem.name}, {variant}, the floor falls as 1/D{about}.",
        f"Slope of log floor against log D, per objective: {_listed(slopes)}; asked: −1 ± {SLACK}.{beside}",
        [compare.slope_near(slope, SLOPE, SLACK) for slope in slopes],
        "Floor",
    )


def _beside_exact(measured: Measured) -> str:
    """What a running μ costs: on a slowly mixing chain small batches are correlated with it, which biases w."""
    floors = measured.floors
    sizes = [int(floors.sizes[k]) for k in (0, -1)]
    times = [float((floors.of(OURS, D) / floors.of(EXACT, D)).max()) for D in sizes]
    told = " and ".join(f"{ratio:.2f} at D = {D}" for ratio, D in zip(times, sizes, strict=True))
    half = max(2, len(floors.sizes) // 2)
    lower = [fits.slope(floors.sizes[:half], floors.values[OURS][:, :half, i]) for i in range(len(floors.slopes[OURS]))]
    return (
        f" Over the smaller half of the D alone, up to {int(floors.sizes[half - 1])}: {_listed(lower)}. "
        f"Its floor is at most {told} times that with the exact J."
    )


def _papers_mu(measured: Measured) -> Claim:
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


def _listed(values: Sequence[Mean], digits: int = 2) -> str:
    each = (f"{v.value:.{digits}f} [{v.low:.{digits}f}, {v.high:.{digits}f}]" for v in values)
    return ", ".join(each).replace("-", "−")


def _bound_holds(tested: Sequence[Tested]) -> Claim:
    told = "; ".join(
        f"{t.guarantee.derivation}: β = {number(t.guarantee.step_size, 3)}, D = {number(t.guarantee.batch_size)}"
        for t in tested
    )
    return compare.claim(
        "Under its own conditions Theorem 1 is not violated (three states, γ = 0.5, every state equally likely next).",
        f"Asked: the interval of every mean error lies below the bound ({told}). With the margins of the next row "
        "almost anything would: this is a check of the code, no evidence for the rate.",
        [t.kept for t in tested],
        "Bound",
    )


def _bound_is_near(tested: Sequence[Tested]) -> Claim:
    told: list[str] = []
    for t in tested:
        slow = t.decay.fits[t.decay.worst].rate.value / t.bound_rate
        told.append(
            f"{t.guarantee.derivation}: floor {_listed([t.guarantee.orders], 1)} orders too high, decay {slow:.1f} × "
            "too slow"
        )
    return compare.claim(
        "The bound tells how large the error is, within one order of magnitude.",
        f"{'; '.join(told)}. {_vacuous(tested)}",
        [compare.steady(t.guarantee.orders, 1.0) for t in tested],
        "What Theorem 1 asks and promises",
    )


def _vacuous(tested: Sequence[Tested]) -> str:
    """Whether the bound says more than that w_0 = 0 is at distance ‖w*‖ from w*."""
    above = [t.guarantee.derivation for t in tested if t.floor > t.transient[0]]
    return f"Its floor alone is above the error of w_0 = 0: {' and '.join(above)}." if above else ""


def _bound_applies(asked: Sequence[Guarantee]) -> Claim:
    told = "; ".join(f"{g.setting}, {g.derivation}: D ≥ {number(g.batch_size, 2)}" for g in asked)
    return compare.claim(
        f"On {asked[0].problem} the conditions of Theorem 1 can be met with D ≤ 10⁶ transitions a TD step.",
        f"At the largest β allowed: {told}.",
        [compare.known(g.batch_size <= AFFORDABLE) for g in asked],
        "What Theorem 1 asks and promises",
    )
