"""Evaluate trained policies on a log beside Behavior-Clone: importance weights, second opinions and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.logs import folder, splits, states
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.offline import behaviour, evaluation, ncis
from moac.offline.behaviour import BLOCK, BehaviourModel, in_blocks
from moac.offline.evaluation import BASELINE, Method, OfflineEvaluation
from moac.offline.ncis import Logged, Shard
from moac.policies import SoftmaxMLP, log_probs
from moac.types import Evaluation, Params, Policy

_NUMBERS = 1 << 24
"""Probabilities that are in memory at once."""
_MAX_ROWS = 50_000
"""So many train rows are enough for the few hundred coefficients of a reward model; of more, as many are drawn."""
_PENALTIES, _FOLDS, _SEED = tuple(10.0**k for k in range(6)), 2, 0


def evaluate(  # noqa: PLR0913 - what is noted of an access to test users
    dataset: LoggedDataset,
    methods: Mapping[str, Method],
    split: str = "validation",
    options: ncis.Options | None = None,
    *,
    run: Path | None = None,
    about: Mapping[str, Any] | None = None,
    accesses: evaluation.AccessLog | None = None,
) -> OfflineEvaluation:
    """What the methods are worth on a split's users, beside Behavior-Clone, and how far to trust it.

    Values by normalised capped importance sampling; SNIPS, and doubly robust where a behaviour model is known, as
    second opinions; a check against random exposure where there is any. A signal that never fires in the split is left
    out. An access to test users is recorded before any number is computed.

    Args:
        dataset: with propensities, known or from `with_behaviour`.
        methods: by name, a policy and its parameters θ; θ's leading axis are the training seeds of one method.
        split: whose users. A choice made by test users' numbers spoils them.
        options: of the estimate.
        run: folder whose access log notes an access to test users, beside that of the data.
        about: what that entry says beside the options.
        accesses: of an evaluation of the same on the same users, whose access is recorded.
    """
    _check(dataset, methods, split)
    rows, chosen, digests = dataset.rows(split), options or ncis.Options(), evaluation.fingerprints(methods)
    noted = asdict(chosen) | dict(about or {})
    accesses = accesses or (evaluation.record_access(run, dataset, noted, digests) if split == "test" else None)
    fires = (dataset.reward[rows] != 0).any(axis=0)
    kept = [name for name, ever in zip(dataset.signal_names, fires, strict=True) if ever]
    model = None if dataset.behaviour is None else fit_rewards(dataset, kept)
    policies = _Policies(dataset, methods, kept)
    shard, ratios = policies.accumulate(dataset, rows, model, chosen)
    random = _random_exposure(policies, split, chosen)
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
        report=ncis.analyse(shard, baseline=BASELINE, random=random, options=chosen),
        left_out=tuple(name for name in dataset.signal_names if name not in kept),
        calibration=_calibration(dataset, split, ratios),
        reward_model=None if model is None else model.as_dict(),
        random_rows=0 if random is None else int(random.first.count.sum()),
        weights=evaluation.WeightHistogram.of(ratios),
        accesses=accesses,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _check(dataset: LoggedDataset, methods: Mapping[str, Method], split: str) -> None:
    """Refuse what cannot be evaluated, without looking at what any policy is worth."""
    rows, K = dataset.rows(split), dataset.num_actions
    users = len(np.unique(dataset.user[rows]))
    if users < 2:
        raise ValueError(f"{dataset.name} has {users} {split} users: an interval over users needs at least two.")
    if not methods or BASELINE in methods:
        raise ValueError(f"`methods` must name at least one policy, and none {BASELINE}, got {list(methods)}.")
    outside = np.flatnonzero((dataset.action < 0) | (dataset.action >= K))
    if len(outside):
        first = f"{dataset.action[outside[0]]} in row {outside[0]}"
        raise ValueError(f"`action` of {dataset.name} must be in [0, {K}), one of its actions, got {first}.")
    for name, (policy, _) in methods.items():
        actions: Any = getattr(policy, "num_actions", K)
        if actions != K:
            raise ValueError(f"policy {name!r} has {actions} actions, {dataset.name} has {K}: it is of other data.")
    if not Logged.from_dataset(dataset, rows).reward.any():
        raise ValueError(f"no signal of {dataset.name} ever fires among {split} users: nothing can be evaluated.")


@lru_cache(maxsize=16)
def with_estimator(dataset: LoggedDataset) -> LoggedDataset:
    """The dataset, able to evaluate policies in training; the same object each time, as compiled programs ask for."""
    return dataset if dataset.estimator is estimate else replace(dataset, estimator=estimate)


def estimate(dataset: LoggedDataset, policy: Policy, theta: Params, split: str = "validation") -> Evaluation:
    """NCIS of the policies `theta` (leading axis K) on a split's users: values without intervals, as training logs."""
    rows = dataset.rows(split)
    if not len(rows):
        raise ValueError(f"{dataset.name} has no rows of {split} users: a policy's worth is estimated on them.")
    taken = {str(k): one for k, one in enumerate(probabilities(dataset, policy, theta, rows))}
    shard = ncis.accumulate(Logged.from_dataset(dataset, rows), taken, options=ncis.Options(caps=()))
    returns = np.stack(list(ncis.values(shard).values()))
    unknown = np.full(len(returns), np.nan)
    return Evaluation(returns, unknown, unknown, unknown, "ncis")


