"""Sample sizes that guarantee ε: the printed corollaries, and a plan whose own bound is at most ε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import softmax

from moac import parts, settings
from moac.arguments import checked
from moac.choices import POSITIVE
from moac.config import Average, Config
from moac.momdp import FiniteMOMDP, sampling
from moac.policies import features
from moac.theory import bounds
from moac.theory.assumptions import Assumption, check
from moac.theory.bounds import DERIVATIONS, Derivation
from moac.theory.ground import Constants, constants_of, ground, worst
from moac.training import result

_MOST = 1e300  # more iterations than this count as infinite
MAX_POLICIES = 32
"""Policies of a run whose constants are computed, beside its start."""
EPSILON = 0.01
"""The default ε where the uniform policy is stationary; elsewhere the default is a tenth of that policy's gap."""
_STATIONARY = 1e-12
_VACUOUS = 1e12  # samples, two weeks of a million a second: a plan that needs more cannot be carried out


@dataclass(frozen=True)
class Plan:
    """Sizes that make the bound of Theorem 2 at most ε above the approximation error."""

    derivation: Derivation
    epsilon: float
    momentum: str
    alpha: float  # α = 1/(3L_J)
    beta: float  # β, the largest that Theorem 1 allows
    N: float  # TD steps per iteration
    D: float  # transitions per TD step
    B: float  # transitions per policy gradient
    T: float  # iterations; infinite where no number is enough
    samples: float  # (B + ND)T
    shares: tuple[float, float, float]  # what the ascent, the critic and the noise contribute to the bound
    approximation: float  # what ζ adds, whatever the sizes

    @property
    def bound(self) -> float:
        """The bound of Theorem 2 at these sizes, without the approximation error."""
        return sum(self.shares)


@checked
def plan(c: Constants, epsilon: float, momentum: str = "1/t", derivation: Derivation = "derived") -> Plan:
    """The cheapest split of ε among ascent, critic (its transient and its floor) and noise.

    A ValueError for an ε that is not positive, or constants that the theorems do not cover.
    """
    POSITIVE.checked("epsilon", epsilon)
    actor, critic = bounds.actor_terms(c, derivation), bounds.critic_terms(c, derivation)
    start = c.w_star**2

    def cost(x: Any) -> float:
        return math.log(_sizes(actor, critic, start, epsilon * _split(x), momentum)[-1])

    best = np.full(4, 0.25)
    first = next((x for x in np.arange(30.0)[:, None] * [1.0, 0.0, 0.0] if math.isfinite(cost(x))), None)
    if first is not None:
        options = {"xatol": 1e-3, "fatol": 1e-6, "initial_simplex": first + np.vstack([np.zeros(3), np.eye(3)])}
        best = _split(minimize(cost, first, method="Nelder-Mead", options=options).x)
    sizes = _sizes(actor, critic, start, epsilon * best, momentum)
    return _filled(c, derivation, epsilon, momentum, sizes)


@checked
def corollaries(c: Constants, epsilon: float, momentum: str = "1/t") -> Plan:
    """The sizes of the paper's two corollaries; their bound is up to 4.5ε (see `Plan.bound`)."""
    POSITIVE.checked("epsilon", epsilon)
    actor, critic = bounds.actor_terms(c, "printed"), bounds.critic_terms(c, "printed")
    error, lam, beta = epsilon / actor.critic, critic.lambda_A, critic.largest_beta
    N = math.ceil(max(1.0, 8 / (beta * lam) * math.log(max(2 * c.w_star**2 / error, 1.0))))
    D = _whole(critic.per_batch(beta) / error)
    B = _whole(actor.noise / epsilon)
    T = _smallest(lambda T: actor.ascent * max(1.0, 2 * bounds.total(momentum, T)) / T <= epsilon)
    return _filled(c, "printed", epsilon, momentum, (N, D, B, T, (B + N * D) * T))


def _filled(c: Constants, derivation: Derivation, epsilon: float, momentum: str, sizes: tuple[Any, ...]) -> Plan:
    N, D, B, T, samples = sizes
    alpha, beta = bounds.actor_terms(c, derivation).alpha, bounds.critic_terms(c, derivation).largest_beta
    error = bounds.critic_bound(c, N, D, beta, derivation).total
    bound = bounds.actor_bound(c, min(T, _MOST), B, momentum, error, derivation)
    shares = (math.inf if math.isinf(T) else bound.ascent, bound.critic, bound.noise)
    return Plan(derivation, epsilon, momentum, alpha, beta, N, D, B, T, samples, shares, bound.approximation)


