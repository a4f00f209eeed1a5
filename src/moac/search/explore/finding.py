"""What the trials of an exploration are worth, by the kind of problem: exactly, by episodes, or by a log's users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from moac import envs, training
from moac.choices import takes_preferences
from moac.search.archive import Archive
from moac.search.episodes import judge
from moac.search.explore.running import Order
from moac.training import result

EPISODES = 100
"""Of each policy on a real environment, beside those of the evaluations while training."""

Bounds = tuple[Float[np.ndarray, "K M"], Float[np.ndarray, "K M"], Float[np.ndarray, "K M"]]
"""Values, and the lower and the upper ends of their intervals."""
Tell = Callable[[str, int, int], None]
"""Told what is judged, how many are done, and of how many."""


def found(outcomes: dict[str, result.Result], order: Order, tell: Tell) -> Archive:
    """All trials of all rules, one after the other."""
    rows = [_of_rule(rule, outcome, order, tell) for rule, outcome in outcomes.items()]
    arrays = {name: np.concatenate([row.arrays()[name] for row in rows]) for name in rows[0].arrays()}
    return Archive(**arrays, rules=tuple(rule for row in rows for rule in row.rules), kind=rows[0].kind)


def _of_rule(rule: str, outcome: result.Result, order: Order, tell: Tell) -> Archive:
    K, M = outcome.returns.shape
    points, low, high = _valued(rule, outcome, tell)
    p = order.preferences if takes_preferences(outcome.config.weighting) else np.full((K, M), np.nan)
    lam = outcome.history.weights[:, -1]
    return Archive(points, low, high, p, lam, (rule,) * K, np.arange(K), outcome.history.kind)


def _valued(rule: str, outcome: result.Result, tell: Tell) -> Bounds:
    source: Any = outcome.run.source
    if isinstance(source, envs.Environment):
        return _by_episodes(source, outcome, lambda done, total: tell(f"{rule}: episodes", done, total))
    if source.spec.logged:
        return _by_users(source, outcome)
    return outcome.returns, outcome.returns, outcome.returns


def _by_episodes(environment: envs.Environment, outcome: result.Result, tell: Callable[[int, int], None]) -> Bounds:
    """Means over new episodes, with Student's intervals; of rewards per step by the delta method."""
    rows: list[Any] = []
    for k in range(outcome.run.num_trials):
        tell(k, outcome.run.num_trials)
        judged = judge(environment, outcome.policy, (k,), EPISODES, None)
        means = judged.discounted or judged.per_step or ()
        rows.append([(mean.value, mean.low, mean.high) for mean in means])
    value, low, high = np.moveaxis(np.array(rows), 2, 0)
    return value, low, high


def _by_users(dataset: Any, outcome: result.Result) -> Bounds:
    """NCIS on validation users with intervals over them; a signal that never fires there is worth 0 to all."""
    from moac.offline.evaluation import judge as judged_by

    own = outcome.policy
    one = [jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], own.theta) for k in range(own.num_trials)]
    methods = {str(k): (own.policy, theta) for k, theta in enumerate(one)}
    report = judged_by(dataset, methods, "validation").report
    places = [dataset.signal_names.index(name) for name in report.signal_names]
    bounds = np.zeros((3, own.num_trials, len(dataset.signal_names)))
    for k in range(own.num_trials):
        estimate = report.policies[str(k)].ncis
        bounds[:, k, places] = estimate.value, estimate.interval[:, 0], estimate.interval[:, 1]
    return bounds[0], bounds[1], bounds[2]


def merged(outcomes: dict[str, result.Result], archive: Archive) -> result.Result:
    """The archived policies as the trials of one run, described as one of the first rule; of each what it ends with."""
    first = next(iter(outcomes.values()))
    where = [(outcomes[rule], int(k)) for rule, k in zip(archive.rules, archive.trials, strict=True)]

    def gathered(pick: Callable[[result.Result], Any]) -> Any:
        rows = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], pick(own)) for own, k in where]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)

    p = np.where(np.isnan(archive.preferences), 1 / archive.points.shape[1], archive.preferences)
    given = None if first.config.preferences is None else tuple(tuple(map(float, each)) for each in p)
    run = training.Run(
        first.run.source, replace(first.config, preferences=given), first.run.parts, len(archive), first.run.seed
    )
    logged = gathered(lambda own: {name: a[:, -1:] for name, a in own.history.arrays().items() if name != "iteration"})
    return result.Result(
        run,
        first.iteration,
        replace(first.history, iteration=first.history.iteration[-1:], **logged),
        replace(first.policy, theta=gathered(lambda own: own.policy.theta), scales=gathered(lambda o: o.policy.scales)),
        replace(
            first.random_iterate_policy,
            theta=gathered(lambda own: own.random_iterate_policy.theta),
            scales=gathered(lambda o: o.policy.scales),
        ),
        gathered(lambda own: own.random_iteration),
        gathered(lambda own: own.stopped),
    )