def probabilities(dataset: LoggedDataset, policy: Policy, theta: Params, rows: Any) -> Float[np.ndarray, "K n"]:
    """π(a|s) of the logged actions of some rows, for each of K policies."""
    log_p = [_joined(partial(_log_probs, policy, own, dataset.data), rows) for own in _seeds(theta)]
    return np.exp(np.stack(log_p).astype(np.float64))


def _joined(function: Any, rows: Any) -> Any:
    """function(rows), computed in blocks."""
    return np.concatenate([block for _, block in in_blocks(function, rows)])


@partial(jax.jit, static_argnames="policy")
def _log_probs(policy: Policy, theta: Params, data: Data, rows: Any) -> Any:
    return jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, _features(data, rows), data.action[rows])


@dataclass(frozen=True, eq=False)
class _Policies:
    """Methods and Behavior-Clone on rows of a log, block by block: no table of all actions is whole in memory."""

    dataset: LoggedDataset  # whose behaviour model is Behavior-Clone
    methods: Mapping[str, Method]
    signals: Sequence[str]  # those that fire

    def accumulate(
        self, source: LoggedDataset, rows: Any, model: RewardModel | None, options: ncis.Options
    ) -> tuple[Shard, dict[str, Float[np.ndarray, "K n"]]]:
        """Sums over rows of the log or of its random exposure, and each policy's importance ratio π/π_b on them."""
        seeds = 1 + sum(_num_seeds(theta) for _, theta in self.methods.values())
        size = max(BLOCK, _NUMBERS // (self.dataset.num_actions * seeds))
        blocks = [self._block(source, rows[k : k + size], model, options) for k in range(0, len(rows), size)]
        ratios = {name: np.concatenate([block[1][name] for block in blocks], axis=1) for name in blocks[0][1]}
        return ncis.total(shard for shard, _ in blocks), ratios

    def _block(self, source: LoggedDataset, rows: Any, model: Any, options: ncis.Options) -> tuple[Shard, Any]:
        log = Logged.from_dataset(source, rows).signals(self.signals)
        x = features(source, rows)
        policies = self._baseline(source, log, x)
        policies |= {name: _tables(method, x, self.dataset.num_actions) for name, method in self.methods.items()}
        q = None if model is None else lambda chosen: model.values(x[chosen])
        ratios = {name: np.stack([log.importance_ratio(name, p) for p in seeds]) for name, seeds in policies.items()}
        return ncis.accumulate(log, policies, q, options), ratios

    def _baseline(self, source: LoggedDataset, log: Logged, x: Any) -> dict[str, list[Any]]:
        """Behavior-Clone; on the log's own rows its probabilities of what was logged are the propensities."""
        model = self.dataset.behaviour
        if model is None:  # on random exposure it is known as a model only
            return {BASELINE: [log.propensity]} if source is self.dataset else {}
        policy = SoftmaxMLP(model.network.inputs, model.network.hidden, model.network.outputs)
        (table,) = _tables((policy, tuple(W[None] for W in model.clone)), x, model.network.outputs)
        if source is self.dataset:
            table[np.arange(len(table)), log.action] = log.propensity
        return {BASELINE: [table]}


def _random_exposure(policies: _Policies, split: str, options: ncis.Options) -> Shard | None:
    """Sums over rows of random exposure of at least two of the split's users."""
    source = policies.dataset.random
    if source is None or source.propensity is None or len(np.unique(source.user[source.rows(split)])) < 2:
        return None
    return policies.accumulate(source, source.rows(split), None, ncis.uncapped(options))[0]


def _calibration(dataset: LoggedDataset, split: str, ratios: Mapping[str, Any]) -> behaviour.Calibration | None:
    """The calibration of the behaviour model, with the mean uncapped weight of each policy."""
    model = dataset.behaviour
    if not isinstance(model, BehaviourModel):
        return None
    mean_weight = {name: float(each.mean()) for name, each in ratios.items()}
    return replace(behaviour.calibration(model, dataset, split), mean_weight=mean_weight)


def features(source: LoggedDataset, rows: Any) -> Float[np.ndarray, "n F"]:
    """What policies see of the rows."""
    return _joined(partial(_features, source.data), rows)


@jax.jit
def _features(data: Data, rows: Any) -> Any:
    return states.features(data.tables, states.observation(data, rows))


def _tables(method: Method, x: Float[np.ndarray, "n F"], num_actions: int) -> list[Float[np.ndarray, "n K"]]:
    """π(·|s) of each training seed."""
    policy, theta = method
    rows = np.arange(len(x))
    tables = (_joined(lambda i, own=own: _table(policy, own, x[i], num_actions), rows) for own in _seeds(theta))
    return [table.astype(np.float64) for table in tables]


@partial(jax.jit, static_argnames=("policy", "num_actions"))
def _table(policy: Policy, theta: Params, x: Any, num_actions: int) -> Any:
    return jnp.exp(log_probs(policy, theta, x, num_actions))


def _num_seeds(theta: Params) -> int:
    return len(jax.tree.leaves(theta)[0])


def _seeds(theta: Params) -> list[Params]:
    """θ of each training seed."""
    return [jax.tree.map(lambda leaf, k=k: jnp.asarray(leaf[k]), theta) for k in range(_num_seeds(theta))]


@dataclass(frozen=True, eq=False)
class RewardModel:
    """q_i(s, a) = m_i + x(s)ᵀ β_i + γ_{a,i}: what a row is expected to earn, for the doubly robust second opinion."""

    signal_names: tuple[str, ...]
    mean: Float[np.ndarray, " M"]  # m, of train rows
    state: Float[np.ndarray, "F M"]  # β
    action: Float[np.ndarray, "K M"]  # γ
    penalty: Float[np.ndarray, " M"]  # chosen on users that the fit had not seen
    explained: Float[np.ndarray, " M"]  # share of the variance explained on such users; below 0 is worse than the mean

    def values(self, x: Any) -> Float[np.ndarray, "n K M"]:
        """q of all actions, for features x [n, F]."""
        return (self.mean + np.asarray(x, np.float64) @ self.state)[:, None] + self.action

    def as_dict(self) -> dict[str, Any]:
        """What a card says of it."""
        numbers = zip(self.penalty.tolist(), self.explained.tolist(), strict=True)
        each = ({"penalty": penalty, "explained": explained} for penalty, explained in numbers)
        return dict(zip(self.signal_names, each, strict=True))


def fit_rewards(dataset: LoggedDataset, signals: Sequence[str]) -> RewardModel:
    """Ridge regression on train users' rows alone; the penalty of each signal by two folds of these users.

    β, γ = argmin Σ (r − m − xᵀβ − γ_a)² + penalty (‖β‖² + ‖γ‖²),  from sums over rows, in one pass.
    """
    columns, rows = [dataset.signal_names.index(name) for name in signals], dataset.rows("train")
    if len(rows) > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(_SEED).choice(rows, _MAX_ROWS, replace=False))
    fold = splits.fold_users(dataset.user_ids, _SEED, _FOLDS)[dataset.user[rows]]
    reward = np.asarray(dataset.reward[rows][:, columns], np.float64)
    mean = reward.mean(axis=0)
    parts = [_moments(dataset, rows[fold == k], reward[fold == k] - mean) for k in range(_FOLDS)]
    losses = np.sum([_held_out(parts[1 - k], parts[k]) for k in range(_FOLDS)], axis=0)
    penalty = np.array(_PENALTIES)[losses.argmin(axis=0)]
    gram, moment, square = (np.sum(column, axis=0) for column in zip(*parts, strict=True))
    coefficients = np.stack([_ridge(gram, moment[:, [i]], c)[:, 0] for i, c in enumerate(penalty)], axis=1)
    explained = 1 - losses.min(axis=0) / np.maximum(square, np.finfo(float).tiny)
    state, action = np.split(coefficients, [dataset.num_features])
    return RewardModel(tuple(signals), mean, state, action, penalty, explained)


