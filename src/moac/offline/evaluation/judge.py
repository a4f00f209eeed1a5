"""From a log and trained policies to values, changes to Behavior-Clone, second opinions and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moac.logs.dataset import LoggedDataset
from moac.offline import ncis, reward_model
from moac.offline.behaviour import scoring
from moac.offline.behaviour.model import BehaviourModel
from moac.offline.behaviour.scoring import Scores
from moac.offline.evaluation.judged import Judged, Weights
from moac.offline.evaluation.weighing import BASELINE, Method, Weighing, count, logged
from moac.offline.ncis import Shard


def judge(
    dataset: LoggedDataset,
    methods: Mapping[str, Method],
    split: str = "validation",
    options: ncis.Options | None = None,
) -> Judged:
    """What the methods are worth on a split's users, beside Behavior-Clone, and how far to trust it.

    Values by normalised capped importance sampling; SNIPS, and doubly robust where a behaviour model gives all
    actions' probabilities, as second opinions; a check against random exposure where the dataset has such rows of the
    split. A signal that never fires in the split is left out.

    Args:
        dataset: with propensities, known or from `with_behaviour`.
        methods: by name, a policy and its parameters θ; θ's leading axis are the training seeds of one method.
        split: whose users. A choice made by test users' numbers spoils them.
        options: of the estimate.
    """
    check(dataset, methods, split)
    rows, chosen = dataset.rows(split), options or ncis.Options()
    fires = (dataset.reward[rows] != 0).any(axis=0)
    kept = [name for name, own in zip(dataset.signal_names, fires, strict=True) if own]
    model = None if dataset.behaviour is None else reward_model.fit(dataset, kept)
    weighing = Weighing(dataset, methods, kept, model, chosen)
    shard, weights = weighing.log(rows)
    random = _random(weighing, split)
    exposed = 0 if random is None else int(random.first.count.sum())
    return Judged(
        data=dataset.name,
        fingerprint=dataset.fingerprint,
        split=split,
        rows=len(rows),
        users=len(np.unique(dataset.user[rows])),
        num_actions=dataset.num_actions,
        seeds={name: count(theta) for name, (_, theta) in methods.items()},
        costs=tuple(name for name, sign in zip(dataset.signal_names, dataset.signs, strict=True) if sign < 0),
        report=ncis.analyse(shard, baseline=BASELINE, random=random, options=chosen),
        left_out=tuple(name for name in dataset.signal_names if name not in kept),
        scores=_scores(dataset, split, weights),
        reward_model=model,
        random_rows=exposed,
        weights=Weights.of(weights),
    )


def check(dataset: LoggedDataset, methods: Mapping[str, Method], split: str) -> None:
    """Refuse what cannot be judged, without looking at what any policy is worth."""
    rows = dataset.rows(split)
    if not len(rows):
        raise ValueError(f"{dataset.name} has no rows of {split} users: nothing can be judged on them.")
    users = len(np.unique(dataset.user[rows]))
    if users < 2:
        raise ValueError(f"{dataset.name} has 1 {split} user: an interval over users needs at least two.")
    if not methods or BASELINE in methods:
        raise ValueError(f"`methods` must name at least one policy, and none {BASELINE}, got {list(methods)}.")
    _check_actions(dataset, methods)
    log = logged(dataset, rows)
    if not log.reward.any():
        raise ValueError(f"no signal of {dataset.name} ever fires among {split} users: nothing can be judged on them.")


def _check_actions(dataset: LoggedDataset, methods: Mapping[str, Method]) -> None:
    K = dataset.num_actions
    outside = np.flatnonzero((dataset.action < 0) | (dataset.action >= K))
    if len(outside):
        found = f"{dataset.action[outside[0]]} in row {outside[0]}"
        raise ValueError(f"`action` of {dataset.name} must be in [0, {K}), one of its actions, got {found}.")
    for name, (policy, _) in methods.items():
        own: Any = getattr(policy, "num_actions", K)
        if own != K:
            raise ValueError(
                f"policy {name!r} has {own} actions, {dataset.name} has {K}: it was trained on other data."
            )


def _random(weighing: Weighing, split: str) -> Shard | None:
    """Rows of random exposure of at least two of the split's users, weighed."""
    source = weighing.dataset.random
    if source is None or source.propensity is None:
        return None
    rows = source.rows(split)
    return weighing.random(rows) if len(np.unique(source.user[rows])) > 1 else None


def _scores(dataset: LoggedDataset, split: str, weights: dict[str, Any]) -> Scores | None:
    """Of the behaviour model, with the mean uncapped weight of each policy."""
    model = dataset.behaviour
    if not isinstance(model, BehaviourModel):
        return None
    own = np.asarray(dataset.propensity)[dataset.rows(split)].astype(np.float64)
    policies = {name: np.minimum(own * each.mean(axis=0), 1.0) for name, each in weights.items()}
    return scoring.scores(model, dataset, split, policies=policies)