def _sizes(
    actor: bounds.ActorTerms, critic: bounds.CriticTerms, start: float, shares: Any, momentum: str
) -> tuple[float, ...]:
    """N, D, B, T and (B + ND)T for shares of the ascent, the transient, the floor and the noise."""
    ascent, transient, floor, noise = (float(share) for share in shares)
    beta = critic.largest_beta
    shrink = -math.log1p(-beta * critic.lambda_A / 8)
    ratio = actor.critic * start / transient
    N = math.ceil(max(1.0, math.log(ratio) / shrink)) if ratio > 1 else 1
    D = _whole(max(actor.critic * critic.per_batch(beta) / floor, critic.smallest_batch(beta)))
    B = _whole(actor.noise / noise)
    T = _smallest(lambda T: actor.ascent * (actor.ends + 2 * bounds.total(momentum, T)) / T <= ascent)
    return N, D, B, T, (B + N * D) * T


def _smallest(enough: Any) -> float:
    """The smallest whole T for which `enough` holds, which once true stays true; infinity where none is."""
    if enough(1.0):
        return 1.0
    high = 2.0
    while not enough(high):
        high *= 2.0
        if high > _MOST:
            return math.inf
    low = high / 2
    while high - low > max(1.0, 1e-12 * high):
        middle = math.floor((low + high) / 2)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)


def _split(x: Any) -> Any:
    """Four positive shares that sum to one."""
    return softmax(np.append(x, 0.0))


def _whole(value: float) -> float:
    return float(max(1.0, math.ceil(value))) if math.isfinite(value) else math.inf


@dataclass(frozen=True)
class Checked:
    """An assumption over several policies: the first verdict that is not `holds`, and at how many it is so."""

    assumption: Assumption
    failing: int


@dataclass(frozen=True)
class Practice:
    """What a run did with its `config`."""

    config: Config
    mean_gap: float  # mean over trials and logged iterates of the exact gap, which Theorem 2 bounds
    iterations: int | None  # after which the mean gap over trials was first at most ε; None where it never was
    samples: int | None  # of one trial until then
    total: int  # samples of one trial in the whole run


@dataclass(frozen=True)
class Guarantees:
    """Assumptions, constants and plans."""

    epsilon: float  # ε
    policies: int  # how many were checked; the first is the start
    assumptions: tuple[Checked, ...]
    start: Constants | None  # the constants at the start; None, like `worst`, where the chain has no one stationary law
    worst: Constants | None
    plans: dict[str, Plan]  # by name, in the order to show them; empty where the theorems do not apply
    smallest_batch: dict[str, float]  # the D from which on Theorem 1 holds, by derivation
    practice: Practice | None
    notes: tuple[str, ...]  # what a reader must know

    @property
    def vacuous(self) -> str | None:
        """The sentence that no plan can be carried out; None where one can."""
        fewest = min((plan.samples for plan in self.plans.values()), default=0.0)
        if fewest <= _VACUOUS:
            return None
        instead = "moac certify RUN measures from episodes how far a trained policy is from stationary"
        return f"Vacuous in practice: the theorems ask for at least {fewest:.2g} samples. Instead, {instead}."


@checked
def guarantees(
    model: FiniteMOMDP,
    config: Config,
    epsilon: float | None = None,
    outcome: result.Result | None = None,
    seed: int = 0,
) -> Guarantees:
    """The guarantees at the uniform policy, or at the policies of a run on `model`.

    Of `config` the setting, features, policy and momentum count; `seed` is that of random features. An ε of None is a
    tenth of the uniform policy's gap.
    """
    if epsilon is not None:
        POSITIVE.checked("epsilon", epsilon)
    config = settings.complete(config, model.spec)
    resolved = settings.Settings.of(config)
    Phi = features.of_states(resolved.features, model.spec, parts.run_key(seed)).table()
    inputs = Phi if config.policy == "linear" else None
    grounds = [ground(model, logits, resolved.setting, Phi, inputs) for logits in _policies(model, outcome)]
    assumptions = tuple(map(_over_policies, zip(*map(check, grounds), strict=True)))
    notes = _notes(config, assumptions, len(grounds))
    try:
        constants, gap = [constants_of(each) for each in grounds], float(grounds[0].exact.gap)
    except ValueError as error:
        notes.append(f"No constants: {error}")
        epsilon = EPSILON if epsilon is None else epsilon
        practice = _practice(outcome, epsilon)
        return Guarantees(epsilon, len(grounds), assumptions, None, None, {}, {}, practice, tuple(notes))
    if epsilon is None:
        epsilon = gap / 10 if gap > _STATIONARY else EPSILON
    if gap <= epsilon:
        notes.append(f"The uniform policy's own gap is {gap:.3g}, at most ε: ε asks for nothing.")
    hardest = worst(constants)
    plans, smallest, more = _plans(hardest, epsilon, config.momentum)
    notes, practice = (*notes, *more), _practice(outcome, epsilon)
    return Guarantees(epsilon, len(grounds), assumptions, constants[0], hardest, plans, smallest, practice, notes)


