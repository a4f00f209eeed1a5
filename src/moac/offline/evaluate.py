"""Evaluate trained policies on a log beside Behavior-Clone: importance weights, second opinions and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.choices import counted
from moac.compiling import kept_for_few
from moac.kept import with_owner
from moac.logs import folder, states
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.offline import access_log, behaviour, controls, evaluation, model_error, ncis
from moac.offline.behaviour import BehaviourModel
from moac.offline.blocks import block_size, joined, places
from moac.offline.evaluation import BASELINE, Method, OfflineEvaluation
from moac.offline.ncis import Evidence, Logged, Shard, Weighted
from moac.offline.reward_model import RewardModel, fit_rewards
from moac.policies import ItemsPolicy, log_probs
from moac.types import Evaluation, Params, Policy, vectors

_NUMBERS = 1 << 24
"""Probabilities that are in memory at once."""
_CHECKED = 200_000
"""Rows that controls, balance, tails and sensitivity are computed on; of more, those of the first users."""


def evaluate(  # noqa: PLR0913 - what is noted of an access to test users
    dataset: LoggedDataset,
    methods: Mapping[str, Method],
    split: str = "validation",
    options: ncis.Options | None = None,
    *,
    control: Sequence[str] | None = (),
    run: Path | None = None,
    about: Mapping[str, Any] | None = None,
    accesses: access_log.AccessLog | None = None,
) -> OfflineEvaluation:
    """What the methods are worth on a split's users, beside Behavior-Clone, and whether that may be read.

    Values by normalised capped importance sampling; SNIPS, and doubly robust where a behaviour model is known, as
    second opinions; controls, balance, sensitivity and tails; random exposure where the log has some. A signal that
    never fires in the split is left out. An access to test users is recorded before any number is computed.

    Args:
        dataset: with propensities, known or from `with_behaviour`.
        methods: by name, a policy and its parameters θ; θ's leading axis are the training seeds of one method.
        split: whose users. A choice made by test users' numbers spoils them.
        options: of the estimate.
        control: columns that no policy can have changed, beside earlier and later rewards; None makes no checks at all.
        run: folder whose access log notes an access to test users, beside that of the data.
        about: what that entry says beside the options.
        accesses: of an evaluation of the same on the same users, whose access is recorded.
    """
    _check(dataset, methods, split)
    rows, chosen, digests = dataset.rows(split), options or ncis.Options(), evaluation.fingerprints(methods)
    named = controls.of_columns(dataset, rows, control or ())
    noted = asdict(chosen) | dict(about or {})
    accesses = accesses or (access_log.record_access(run, dataset, noted, digests) if split == "test" else None)
    fires = (dataset.reward[rows] != 0).any(axis=0)
    kept = [name for name, ever in zip(dataset.signal_names, fires, strict=True) if ever]
    model = None if dataset.behaviour is None else fit_rewards(dataset, kept)
    refitted = {} if control is None else controls.refits(dataset, split)
    summed = _Policies(dataset, methods, kept, refitted).accumulate(rows, model, chosen)
    evidence = None if control is None else _evidence((dataset, refitted.get("half")), rows, summed, named, chosen.cap)
    report = ncis.analyse(summed.shard, baseline=BASELINE, evidence=evidence, options=chosen)
    other, one_cap = summed.without, replace(chosen, caps=())
    shown = {} if control is None else controls.exposures(dataset, methods, probabilities, chosen)
    policies = {name: replace(each, random_exposure=shown.get(name)) for name, each in report.policies.items()}
    built = {} if dataset.folder is None else folder.read_manifest(Path(dataset.folder))["options"]
    return OfflineEvaluation(
        data=dataset.name,
        fingerprint=dataset.fingerprint,
        size=(dataset.num_rows, dataset.num_users),
        num_actions=dataset.num_actions,
        split=split,
        how_split={"rule": dataset.how_split, "seed": built.get("split_seed"), "shares": built.get("shares")},
        rows=len(rows),
        users=len(np.unique(dataset.user[rows])),
        policies=digests,
        seeds={name: _num_seeds(theta) for name, (_, theta) in methods.items()},
        costs=tuple(name for name, sign in zip(dataset.signal_names, dataset.signs, strict=True) if sign < 0),
        report=replace(report, policies=policies),
        without_responses=None if other is None else ncis.analyse(other, baseline=BASELINE, options=one_cap),
        left_out=tuple(name for name in dataset.signal_names if name not in kept),
        calibration=_calibration(dataset, split, summed.weights["own"]),
        reward_model=None if model is None else model.as_dict(),
        weights=evaluation.WeightHistogram.of({name: each.ratio for name, each in summed.weights["own"].items()}),
        accesses=accesses,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def check_rows(dataset: LoggedDataset, split: str) -> None:
    """Refuse a split on which nothing can be evaluated."""
    rows = dataset.rows(split)
    users = len(np.unique(dataset.user[rows]))
    if users < 2:
        raise ValueError(
            f"{dataset.name} has {counted(users, f'{split} user')}: an interval over users needs at least two."
        )
    if not dataset.reward[rows].any():
        raise ValueError(f"no signal of {dataset.name} ever occurs among {split} users: nothing can be evaluated.")


def _check(dataset: LoggedDataset, methods: Mapping[str, Method], split: str) -> None:
    """Refuse what cannot be evaluated, without looking at what any policy is worth."""
    check_rows(dataset, split)
    rows, K = dataset.rows(split), dataset.num_actions
    if not methods or BASELINE in methods:
        raise ValueError(f"`methods` must name at least one policy, and none {BASELINE}, got {list(methods)}.")
    outside = np.flatnonzero((dataset.action < 0) | (dataset.action >= K))
    if len(outside):
        first = f"{dataset.action[outside[0]]} in row {outside[0]}"
        raise ValueError(f"`action` of {dataset.name} must be in [0, {K}), one of its actions, got {first}.")
    for name, (policy, _) in methods.items():
        if dataset.lists is not None and not isinstance(policy, ItemsPolicy):
            why = f"the requests of {dataset.name} have candidates: train with policy=items"
            raise ValueError(f"policy {name!r} does not choose among candidates, and {why}.")
        actions: Any = getattr(policy, "num_actions", K)
        if actions != K:
            raise ValueError(f"policy {name!r} has {actions} actions, {dataset.name} has {K}: it is for other data.")
    Logged.from_dataset(dataset, rows)  # which checks propensities


@with_owner
def with_estimator(dataset: LoggedDataset) -> LoggedDataset:
    """The dataset, able to evaluate policies in training; the same object each time, as compiled programs ask for."""
    return dataset if dataset.estimator is estimate else replace(dataset, estimator=estimate)


def estimate(dataset: LoggedDataset, policy: Policy, theta: Params) -> Evaluation:
    """NCIS of the policies `theta` (leading axis K) on validation users: values without intervals, as training logs."""
    rows = dataset.known_rows("validation")
    taken = {str(k): one for k, one in enumerate(probabilities(dataset, policy, theta, rows))}
    shard = ncis.accumulate(Logged.from_dataset(dataset, rows), taken, options=ncis.Options(caps=()))
    returns = np.stack(list(ncis.values(shard).values()))
    unknown = np.full(len(returns), np.nan)
    return Evaluation(returns, unknown, unknown, unknown, "ncis")


def probabilities(dataset: LoggedDataset, policy: Policy, theta: Params, rows: Any) -> Float[np.ndarray, "K n"]:
    """π(a|s) of the logged actions of some rows, for each of K policies."""
    size = block_size(dataset)
    log_p = [joined(partial(_log_probs, policy, own, dataset.data), rows, size) for own in _seeds(theta)]
    return np.exp(np.stack(log_p).astype(np.float64))


@kept_for_few(1)
def _log_probs(policy: Policy, theta: Params, data: Data, rows: Any) -> Any:
    return jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, states.requests(data, rows), data.action[rows])


@dataclass(frozen=True, eq=False)
class _Summed:
    """Rows of a split, accumulated."""

    shard: Shard
    weights: Mapping[str, Mapping[str, Weighted]]  # by model of b, "own" or a recipe, and by policy
    without: Shard | None  # by b without past responses, where there is one


@dataclass(frozen=True, eq=False)
class _Policies:
    """Methods and Behavior-Clone on rows of a log, block by block: no table of all actions is whole in memory."""

    dataset: LoggedDataset  # whose behaviour model is Behavior-Clone
    methods: Mapping[str, Method]
    signals: Sequence[str]  # those that fire
    refitted: Mapping[Any, Any]  # the dataset with other models of b

    def accumulate(self, rows: Any, model: RewardModel | None, options: ncis.Options) -> _Summed:
        """Sums over rows of the log, and each policy's importance ratios on them."""
        seeds = 1 + sum(_num_seeds(theta) for _, theta in self.methods.values())
        size = max(block_size(self.dataset), _NUMBERS // (self.dataset.num_actions * seeds))
        blocks = [self._block(rows[k : k + size], model, options) for k in range(0, len(rows), size)]
        joined = {
            b: {name: _concatenated([block.weights[b][name] for block in blocks]) for name in weights}
            for b, weights in blocks[0].weights.items()
        }
        shard, others = ncis.total(b.shard for b in blocks), [b.without for b in blocks if b.without is not None]
        return _Summed(shard, joined, ncis.total(others) if others else None)

    def _block(self, rows: Any, model: Any, options: ncis.Options) -> _Summed:
        log = Logged.from_dataset(self.dataset, rows).signals(self.signals)
        log = replace(log, action=places(self.dataset, rows))
        seen = features(self.dataset, rows)
        baseline = self._baseline(log, seen)
        policies = {name: _tables(method, seen, self.dataset) for name, method in self.methods.items()}
        everyone = {BASELINE: [baseline]} | policies
        q = None if model is None else partial(model.of_choices, seen)
        shard, without = ncis.accumulate(log, everyone, q, options), None
        known = None if baseline.ndim == 1 else baseline
        weights = {"own": ncis.evidence_of(log, everyone, behaviour=known, options=options).weights}
        for recipe, each in self.refitted.items():
            b = each.behaviour.probabilities(each, rows)
            taken = replace(log, propensity=b[np.arange(len(b)), log.action])
            weights[recipe] = ncis.evidence_of(taken, everyone, behaviour=b, options=options).weights
            if recipe == "none":
                alone = {BASELINE: [taken.propensity]} | policies
                without = ncis.accumulate(taken, alone, None, replace(options, caps=()))
        return _Summed(shard, weights, without)

    def _baseline(self, log: Logged, seen: Any) -> Any:
        """Behavior-Clone, whose probabilities of what was logged are the propensities; of all actions where known."""
        model = self.dataset.behaviour
        if model is None:
            return log.propensity
        (table,) = _tables(model.method, seen, self.dataset)
        table[np.arange(len(table)), log.action] = log.propensity
        return table


def _concatenated(parts: Sequence[Weighted]) -> Weighted:
    masses = [part.mass for part in parts if part.mass is not None]
    ratio = np.concatenate([part.ratio for part in parts], axis=1)
    return Weighted(ratio, np.concatenate(masses, axis=1) if masses else None)


def _evidence(
    models: tuple[LoggedDataset, LoggedDataset | None], rows: Any, summed: _Summed, named: Any, cap: float
) -> Evidence:
    """What checks are made on: all rows, or the first users' of a long log; by b, and by b without half of the past."""
    dataset, half = models
    user, signals = dataset.user[rows], summed.shard.signal_names
    count = len(rows) if len(rows) <= _CHECKED else int(np.searchsorted(user, user[_CHECKED]))
    taken, log = rows[:count], Logged.from_dataset(dataset, rows[:count]).signals(signals)
    weights = {b: {name: each.rows(slice(count)) for name, each in own.items()} for b, own in summed.weights.items()}
    places = controls.covariates(dataset)
    columns = joined(lambda block: states.of_rows(dataset.data, block)[:, np.array([*places.values()], int)], taken)
    earlier, later = controls.of_rewards(dataset, taken, signals, weights.get("half"))
    known = np.flatnonzero(np.isfinite(earlier.values).all(axis=1))
    blind = {name: each.rows(known) for name, each in weights["own" if half is None else "half"].items()}
    moved = model_error.influence(half or dataset, taken[known], blind, earlier.values[known], cap)
    return Evidence(
        log,
        weights["own"],
        (replace(earlier, influence=moved), later, *(replace(each, values=each.values[:count]) for each in named)),
        dict(zip(places, columns.T, strict=True)) | controls.tenths_of_time(dataset, taken),
        model_error.influence(dataset, taken, weights["own"], log.reward, cap),
        model_error.strongest(dataset, taken),
    )


def _calibration(dataset: LoggedDataset, split: str, own: Mapping[str, Weighted]) -> behaviour.Calibration | None:
    """The calibration of the behaviour model, with the mean uncapped weight of each policy."""
    model = dataset.behaviour
    if not isinstance(model, BehaviourModel):
        return None
    mean_weight = {name: float(each.ratio.mean()) for name, each in own.items()}
    return replace(behaviour.calibration(model, dataset, split), mean_weight=mean_weight)


def features(source: LoggedDataset, rows: Any) -> Any:
    """What policies see of the rows: vectors [n, F], with candidates where requests bring them."""
    return joined(partial(states.requests, source.data), rows)


def _tables(method: Method, seen: Any, dataset: LoggedDataset) -> list[Float[np.ndarray, "n C"]]:
    """π(·|s) of each training seed."""
    policy, theta = method
    rows, size, K = np.arange(len(vectors(seen))), block_size(dataset), dataset.num_actions

    def table(own: Params, block: Any) -> Any:
        return _table(policy, K, own, jax.tree.map(lambda leaf: leaf[block], seen))

    tables = (joined(partial(table, own), rows, size) for own in _seeds(theta))
    return [table.astype(np.float64) for table in tables]


@kept_for_few(2)
def _table(policy: Policy, num_actions: int, theta: Params, x: Any) -> Any:
    return jnp.exp(log_probs(policy, theta, x, num_actions))


def _num_seeds(theta: Params) -> int:
    return len(jax.tree.leaves(theta)[0])


def _seeds(theta: Params) -> list[Params]:
    """θ of each training seed."""
    return [jax.tree.map(lambda leaf, k=k: jax.device_put(leaf[k]), theta) for k in range(_num_seeds(theta))]
