"""How the critic's error decays in N, and the floor it decays to, measured and fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import theory
from moac.statistics import Mean
from moac_studies.rates import fits
from moac_studies.rates.critic.measure import errors, mean_dynamics
from moac_studies.rates.critic.problems import DISCOUNTED, EXACT, VARIANTS, Plan, Problem
from moac_studies.studies import Workspace

_ABOVE = 2.0
"""A rate is fitted while the mean error is above this many times its floor."""
_FEWEST = 4
"""Checkpoints that a rate, or how much an error still rises, is told from; with fewer it is not known."""
_UNKNOWN = Mean(np.nan, np.nan, np.nan, 0)
_MOST = 40
"""Checkpoints that a rate is fitted to: spread over all, for the bootstrap takes them times trials times 1000."""


@final
@dataclass(frozen=True)
class Fit:
    """A geometric rate: log(E‖w_N − w*‖² − floor) ≈ constant − rate·N.

    Attributes:
        orders: powers of ten by which the error falls until it is close to its floor, with its interval over trials.
        straight: R² of the line, likewise.
        rate: per TD step, with its interval over trials.
        expected: the same line fitted to the mean dynamics ‖(I + βA)ᴺ(w_0 − w*)‖² at the same N.
        limit: −2 log(1 − β min Re eig(−A)), at which the mean dynamics settle.
    """

    orders: Mean
    straight: Mean
    rate: Mean
    expected: float
    limit: float

    @property
    def agreement(self) -> Mean:
        """The measured rate as a multiple of the expected one."""
        return self.rate.mapped(lambda rate: rate / self.expected)


@final
@dataclass(frozen=True, eq=False)
class Decay:
    """The error from w_0 = 0 on.

    Attributes:
        plan: how it was run.
        errors: ‖wⁱ_N − w^{i,*}‖².
        floor: where it ends, from a run that began at w*.
        expected: the mean dynamics; None where a running μ moves along with w.
        limit: the rate at which they settle.
    """

    plan: Plan
    errors: Float[np.ndarray, "K L M"]
    floor: Float[np.ndarray, " M"]
    expected: Float[np.ndarray, "L M"] | None
    limit: Float[np.ndarray, " M"]

    @property
    def worst(self) -> int:
        """The objective with the largest error."""
        return int(self.errors.mean(axis=(0, 1)).argmax())

    @cached_property
    def fits(self) -> tuple[Fit, ...]:
        """The rate of each objective."""
        return tuple(self._fit(i) for i in range(len(self.floor)))

    def _fit(self, i: int) -> Fit:
        if self.expected is None:
            raise ValueError("a running μ has no mean dynamics of its own to compare with.")
        mean = self.errors[:, :, i].mean(axis=0)
        near = np.flatnonzero(mean < _ABOVE * self.floor[i])
        last = int(near[0]) if len(near) else len(mean)
        if last < _FEWEST:
            return Fit(_UNKNOWN, _UNKNOWN, _UNKNOWN, np.nan, float(self.limit[i]))
        used = np.unique(np.linspace(0, last - 1, _MOST).astype(int))
        N, excess = self.plan.checkpoints[used], self.errors[:, used, i] - self.floor[i]
        rate = fits.slope(np.exp(N / N[-1]), excess).mapped(lambda slope: -slope / N[-1])
        straight = fits.bootstrapped(excess, lambda means: fits.straightness(N, fits.logarithm(means)))
        ends = self.errors[:, [0, last - 1], i]
        orders = fits.bootstrapped(ends, lambda means: np.log10(means[:, 0] / means[:, 1]))
        expected = -float(np.polyfit(N, np.log(self.expected[used, i]), 1)[0])
        return Fit(orders, straight, rate, expected, float(self.limit[i]))


@final
@dataclass(frozen=True, eq=False)
class Floors:
    """The error late in runs that began at w*.

    Attributes:
        sizes: D.
        values: the mean over the second half of the checkpoints, by variant.
        rising: how much the last quarter is above the one before, by variant, a mean over all D and objectives.
    """

    sizes: Float[np.ndarray, " n"]
    values: Mapping[str, Float[np.ndarray, "K n M"]]
    rising: Mapping[str, float]

    @cached_property
    def slopes(self) -> Mapping[str, list[Mean]]:
        """Of log floor against log D, of each objective, by variant."""
        return {v: [fits.slope(self.sizes, x[:, :, i]) for i in range(x.shape[2])] for v, x in self.values.items()}

    def worst(self, variant: str) -> int:
        """The objective with the largest floor."""
        return int(self.values[variant].mean(axis=(0, 1)).argmax())

    def trials(self, variant: str, size: int) -> Float[np.ndarray, "K M"]:
        """The floors at one D."""
        return self.values[variant][:, list(self.sizes).index(size)]

    def of(self, variant: str, size: int) -> Float[np.ndarray, " M"]:
        """The mean floor at one D."""
        return self.trials(variant, size).mean(axis=0)


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """All of one problem."""

    problem: Problem
    step_size: float
    floors: Floors
    decays: Mapping[str, Decay]


def run(problem: Problem, plan: Plan, variants: tuple[str, ...], work: Workspace) -> dict[str, Any]:
    """The errors of one plan, kept in the workspace."""
    about = {"model": problem.model.fingerprint, "logits": problem.logits.tolist(), "discount": problem.gamma}
    began = "decay" if plan.from_zero else "floor"
    label = f"{problem.name.replace(' ', '-')}-{began}-{plan.batch_size}"
    return work.arrays(label, {**about, **vars(plan), "variants": variants}, lambda: errors(problem, plan, variants))


def floors(problem: Problem, table: Mapping[str, Any], seed: int, work: Workspace) -> Floors:
    """The floor of every variant at every D."""
    sizes = [int(D) for D in table["batch_sizes"]]
    found = [run(problem, _plan(table, D, int(table["floor_steps"]), seed, False), VARIANTS, work) for D in sizes]
    late = {v: np.stack([late_mean(run[v]) for run in found], axis=1) for v in VARIANTS}
    rising = {v: float(np.mean([_rise(run[v]) for run in found])) for v in VARIANTS}
    return Floors(np.array(sizes, float), late, rising)


def measure(problem: Problem, table: Mapping[str, Any], seed: int, work: Workspace) -> Measured:
    """Floors of all variants, then decays at one D."""
    found, D, steps = floors(problem, table, seed, work), int(table["decay_batch_size"]), table["decay_steps"]
    longest = run(problem, _plan(table, D, max(steps.values()), seed, True), VARIANTS, work)
    decays = dict[str, Decay]()
    for variant in VARIANTS:
        plan = _plan(table, D, int(steps["discounted" if variant == DISCOUNTED else "average"]), seed, True)
        decays[variant] = decay(problem, variant, plan, longest[variant], found.of(variant, D))
    return Measured(problem, float(table["step_size"]), found, decays)


def decay(problem: Problem, variant: str, plan: Plan, measured: Any, floor: Float[np.ndarray, " M"]) -> Decay:
    """The measured errors, as far as `plan` goes, beside the mean dynamics."""
    A = theory.ground(problem.model, problem.logits, problem.setting(variant)).A
    expected = mean_dynamics(A, problem.target(variant), plan)
    known = variant in (DISCOUNTED, EXACT)
    return Decay(
        plan, measured[:, : len(plan.checkpoints)], floor, expected["errors"] if known else None, expected["rate"]
    )


def late_mean(values: Float[np.ndarray, "K L M"]) -> Float[np.ndarray, "K M"]:
    """The mean over the second half of the checkpoints."""
    return values[:, values.shape[1] // 2 :].mean(axis=1)


def _rise(values: Float[np.ndarray, "K L M"]) -> float:
    if values.shape[1] < _FEWEST:
        return np.nan
    half, quarter = values.shape[1] // 2, values.shape[1] * 3 // 4
    return float((values[:, quarter:].mean(axis=(0, 1)) / values[:, half:quarter].mean(axis=(0, 1)) - 1).mean())


def _plan(table: Mapping[str, Any], D: int, steps: int, seed: int, from_zero: bool) -> Plan:
    return Plan(float(table["step_size"]), D, steps, int(table["walk"]), int(table["trials"]), seed, from_zero)
