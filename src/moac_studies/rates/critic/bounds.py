"""Theorem 1 beside what was measured: under its own conditions where these can be met, and what they ask elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import theory
from moac.statistics import Mean, mean
from moac_studies import compare
from moac_studies.rates.critic.fits import Decay, Measured, decay, late_mean, run
from moac_studies.rates.critic.problems import DISCOUNTED, EXACT, Plan, Problem
from moac_studies.studies import Workspace


@final
@dataclass(frozen=True)
class Guarantee:
    """What Theorem 1 says of a problem at the largest β it allows.

    Attributes:
        problem: its name.
        setting: `discounted` or `average`.
        derivation: `printed` or `derived`.
        lambda_A: λ_A, modulo constants.
        step_size: the largest β.
        batch_size: the smallest D.
        per_batch: the bound's floor times D.
        measured: the measured floor times D, of the worst objective, with its interval over trials.
        own: whether it was measured at this β and D; else at a practical β and the largest D.
    """

    problem: str
    setting: str
    derivation: str
    lambda_A: float  # noqa: N815
    step_size: float
    batch_size: float
    per_batch: float
    measured: Mean
    own: bool

    @property
    def orders(self) -> Mean:
        """Powers of ten between the bound's floor and the measured one."""
        return self.measured.mapped(lambda floor: math.log10(self.per_batch / floor))


@final
@dataclass(frozen=True, eq=False)
class Tested:
    """The theorem run under its own conditions.

    Attributes:
        guarantee: what it says.
        decay: what was measured from w_0 = 0.
        steps: N, beyond what was measured.
        transient: the bound's first term at these N.
        floor: the bound's second term.
    """

    guarantee: Guarantee
    decay: Decay
    steps: Float[np.ndarray, " n"]
    transient: Float[np.ndarray, " n"]
    floor: float

    @property
    def bound_rate(self) -> float:
        """What log of the bound's first term loses per step: −log(1 − βλ_A/8)."""
        return -math.log1p(-self.guarantee.step_size * self.guarantee.lambda_A / 8)

    @property
    def kept(self) -> compare.Part:
        """Whether every mean error, at every checkpoint and of every objective, is below the bound."""
        bound = (self.transient + self.floor)[: len(self.decay.plan.checkpoints)]
        errors = np.moveaxis(self.decay.errors, 0, 2)
        return compare.all_of(
            compare.below(mean(trials), most) for each, most in zip(errors, bound, strict=True) for trials in each
        )


def under_its_conditions(problem: Problem, table: Mapping[str, Any], seed: int, work: Workspace) -> tuple[Tested, ...]:
    """The theorem as the table's `derivations` read it, each at the β and the D that it asks for."""
    constants = theory.constants(problem.model, problem.logits, problem.setting(DISCOUNTED))
    return tuple(_tested(problem, constants, derivation, table, (seed, work)) for derivation in table["derivations"])


def _tested(
    problem: Problem, c: theory.Constants, derivation: Any, table: Mapping[str, Any], how: tuple[int, Workspace]
) -> Tested:
    terms = theory.critic_terms(c, derivation)
    beta = terms.largest_beta
    D = math.ceil(terms.smallest_batch(beta) * (1 - 1e-9))
    found: list[Any] = []
    for from_zero in (False, True):
        sizes = (int(table["num_steps"]), int(table["batches_per_walk"]) * D, int(table["trials"]))
        plan = Plan(beta, D, *sizes, how[0], from_zero)
        found.append(run(problem, plan, (DISCOUNTED,), how[1])[DISCOUNTED])
    late = late_mean(found[0])
    floor = late.mean(axis=0)
    said = Guarantee(
        problem.name,
        "discounted",
        derivation,
        terms.lambda_A,
        beta,
        D,
        terms.per_batch(beta),
        _largest(late, D),
        own=True,
    )
    steps = np.concatenate([plan.checkpoints, np.geomspace(plan.checkpoints[-1], 30 * plan.checkpoints[-1], 60)[1:]])
    bounds = [theory.critic_bound(c, round(N), D, beta, derivation) for N in steps]
    transient = np.array([bound.transient for bound in bounds])
    return Tested(said, decay(problem, DISCOUNTED, plan, found[1], floor), steps, transient, bounds[0].floor)


def _largest(floors: Float[np.ndarray, "K M"], D: int) -> Mean:
    """The mean floor times D of the objective that has the largest."""
    return mean(floors[:, floors.mean(axis=0).argmax()] * D)


def elsewhere(measured: Measured) -> tuple[Guarantee, ...]:
    """What the theorem asks of a problem in both settings, beside the floor at the largest D that was run."""
    problem, D, found = measured.problem, int(measured.floors.sizes[-1]), list[Guarantee]()
    for variant in (DISCOUNTED, EXACT):
        constants = theory.constants(problem.model, problem.logits, problem.setting(variant))
        floor = _largest(measured.floors.trials(variant, D), D)
        for derivation in theory.DERIVATIONS:
            terms = theory.critic_terms(constants, derivation)
            beta = terms.largest_beta
            sizes = (terms.lambda_A, beta, terms.smallest_batch(beta), terms.per_batch(beta))
            setting = "discounted" if variant == DISCOUNTED else "average"
            found.append(Guarantee(problem.name, setting, derivation, *sizes, floor, own=False))
    return tuple(found)