def _policies(model: FiniteMOMDP, outcome: result.Result | None) -> Float[np.ndarray, "n S A"]:
    """Logits of the uniform policy, then of random iterates and last policies of the trials, half of each."""
    start = np.zeros((1, model.num_states, model.num_actions))
    if outcome is None:
        return start
    some = np.unique(np.linspace(0, outcome.run.num_trials - 1, MAX_POLICIES // 2).round().astype(int))
    tables = [start]
    for trained in (outcome.random_iterate_policy, outcome.policy):
        theta = jax.tree.map(lambda leaf: np.asarray(leaf)[some], trained.theta)
        pi = sampling.action_probabilities(model, trained.policy, theta)
        tables.append(np.log(np.maximum(pi, 1e-300)))
    return np.concatenate(tables)


def _over_policies(column: tuple[Assumption, ...]) -> Checked:
    failing = [verdict for verdict in column if verdict.status == "fails"]
    open_ones = [verdict for verdict in column if verdict.status == "not applicable"]
    smallest = min(column, key=lambda verdict: math.inf if verdict.number is None else verdict.number)
    return Checked([*failing, *open_ones, smallest][0], len(failing))


def _plans(c: Constants, epsilon: float, momentum: str) -> tuple[dict[str, Plan], dict[str, float], list[str]]:
    """The printed corollaries and our plans, where the theorems apply."""
    try:
        plans = {"corollaries": corollaries(c, epsilon, momentum)}
        plans |= {f"plan, {kind}": plan(c, epsilon, momentum, kind) for kind in DERIVATIONS}
        terms = {kind: bounds.critic_terms(c, kind) for kind in DERIVATIONS}
    except ValueError as error:
        return {}, {}, [f"No plan: {error}"]
    smallest = {kind: term.smallest_batch(term.largest_beta) for kind, term in terms.items()}
    printed, derived = plans["corollaries"].bound / epsilon, plans["plan, derived"]
    notes = [f"The printed corollaries give a bound of {printed:.2f} ε: each of its terms alone may be as large as ε."]
    if math.isinf(derived.T):
        notes.append(f"No number of iterations is enough: with η = {momentum} the bound's first term does not vanish.")
    if derived.approximation > 1e-12:
        notes.append(f"The features cannot represent the values: ζ adds {derived.approximation:.3g} to the bound.")
    return plans, smallest, notes


def _notes(config: Config, assumptions: tuple[Checked, ...], count: int) -> list[str]:
    """Notes on whose constants these are, what the theorems do not cover, and which assumptions fail."""
    where = "the uniform policy" if count == 1 else f"the worst of {count} policies (the start, θ_T̂ and the last ones)"
    notes = [f"The constants are those of {where}: a plan is a guarantee only if no policy during training is worse."]
    beyond = ", ".join(settings.beyond_theory(config))
    if beyond:
        instead = "a linear critic with these features, constant steps and a table of logits"
        notes.append(f"The theorems do not cover {beyond}: the numbers are those of {instead}.")
    if isinstance(config.setting, Average):
        notes.append("Theorem 1 covers the average setting with the exact J, not with a running μ.")
    elif config.visitation == "stationary":
        followed = "the algorithm follows Lemma 1's direction, not ∇J; --visitation discounted follows ∇J"
        notes.append(f"In the discounted setting Theorem 2 does not bound the true gap: {followed} (moac docs errata).")
    failing = "; ".join(checked.assumption.name for checked in assumptions if checked.failing)
    if failing:
        notes.append(f"Assumptions that fail here: {failing}. The numbers are what the formulas give all the same.")
    return notes


def _practice(outcome: result.Result | None, epsilon: float) -> Practice | None:
    if outcome is None:
        return None
    config, gap = outcome.config, np.nanmean(outcome.history.gap, axis=0)
    per_iteration = outcome.run.settings.samples_per_iteration
    enough = np.flatnonzero(gap <= epsilon)
    iterations = int(outcome.history.iteration[enough[0]]) if len(enough) else None
    samples = None if iterations is None else iterations * per_iteration
    return Practice(config, float(gap.mean()), iterations, samples, outcome.iteration * per_iteration)
