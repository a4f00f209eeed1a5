"""Policies that may be archived, and what they are worth: exactly, by whole episodes, or by the users of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac import files, momdp, statistics
from moac.choices import COUNT, counted, takes_preferences
from moac.config import Average, Setting
from moac.envs import Environment
from moac.envs.evaluation import Episodes, play, reused, seeds_of
from moac.envs.rollout import Copy
from moac.momdp import FiniteMOMDP, oracle
from moac.momdp.sampling import action_probabilities
from moac.policies import Sharpening, log_probs
from moac.policies.observations import LogSpec, scaled
from moac.search.archive import Archive, joined
from moac.search.plan import Plan, as_tuples
from moac.statistics import Mean
from moac.training import Run
from moac.training.result import Result
from moac.training.trained import TrainedPolicy

_STREAM = 1_000_000
"""Sets these seeds apart from those of the evaluations while training."""
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
        of_rule = [Candidate(rule, None, False, last)]
        model, policy = last.run.source, last.run.parts.policy
        if isinstance(model, FiniteMOMDP):
            of_rule += [Candidate(rule, k, False, stage) for k, stage in enumerate(earlier, start=1)]
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


def evaluate(candidates: list[Candidate], plan: Plan, progress: Progress) -> Archive:
    """All policies of all candidates with their values, one after the other."""
    return joined([_valued(candidate, plan, progress) for candidate in candidates])


def _valued(candidate: Candidate, plan: Plan, progress: Progress) -> Archive:
    outcome, source, preferences = candidate.outcome, candidate.outcome.run.source, plan.preferences
    conditioned, lam = outcome.config.conditioned, outcome.history.weights[:, -1]
    if isinstance(source, Environment):
        trained, report = outcome.policy, partial(progress, f"{candidate.name}: episodes")
        each = [trained.at(p) for p in preferences] if conditioned else list(map(trained.of_trial, range(len(lam))))
        points, low, high = by_new_episodes(source, each, plan.episodes, report)
    elif isinstance(source.spec.observations, LogSpec):
        points, low, high = _by_users(source, outcome.policy)
    else:
        points = low = high = outcome.returns
    p = preferences if takes_preferences(outcome.run.settings.weighting) else np.full(points.shape, np.nan)
    count, names = len(points), source.spec.objective_names
    rest = ((candidate.name,) * count, np.arange(count), outcome.history.kind, names)
    return Archive(points, low, high, p, p if conditioned else lam, *rest)


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
    logged = gathered(
        lambda outcome: {name: a[:, -1:] for name, a in outcome.history.arrays().items() if name != "iteration"}
    )
    return Result(
        Run(first.run.source, config, first.run.parts, len(archive), first.run.seed),
        first.iteration,
        replace(first.history, iteration=first.history.iteration[-1:], **logged),
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

    def __repr__(self) -> str:
        means = ", ".join(map(str, self.returns))
        trials = counted(len(self.points), "trial")
        return f"EpisodeValues({trials}, {self.length:.4g} steps an episode, returns {means})"

    def record(self) -> dict[str, Any]:
        """All of it as plain data: the JSON of `moac evaluate`."""
        means = {"returns": self.returns, "discounted_returns": self.discounted, "reward_per_step": self.per_step}
        averages = {name: each and [mean.value for mean in each] for name, each in means.items()}
        intervals = {f"{name}_interval": each and [[m.low, m.high] for m in each] for name, each in means.items()}
        rest = {"points": self.points, "exact": self.exact, "length": self.length, "truncated": self.truncated}
        return {**averages, **intervals, **rest}

    def save(self, directory: str | Path) -> Path:
        """Write evaluation.json into a folder."""
        folder = files.subfolder(Path(directory))
        files.write_json(folder / "evaluation.json", self.record())
        return folder


def by_episodes(
    environment: Environment,
    trained: TrainedPolicy,
    trials: tuple[int, ...],
    episodes: int,
    model: FiniteMOMDP | None = None,
    copies: list[Copy] | None = None,
) -> EpisodeValues:
    """Play whole episodes with new seeds, and count; `model` adds exact values, `copies` are used where there are."""
    COUNT.checked("episodes", episodes)
    setting = trained.setting or Average()
    gamma = setting.discounts(environment.spec.num_objectives)
    policies = [trained.of_trial(trial) for trial in trials]
    seeds = [seeds_of(_STREAM + policy.trial, episodes) for policy in policies]
    with nullcontext(copies) if copies is not None else reused() as shared:
        told = partial(play, environment, gamma=gamma, copies=shared)
        played = [told(policy, each) for policy, each in zip(policies, seeds, strict=True)]
    average = isinstance(setting, Average)
    points = [_per_step(one) if average else one.discounted.mean(axis=0) for one in played]
    return EpisodeValues(
        _means([one.returns for one in played]),
        None if average else _means([one.discounted for one in played]),
        _ratios(played) if average else None,
        np.stack(points),
        None if model is None else exact(model, policies, setting),
        float(np.mean([one.lengths.mean() for one in played])),
        float(np.mean([one.truncated.mean() for one in played])),
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


def by_new_episodes(
    environment: Environment,
    policies: Sequence[TrainedPolicy],
    episodes: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Bounds:
    """Means over new episodes, with Student's intervals; of rewards per step by the delta method."""
    rows: list[Any] = []
    with reused() as copies:
        for k, policy in enumerate(policies):
            progress(k, len(policies))
            values = by_episodes(environment, policy, (policy.trial,), episodes, copies=copies)
            rows.append([(mean.value, mean.low, mean.high) for mean in values.discounted or values.per_step or ()])
    value, low, high = np.moveaxis(np.array(rows), 2, 0)
    return value, low, high


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


def _means(tables: list[Float[np.ndarray, "E M"]]) -> tuple[Mean, ...]:
    """One per objective: over episodes of a single trial, or over the means of several."""
    rows = tables[0] if len(tables) == 1 else np.stack([table.mean(axis=0) for table in tables])
    return tuple(statistics.mean(column) for column in rows.T)


def _per_step(episodes: Episodes) -> Float[np.ndarray, " M"]:
    return episodes.returns.sum(axis=0) / episodes.lengths.sum()


def _ratios(played: list[Episodes]) -> tuple[Mean, ...]:
    """Rewards per step; of a single trial with the interval of a ratio of two means (delta method)."""
    J = np.stack([_per_step(one) for one in played])
    if len(played) == 1:
        J = J + (played[0].returns - J * played[0].lengths[:, None]) / played[0].lengths.mean()
    return tuple(statistics.mean(column) for column in J.T)
