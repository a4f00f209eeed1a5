"""What an exploration trains: preference vectors on the simplex, and the runs of each rule, one after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from moac import memory
from moac import settings as resolving
from moac.choices import COUNT, NOT_NEGATIVE, SEED, did_you_mean, shown, takes_preferences
from moac.config import CHOICES, Config, is_choice
from moac.default_config import NETWORKS, learner_of
from moac.policies.observations import LogSpec
from moac.runs.runner import Task
from moac.search import CONDITIONED, EXPLORING, GROWTH
from moac.settings import Settings
from moac.training import needs
from moac.types import Source, Spec
from moac.weighting import SMALLEST

MANY, FEW, ASKED = 128, 16, 36
"""Preferences on a model; of policies trained elsewhere, where time is dear; those that one network is asked for."""
ITERATIONS = 6_000
"""On a model."""
EVALUATION_SHARE = 0.5
"""Environment steps of all evaluations, as a share of those of the training."""
WHILE_TRAINING, LOOKING = 0.1, 0.2
"""Parts of that share for the evaluations while training, and for looks at the growing front; the rest values."""
FALLING = (0.1, 0.03, 0.01, 0.003, 1e-5)
"""Shares of the largest reward; the last counts for nothing, yet is not 0, so that all stages share one program."""
_STREAM = 0x70726566
"""Sets the draws of preferences apart from all others of a seed."""
_OFF = 1e-6
"""How far from 1 the sum of given numbers may be."""
Vectors = Float[np.ndarray, "N M"]


@dataclass(frozen=True, eq=False)
class Options:
    """What is to be explored, as `moac.explore` takes it; what is None depends on the problem."""

    config: Config = field(default_factory=lambda: Config(**EXPLORING))
    preferences: int | str | Vectors | None = None  # how many, a text or file with vectors, or vectors [N, M]
    draw: Literal["random", "grid"] | None = None
    rules: tuple[str, ...] | None = None  # on a model also `preferred`, which finds the places between corners
    entropies: tuple[float, ...] | None = None
    reference: Sequence[float] | None = None
    seed: int = 0
    steps: int | None = None
    episodes: int = 100


@dataclass(frozen=True, eq=False)
class Plan:
    """What is trained: `Options` resolved for a problem."""

    env: str  # the environment, or the name of the data
    seed: int  # of every run
    config: Config  # resolved, but for what varies: rule, preferences and entropy
    rules: tuple[str, ...]  # by name
    # bonuses of the stages, one after the other; iterations and evaluations are shared evenly
    entropies: tuple[float, ...]
    preferences: Vectors  # p [N, M] of the trials of each rule
    reference: Sequence[float] | None = None  # of the hypervolume; None is below the worst of the front
    episodes: int = 100  # new ones that value each policy of an environment, at most
    evaluation_share: float = EVALUATION_SHARE  # environment steps of all evaluations, as a share of the training's

    @classmethod
    def of(cls, options: Options, problem: Source) -> Plan:
        """The plan for a problem; a mistake in the options is a ValueError."""
        spec = problem.spec
        if spec.num_objectives == 1:
            raise ValueError("`problem` must have at least two objectives to explore, got 1: train it instead.")
        logged = isinstance(spec.observations, LogSpec)
        simple = problem.compiled and not logged
        rules, reference = options.rules, options.reference
        if rules is None:
            said = options.config  # one network, unless it asks for another learner or model than that has
            networks = said.policy in (None, *NETWORKS) and said.critic in (None, "mlp")
            one = not problem.compiled and networks and learner_of(spec, said) == "ppo"
            usual = (CONDITIONED,) if one else ("fixed",)
            rules = ("fixed", "preferred") if simple else usual
        check_rules(rules)
        COUNT.checked("episodes", options.episodes)
        SEED.checked("seed", options.seed)
        if reference is not None and len(reference) != spec.num_objectives:
            expected = f"one number per objective ({spec.num_objectives})"
            raise ValueError(f"`reference` must hold {expected}, got {len(reference)}.")
        p = _preferences(options, spec.num_objectives, rules, MANY if simple else FEW)
        config = _config(options, spec, simple, 0 if rules == (CONDITIONED,) else len(p))
        entropies = _entropies(options.entropies, config, spec.reward_bound if simple else 0.0)
        share = _evaluation_share(options)
        plan = cls(spec.name, options.seed, config, rules, entropies, p, reference, options.episodes, share)
        for rule in rules:
            stage = replace(config, num_evaluations=plan.evaluations(rule))
            memory.check(needs.of_sizes(problem, stage, plan.trials(rule)))
            plan.stages(rule)  # which checks
        if spec.observations.encoder is not None:
            memory.check([needs.of_episodes(options.episodes, len(p))])
        return plan

    def stages(self, rule: str) -> list[Task]:
        """The runs of one rule; a label says all that went before, since the result depends on it."""
        count, total = len(self.entropies), Settings.of(self.config).num_iterations
        if total < count:
            raise ValueError(f"`num_iterations` must be at least {count}, one per stage of entropy, got {total}.")
        conditioned = rule == CONDITIONED
        p = as_tuples(self.preferences) if takes_preferences(rule) else None
        evaluations, weighting = self.evaluations(rule), "fixed" if conditioned else rule
        tasks: list[Task] = []
        for k, entropy in enumerate(self.entropies):
            share = total // count if k < count - 1 else total - (count - 1) * (total // count)
            vary: dict[str, Any] = {"weighting": weighting, "preferences": p, "entropy": entropy}
            label = f"{rule} entropy {' '.join(f'{each:g}' for each in self.entropies[: k + 1])}"
            config = replace(self.config, **vary, num_iterations=share, num_evaluations=evaluations)
            tasks.append(Task(label, config, self.trials(rule), self.seed))
        return tasks

    def trials(self, rule: str) -> int:
        """How many policies a rule trains."""
        return 1 if rule == CONDITIONED else len(self.preferences)

    def evaluations(self, rule: str) -> int:
        """How often the policies of a rule are evaluated in each stage."""
        most = self.config.num_evaluations
        if rule == CONDITIONED:
            most = min(GROWTH, most)
        return max(1, most // len(self.entropies))


def _entropies(given: tuple[float, ...] | None, config: Config, falls_from: float) -> tuple[float, ...]:
    """The bonuses of the stages; `falls_from` is the largest reward of a model, else 0."""
    if given is not None and not given:
        raise ValueError("`entropy` must hold at least one number, got none.")
    for coefficient in given or ():
        NOT_NEGATIVE.checked("entropy", coefficient)
    if config.conditioned and len(given or (0.0,)) != 1:
        raise ValueError(f"`entropy` must be one number with {CONDITIONED}, where it decays by itself, got {given}.")
    if given is not None:
        return given
    alone = (config.entropy or 0.0) if config.conditioned else 0.0
    return tuple(share * falls_from for share in FALLING) if falls_from else (alone,)


def _config(options: Options, spec: Spec, simple: bool, trials: int) -> Config:
    """What all rules share, resolved, where each has so many trials, or 0: one network for all preferences."""
    share = WHILE_TRAINING * _evaluation_share(options)
    config = replace(options.config, conditioned=not trials, evaluation_share=share)
    if trials:  # stages of entropy and their starts are tuned to the paper's learner
        config = replace(config, learner=config.learner or "paper")
    if isinstance(spec.observations, LogSpec):
        config = replace(config, gae=0.0)  # rows are drawn one by one
    if options.steps is not None:
        config = resolving.for_steps(config, spec, options.steps, max(trials, 1))
    elif simple and config.num_iterations is None:
        config = replace(config, num_iterations=ITERATIONS)
    return resolving.complete(config, spec)


def _evaluation_share(options: Options) -> float:
    """Environment steps of all evaluations, as a share of those of the training."""
    share = options.config.evaluation_share
    return EVALUATION_SHARE if share is None else share


def check_rules(rules: Sequence[str]) -> None:
    """Refuse a rule that is unknown or named twice; one that asks for more is refused by the configuration."""
    known = (CONDITIONED, *CHOICES["weighting"])
    for rule in rules:
        if rule != CONDITIONED and not is_choice("weighting", rule):
            near = did_you_mean(rule, known)
            raise ValueError(f"`rules` must be some of {', '.join(known)}, got {shown(rule)}.{near}")
    if not rules:
        raise ValueError("`rules` must name at least one rule, got none.")
    if CONDITIONED in rules and len(rules) > 1:
        raise ValueError(f"`rules` must name {CONDITIONED} alone, which trains one network for all preferences.")
    twice = [rule for k, rule in enumerate(rules) if rule in rules[:k]]
    if twice:
        raise ValueError(f"`rules` must name each rule once, got {twice[0]} twice.")


def _preferences(options: Options, num_objectives: int, rules: Sequence[str], usual: int) -> Vectors:
    conditioned = CONDITIONED in rules
    usual = max(ASKED, num_objectives) if conditioned else usual
    wanted, smallest = usual if options.preferences is None else options.preferences, 0.0 if conditioned else SMALLEST
    if not isinstance(wanted, int | np.integer):
        if options.draw is not None:
            raise ValueError(f"`draw` must be left out where `preferences` are vectors, got {shown(options.draw)}.")
        return given(wanted, num_objectives, smallest)
    wanted = COUNT.checked("preferences", wanted)
    if (options.draw or ("grid" if conditioned else "random")) == "grid":
        return grid(wanted, num_objectives, smallest)
    return random(wanted, num_objectives, options.seed)


def random(count: int, num_objectives: int, seed: int) -> Vectors:
    """The M vertices, the centre, then draws from Dirichlet(1, …, 1); the first `count` of them."""
    M = num_objectives
    _check_count(count, M)
    generator = np.random.default_rng([_STREAM, seed])
    drawn = generator.dirichlet(np.ones(M), max(count - M - 1, 0))
    return _clipped(np.concatenate([np.eye(M), np.full((1, M), 1 / M), drawn])[:count])


def grid(count: int, num_objectives: int, smallest: float = SMALLEST) -> Vectors:
    """All p with multiples of 1/k, for the largest k that gives at most `count`: C(k + M − 1, M − 1) points."""
    _check_count(count, num_objectives)
    M, k = num_objectives, 1
    while M > 1 and math.comb(k + M, M - 1) <= count:
        k += 1
    points = math.comb(k + M - 1, M - 1)
    if points > count:
        raise ValueError(f"`preferences` must be at least {M} on a grid, one per objective, got {count}.")
    # k stars between M − 1 bars: the numbers of stars between neighbouring bars are the parts of a sum of k
    bars = np.array(list(combinations(range(k + M - 1), M - 1))).reshape(points, M - 1)
    return _clipped((np.diff(bars, prepend=-1, append=k + M - 1)[::-1] - 1) / k, smallest)


def _check_count(count: int, num_objectives: int) -> None:
    """Refuse more preferences than fit into memory: the vectors are there three times as they are made."""
    size = 3 * 8 * count * num_objectives
    memory.check([memory.Need(size, "the vectors", {"preferences": count})])


def given(vectors: str | Vectors, num_objectives: int, smallest: float = SMALLEST) -> Vectors:
    """From an array, from `0.2,0.8;0.5,0.5`, or from a file with one vector on each line."""
    rows: Any = vectors
    if isinstance(vectors, str):
        text = Path(vectors).read_text(encoding="utf-8") if os.path.isfile(vectors) else vectors
        rows = [line.split(",") for line in text.replace(";", "\n").splitlines() if line.strip()]
    try:
        p = np.array(rows, dtype=np.float64)
    except ValueError:  # what is no number, or rows of several lengths
        p = np.zeros((0, 0))
    on_simplex = (p >= 0) & (np.abs(p.sum(axis=-1, keepdims=True) - 1) <= _OFF)
    if not len(p) or p.shape != (len(p), num_objectives) or not on_simplex.all():
        right = f"vectors of {num_objectives} numbers of at least 0 that sum to 1, such as 0.5,0.5, or a file of them"
        raise ValueError(f"`preferences` must be a number, or {right}, got {shown(vectors)}.")
    return _clipped(p, smallest)


def as_tuples(vectors: Vectors) -> tuple[tuple[float, ...], ...]:
    """As a configuration holds them."""
    return tuple(tuple(map(float, p)) for p in vectors)


def _clipped(p: Vectors, smallest: float = SMALLEST) -> Vectors:
    """No number below `weighting.SMALLEST`, which is what the rules count, and sums of 1."""
    p = np.maximum(p, smallest)
    return p / p.sum(axis=1, keepdims=True)