def _moments(dataset: LoggedDataset, rows: Any, reward: Any) -> tuple[Any, Any, Any]:
    """Σ z zᵀ, Σ z r and Σ r² over rows, z = (x(s), one-hot a)."""
    size = dataset.num_features + dataset.num_actions
    gram, moment = np.zeros((size, size)), np.zeros((size, reward.shape[1]))
    for place, x in in_blocks(partial(_features, dataset.data), rows):
        one_hot = np.eye(dataset.num_actions, dtype=np.float32)[dataset.action[rows[place]]]
        z = np.concatenate([x, one_hot], axis=1)
        gram += np.asarray(jnp.asarray(z).T @ jnp.asarray(z), np.float64)
        moment += z.T.astype(np.float64) @ reward[place]
    return gram, moment, (reward**2).sum(axis=0)


def _held_out(fitted: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> Float[np.ndarray, "P M"]:
    """Squared error on the other fold under each penalty: Σ r² − 2 βᵀ Σ z r + βᵀ (Σ z zᵀ) β."""
    gram, moment, square = other
    betas = [_ridge(fitted[0], fitted[1], penalty) for penalty in _PENALTIES]
    return np.stack([square - 2 * (b * moment).sum(axis=0) + (b * (gram @ b)).sum(axis=0) for b in betas])


def _ridge(gram: Any, moment: Any, penalty: float) -> Any:
    return np.linalg.solve(gram + penalty * np.eye(len(gram)), moment)
