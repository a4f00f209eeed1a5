"""Policies that may be archived, and what they are worth: exactly, by whole episodes, or by the users of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac import files, memory, momdp
from moac.choices import COUNT, counted, takes_preferences
from moac.config import Average, Setting
from moac.envs import Environment
from moac.envs.evaluation import play, reused, seeds_of
from moac.momdp import FiniteMOMDP, oracle
from moac.momdp.sampling import action_probabilities
from moac.policies import Sharpening, log_probs
from moac.policies.observations import LogSpec, scaled
from moac.search.archive import Archive, joined
from moac.search.plan import Plan, as_tuples
from moac.search.valuing import STREAM, Effort, mean_per_step, means, per_step, valued_within
from moac.statistics import Mean
from moac.training import Run, needs
from moac.training.result import Result
from moac.training.trained import TrainedPolicy

Table = Float[np.ndarray, "K M"]
Bounds = tuple[Table, Table, Table]
"""Values, and the lower and the upper ends of their intervals."""
Progress = Callable[[str, int, int], None]
"""Told what is evaluated, how many are done, and of how many."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """The policies of a rule after one of its stages, which may be archived."""

    rule: str  # how they were trained
    stage: int | None  # from 1; None is the last
    greedy: bool  # whether their likeliest actions alone are meant
    training_steps: int  # environment steps of all stages of the rule
    evaluation_steps: float  # of the evaluations while these were trained; NaN where they were not counted
    outcome: Result  # the policies; of greedy ones the last returns are their own, and their gaps are not known

    @property
    def name(self) -> str:
        """`RULE`, `RULE, stage 1`, `RULE, greedy` or `RULE, stage 1, greedy`."""
        stage = "" if self.stage is None else f", stage {self.stage}"
        return f"{self.rule}{stage}{', greedy' if self.greedy else ''}"


def candidates(stages: Mapping[str, Sequence[Result]]) -> list[Candidate]:
    """What each rule ends with.

    A model values a policy in no time. So the ends of the earlier stages, which choose more at random, are candidates
    there too, and so are all of them with their likeliest actions alone.
    """
    policies: list[Candidate] = []
    for rule, (*earlier, last) in stages.items():
        training_steps = sum(stage.env_steps for stage in (*earlier, last))
        evaluation_steps = sum(stage.history.steps_taken for stage in (*earlier, last))
        final = Candidate(rule, None, False, training_steps, evaluation_steps, last)
        of_rule = [final]
        model, policy = last.run.source, last.run.parts.policy
        if isinstance(model, FiniteMOMDP):
            of_rule += [replace(final, stage=k, outcome=stage) for k, stage in enumerate(earlier, start=1)]
            if isinstance(policy, Sharpening):
                of_rule += [
                    replace(each, greedy=True, outcome=_greedy(each.outcome, model, policy)) for each in of_rule
                ]
        policies += of_rule
    return policies


def _greedy(outcome: Result, model: FiniteMOMDP, policy: Sharpening) -> Result:
    """Replace the last logged returns by those of the likeliest actions; gaps become NaN."""
    theta, setting = policy.sharpened(outcome.policy.theta), outcome.run.settings.setting
    try:
        returns = oracle.of_policy(model, action_probabilities(model, policy, theta), setting).returns
    except ValueError:  # one of them has no average reward, say: each for itself
        returns = model.evaluate(policy, theta, setting).returns
    logged: files.Arrays = {}
    for name in ("returns", "gap", "direction_gap", "regret"):
        logged[name] = getattr(outcome.history, name).copy()
        logged[name][:, -1] = returns if name == "returns" else np.nan
    history = replace(outcome.history, **logged)
    return replace(outcome, history=history, policy=replace(outcome.policy, theta=theta))


@dataclass(frozen=True, eq=False)
class Valued:
    """Policies with their values."""

    archive: Archive
    steps: int = 0  # environment steps that it took to value them
    left_out: int = 0  # policies that were not valued, since that would have taken too many steps


def evaluate(candidates: list[Candidate], plan: Plan, progress: Progress, looked: int = 0) -> Valued:
    """All policies of all candidates with their values, one after the other.

    Environments are stepped within the plan's share of the training steps, less those of evaluations while training
    and of `looked`.
    """
    parts = [_valued(candidate, plan, progress, looked) for candidate in candidates]
    archive = joined([part.archive for part in parts])
    return Valued(archive, sum(part.steps for part in parts), sum(part.left_out for part in parts))


def _valued(candidate: Candidate, plan: Plan, progress: Progress, looked: int) -> Valued:
    outcome, source, preferences = candidate.outcome, candidate.outcome.run.source, plan.preferences
    conditioned, lam = outcome.config.conditioned, outcome.history.weights[:, -1]
    if isinstance(source, Environment):
        return _by_episodes(candidate, plan, progress, looked)
    if isinstance(source.spec.observations, LogSpec):
        points, low, high = _by_users(source, outcome.policy)
    else:
        points = low = high = outcome.returns
    p = preferences if takes_preferences(outcome.run.settings.weighting) else np.full(points.shape, np.nan)
    count, names = len(points), source.spec.objective_names
    rest = ((candidate.name,) * count, np.arange(count), outcome.history.kind, names)
    return Valued(Archive(points, low, high, p, p if conditioned else lam, *rest))


def _by_episodes(candidate: Candidate, plan: Plan, progress: Progress, looked: int) -> Valued:
    """The policies of an environment; those that have played no episode are left out."""
    outcome, preferences = candidate.outcome, plan.preferences
    environment = cast(Environment, outcome.run.source)
    policies = outcome.policies(preferences)
    spent = np.nan_to_num(candidate.evaluation_steps) + looked
    allowed = plan.evaluation_share * candidate.training_steps - spent
    effort = Effort(plan.episodes, allowed, least=environment.spec.num_objectives)
    report = partial(progress, f"{candidate.name}: episodes")
    values = valued_within(environment, policies, preferences, effort, report)

    count = len(policies)
    known_preferences = preferences
    if not takes_preferences(outcome.run.settings.weighting):
        known_preferences = np.full((count, preferences.shape[1]), np.nan)
    weights = known_preferences if outcome.config.conditioned else outcome.history.weights[:, -1]
    archive = Archive(
        values.mean,
        values.low,
        values.high,
        known_preferences,
        weights,
        rules=(candidate.name,) * count,
        trials=np.arange(count),
        kind=outcome.history.kind,
        objectives=environment.spec.objective_names,
    )
    left_out = int((~values.known).sum())
    return Valued(archive.picked(np.flatnonzero(values.known)), values.steps, left_out)


def merged(candidates: list[Candidate], archive: Archive) -> Result:
    """The archived policies as the trials of one run, described as one of the first rule; of each what it ends with.

    One network for all preferences is its own run.
    """
    outcomes, first = {each.name: each.outcome for each in candidates}, candidates[0].outcome
    if first.config.conditioned:
        return first
    where = [(outcomes[name], int(k)) for name, k in zip(archive.rules, archive.trials, strict=True)]

    def gathered(pick: Callable[[Result], Any]) -> Any:
        rows = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], pick(outcome)) for outcome, k in where]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)

    def trained(name: str) -> TrainedPolicy:
        theta = gathered(lambda outcome: getattr(outcome, name).theta)
        scales = gathered(lambda outcome: outcome.policy.observations.scales)
        return replace(getattr(first, name), theta=theta, observations=scaled(first.policy.observations, scales))

    p = np.where(np.isnan(archive.preferences), 1 / archive.points.shape[1], archive.preferences)
    config = replace(first.config, preferences=None if first.config.preferences is None else as_tuples(p))
    logged = gathered(lambda outcome: {name: a[:, -1:] for name, a in outcome.history.arrays_per_trial().items()})
    return Result(
        Run(first.run.source, config, first.run.parts, len(archive), first.run.seed),
        first.iteration,
        replace(
            first.history,
            iteration=first.history.iteration[-1:],
            evaluation_steps=np.array([sum(outcome.history.steps_taken for outcome in outcomes.values())]),
            **logged,
        ),
        trained("policy"),
        trained("random_iterate_policy"),
        gathered(lambda outcome: outcome.random_iteration),
        gathered(lambda outcome: outcome.stopped),
    )


@dataclass(frozen=True, eq=False)
class EpisodeValues:
    """K trials of a run, E episodes each."""

    returns: tuple[Mean, ...]  # one mean per objective, over trials, or of a single trial over episodes
    discounted: tuple[Mean, ...] | None  # likewise, discounted; None in the average setting
    per_step: tuple[Mean, ...] | None  # reward per step; None in the discounted setting
    points: Table  # [K, M] the objective values of each trial: discounted returns, or rewards per step
    exact: Table | None  # [K, M] the same from the exact model, which has no time limit; None where there is none
    length: float  # mean number of steps
    truncated: float  # share of the episodes that a time limit cut short
    steps: int = 0  # environment steps that were taken

    def __repr__(self) -> str:
        returns = ", ".join(map(str, self.returns))
        trials = counted(len(self.points), "trial")
        return f"EpisodeValues({trials}, {self.length:.4g} steps an episode, returns {returns})"

    def record(self) -> dict[str, Any]:
        """All of it as plain data: the JSON of `moac evaluate`."""
        known = {"returns": self.returns, "discounted_returns": self.discounted, "reward_per_step": self.per_step}
        averages = {name: each and [mean.value for mean in each] for name, each in known.items()}
        intervals = {f"{name}_interval": each and [[m.low, m.high] for m in each] for name, each in known.items()}
        rest = {"points": self.points, "exact": self.exact, "length": self.length, "truncated": self.truncated}
        rest["evaluation_steps"] = self.steps
        return {**averages, **intervals, **rest}

    def save(self, directory: str | Path) -> Path:
        """Write evaluation.json into a folder."""
        folder = Path(directory)
        with files.making(folder):
            files.write_json(folder / "evaluation.json", self.record())
        return folder


def by_episodes(
    environment: Environment,
    trained: TrainedPolicy,
    trials: tuple[int, ...],
    episodes: int,
    model: FiniteMOMDP | None = None,
) -> EpisodeValues:
    """Play whole episodes with new seeds, and count; `model` adds exact values."""
    COUNT.checked("episodes", episodes)
    memory.check([needs.of_episodes(episodes, len(trials))])
    setting = trained.setting or Average()
    gamma = setting.discounts(environment.spec.num_objectives)
    policies = [trained.of_trial(trial) for trial in trials]
    seeds = [seeds_of(STREAM + policy.trial, episodes) for policy in policies]
    with reused() as copies:
        play_trial = partial(play, environment, gamma=gamma, copies=copies)
        played = [play_trial(policy, own) for policy, own in zip(policies, seeds, strict=True)]
    average = isinstance(setting, Average)
    points = [mean_per_step(one) if average else one.discounted.mean(axis=0) for one in played]
    return EpisodeValues(
        means([one.returns for one in played]),
        None if average else means([one.discounted for one in played]),
        per_step(played) if average else None,
        np.stack(points),
        None if model is None else exact(model, policies, setting),
        float(np.mean([one.lengths.mean() for one in played])),
        float(np.mean([one.truncated.mean() for one in played])),
        sum(one.steps for one in played) + environment.unreported_steps(),
    )


def exact(model: FiniteMOMDP, policies: list[TrainedPolicy], setting: Setting) -> Table | None:
    """The exact returns of policies on their environment's model; None where the oracle has none."""
    shown = np.arange(model.num_states) if model.observations is None else model.observations

    def logits(policy: TrainedPolicy) -> Float[np.ndarray, "S A"]:
        inputs = jnp.asarray(np.stack([policy.see(row) for row in shown]))
        return np.asarray(log_probs(policy.policy, policy.trial_theta, inputs, model.num_actions), dtype=np.float64)

    try:
        return np.stack([momdp.evaluate(model, logits(policy), setting).returns for policy in policies])
    except ValueError:
        return None


def _by_users(dataset: Any, trained: TrainedPolicy) -> Bounds:
    """NCIS on validation users with intervals over them; a signal that never fires there is worth 0 to all."""
    from moac.offline.evaluate import evaluate  # which models and environments do without

    each = [jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], trained.theta) for k in range(trained.num_trials)]
    methods = {str(k): (trained.policy, theta) for k, theta in enumerate(each)}
    report = evaluate(dataset, methods, "validation", control=None).report
    places = [dataset.signal_names.index(name) for name in report.signal_names]
    bounds = np.zeros((3, trained.num_trials, len(dataset.signal_names)))
    for k in range(trained.num_trials):
        estimate = report.policies[str(k)].ncis
        bounds[:, k, places] = estimate.value, estimate.interval[:, 0], estimate.interval[:, 1]
    return bounds[0], bounds[1], bounds[2]
