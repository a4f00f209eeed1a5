"""What a row is expected to earn: a ridge regression of the signals, for the doubly robust second opinion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.logs import splits, states
from moac.logs.dataset import LoggedDataset
from moac.offline.behaviour import in_blocks

_MAX_ROWS = 50_000
"""So many train rows are enough for the few hundred coefficients of a reward model; of more, as many are drawn."""
_PENALTIES, _FOLDS, _SEED = tuple(10.0**k for k in range(6)), 2, 0


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
    for place, x in in_blocks(partial(states.of_rows, dataset.data), rows):
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
