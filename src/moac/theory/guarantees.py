"""What the theory guarantees for a model, at the policies one has, and what was needed in practice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Float

from moac import parts, settings, theory
from moac.config import Average, Config
from moac.momdp import FiniteMOMDP, sampling
from moac.policies import features
from moac.theory import Assumption, Constants, Ground, Plan, quantities
from moac.training import result

MAX_POLICIES = 32
"""Policies of a run that are looked at, beside its start."""


@final
@dataclass(frozen=True)
class Checked:
    """An assumption over several policies: the first verdict that is not `holds`, and at how many it is so."""

    assumption: Assumption
    failing: int


@final
@dataclass(frozen=True)
class Practice:
    """What a run did.

    Attributes:
        mean_gap: mean over trials and logged iterates of the exact gap, which Theorem 2 bounds.
        iterations: after which the mean gap over trials was first at most ε; None where it never was.
        samples: of one trial until then.
    """

    config: Config
    mean_gap: float
    iterations: int | None
    samples: int | None
    total: int


@final
@dataclass(frozen=True)
class Guarantees:
    """Assumptions, constants and plans.

    Attributes:
        policies: how many were looked at; the first is the start.
        assumptions: over all of them.
        start: the constants at the start; None where the chain has no one stationary law.
        worst: the worst of each constant over the policies.
        plans: by name, in the order to show them; empty where the theorems do not apply.
        smallest_batch: the D from which on Theorem 1 holds, by derivation.
        practice: of the run, if there is one.
        notes: what a reader must know.
    """

    policies: int
    assumptions: tuple[Checked, ...]
    start: Constants | None
    worst: Constants | None
    plans: dict[str, Plan]
    smallest_batch: dict[str, float]
    practice: Practice | None
    notes: tuple[str, ...]


def of(
    model: FiniteMOMDP, config: Config, epsilon: float, outcome: result.Result | None = None, seed: int = 0
) -> Guarantees:
    """The guarantees at the uniform policy, or at the policies of a run.

    Args:
        model: the problem.
        config: its setting, features, policy and momentum count.
        epsilon: ε.
        outcome: of a run on `model`.
        seed: of random features.
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"`epsilon` must be positive and finite, got {epsilon!r}.")
    config = settings.complete(config, model.spec)
    resolved = settings.Settings.of(config)
    setting = resolved.setting
    Phi = features.of_states(resolved.features, model.spec, parts.run_key(seed)).table()
    inputs = Phi if config.policy == "linear" else None
    tables = _policies(model, outcome)
    grounds = [theory.ground(model, logits, setting, Phi, inputs) for logits in tables]
    assumptions = _assumptions([theory.check(ground) for ground in grounds])
    notes = [*_about(config, len(tables)), *_failures(assumptions), *_trivial(grounds[0], epsilon)]
    try:
        found = [quantities.of(ground) for ground in grounds]
    except ValueError as error:
        return Guarantees(
            len(tables),
            assumptions,
            None,
            None,
            {},
            {},
            _practice(outcome, epsilon),
            (*notes, f"No constants: {error}"),
        )
    worst = theory.worst(found)
    plans, smallest, more = _plans(worst, epsilon, config.momentum)
    return Guarantees(
        len(tables), assumptions, found[0], worst, plans, smallest, _practice(outcome, epsilon), (*notes, *more)
    )


def _policies(model: FiniteMOMDP, outcome: result.Result | None) -> Float[np.ndarray, "n S A"]:
    """Logits of the uniform policy, then of random iterates and last policies of the trials, half of each."""
    start = np.zeros((1, model.num_states, model.num_actions))
    if outcome is None:
        return start
    half = MAX_POLICIES // 2
    some = np.unique(np.linspace(0, outcome.run.num_trials - 1, half).round().astype(int))
    tables = [
        sampling.action_probabilities(model, policy.policy, _picked(policy.theta, some))
        for policy in (outcome.random_iterate_policy, outcome.policy)
    ]
    return np.concatenate([start, *(np.log(np.maximum(pi, 1e-300)) for pi in tables)])


def _picked(theta: Any, some: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[some], theta)


def _assumptions(verdicts: Sequence[tuple[Assumption, ...]]) -> tuple[Checked, ...]:
    checked: list[Checked] = []
    for column in zip(*verdicts, strict=True):
        failing = [verdict for verdict in column if verdict.status == "fails"]
        open_ones = [verdict for verdict in column if verdict.status != "holds"]
        worst = min(column, key=lambda a: math.inf if a.number is None else a.number) if not open_ones else open_ones[0]
        checked.append(Checked(failing[0] if failing else worst, len(failing)))
    return tuple(checked)


def _plans(c: Constants, epsilon: float, momentum: str) -> tuple[dict[str, Plan], dict[str, float], list[str]]:
    """The printed corollaries and our plans, where the theorems apply."""
    try:
        plans = {"corollaries": theory.corollaries(c, epsilon, momentum)}
        plans |= {f"plan, {kind}": theory.plan(c, epsilon, momentum, kind) for kind in theory.DERIVATIONS}
        terms = {kind: theory.critic_terms(c, kind) for kind in theory.DERIVATIONS}
    except ValueError as error:
        return {}, {}, [f"No plan: {error}"]
    smallest = {kind: term.smallest_batch(term.largest_beta) for kind, term in terms.items()}
    notes = [
        f"As printed, the corollaries make the bound {plans['corollaries'].bound / epsilon:.2f} ε, not ε: "
        "each of its terms may take ε for itself."
    ]
    derived = plans["plan, derived"]
    if math.isinf(derived.T):
        notes.append(f"No number of iterations is enough: with η = {momentum} the first term of the bound stays.")
    if derived.approximation > 1e-12:
        notes.append(f"The features cannot hold the values: ζ adds {derived.approximation:.3g} to the bound for ever.")
    return plans, smallest, notes


def _about(config: Config, count: int) -> list[str]:
    where = "the uniform policy" if count == 1 else f"the worst of {count} policies: the start, θ_T̂ and the last ones"
    notes = [
        f"The theorems ask for constants that hold at every policy; these are those of {where}. "
        "A plan made from them is a guarantee only as long as no policy on the way is worse."
    ]
    beyond = settings.beyond_theory(config)
    if beyond:
        notes.append(
            f"The theorems do not cover {', '.join(beyond)}: the numbers are those of a linear critic with these "
            "features, constant steps and a table of logits."
        )
    if isinstance(config.setting, Average):
        notes.append("Theorem 1 covers the average setting with the exact J, not with a running μ.")
    elif config.visitation == "stationary":
        notes.append(
            "Discounted, the algorithm follows the direction of Lemma 1, which weighs states by the stationary law and "
            "is not ∇J: Theorem 2 does not bound the true gap there (docs/errata.md). "
            "With --visitation discounted it follows ∇J."
        )
    return notes


def _failures(assumptions: tuple[Checked, ...]) -> list[str]:
    failing = [c.assumption.name for c in assumptions if c.failing]
    if not failing:
        return []
    return [f"Assumed but not so here: {'; '.join(failing)}. The numbers are what the formulas give nevertheless."]


def _trivial(start: Ground, epsilon: float) -> list[str]:
    try:
        gap = float(start.exact.gap)
    except ValueError:  # several recurrent classes
        return []
    return [f"The uniform policy's own gap is {gap:.3g}: ε asks for nothing."] if gap <= epsilon else []


def _practice(outcome: result.Result | None, epsilon: float) -> Practice | None:
    if outcome is None:
        return None
    config, gap = outcome.config, np.nanmean(outcome.history.gap, axis=0)
    per_iteration = outcome.run.settings.samples_per_iteration
    enough = np.flatnonzero(gap <= epsilon)
    iterations = int(outcome.history.iteration[enough[0]]) if len(enough) else None
    samples = None if iterations is None else iterations * per_iteration
    return Practice(config, float(gap.mean()), iterations, samples, outcome.iteration * per_iteration)
