"""A simple model of what actions earn, for a second opinion: ridge regression on the state and the action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.logs import splits
from moac.logs.dataset import LoggedDataset

MAX_ROWS = 50_000
"""So many train rows are enough for a few hundred coefficients; of more, as many are drawn."""
PENALTIES = tuple(10.0**k for k in range(6))
"""Among which each signal's own is chosen."""
_BLOCK, _FOLDS, _SEED = 2048, 2, 0


@final
@dataclass(frozen=True, eq=False)
class RewardModel:
    """q_i(s, a) = m_i + x(s)ᵀ β_i + γ_{a,i}: what a row is expected to earn.

    Attributes:
        signal_names: M of them.
        mean: [M] m, of train rows.
        state: [F, M] β.
        action: [K, M] γ.
        penalty: [M] chosen on users that the fit had not seen.
        explained: [M] share of the reward's variance that it explains on such users; below 0 is worse than the mean.
    """

    signal_names: tuple[str, ...]
    mean: Float[np.ndarray, " M"]
    state: Float[np.ndarray, "F M"]
    action: Float[np.ndarray, "K M"]
    penalty: Float[np.ndarray, " M"]
    explained: Float[np.ndarray, " M"]

    def values(self, x: Any) -> Float[np.ndarray, "n K M"]:
        """q of all actions, for features x [n, F]."""
        return (self.mean + np.asarray(x, np.float64) @ self.state)[:, None] + self.action

    def as_dict(self) -> dict[str, Any]:
        """What a card says of it."""
        numbers = zip(self.signal_names, self.penalty.tolist(), self.explained.tolist(), strict=True)
        return {name: {"penalty": penalty, "explained": explained} for name, penalty, explained in numbers}


def fit(dataset: LoggedDataset, signals: Sequence[str]) -> RewardModel:
    """On train users' rows alone; the penalty of each signal by two folds of these users.

    β, γ = argmin Σ (r − m − xᵀβ − γ_a)² + penalty (‖β‖² + ‖γ‖²),  from sums over rows, in one pass.
    """
    columns = [dataset.signal_names.index(name) for name in signals]
    rows = dataset.rows("train")
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(_SEED).choice(rows, MAX_ROWS, replace=False))
    fold = splits.folds(dataset.user_ids, _SEED, _FOLDS)[dataset.user[rows]]
    reward = np.asarray(dataset.reward[rows][:, columns], np.float64)
    mean = reward.mean(axis=0)
    parts = [_sums(dataset, rows[fold == k], reward[fold == k] - mean) for k in range(_FOLDS)]
    losses = np.sum([_held_out(parts[1 - k], parts[k]) for k in range(_FOLDS)], axis=0)
    penalty = np.array(PENALTIES)[losses.argmin(axis=0)]
    gram, moment, square = (np.sum(column, axis=0) for column in zip(*parts, strict=True))
    found = np.stack([_solved(gram, moment[:, [i]], c)[:, 0] for i, c in enumerate(penalty)], axis=1)
    explained = 1 - losses.min(axis=0) / np.maximum(square, np.finfo(float).tiny)
    state, action = np.split(found, [dataset.num_features])
    return RewardModel(tuple(signals), mean, state, action, penalty, explained)


def _sums(dataset: LoggedDataset, rows: Any, reward: Any) -> tuple[Any, Any, Any]:
    """Σ z zᵀ, Σ z r and Σ r² over rows, z = (x(s), one-hot a)."""
    size = dataset.num_features + dataset.num_actions
    gram, moment = np.zeros((size, size)), np.zeros((size, reward.shape[1]))
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        x = dataset.features(dataset.observation(np.resize(block, _BLOCK)))
        one_hot = np.eye(dataset.num_actions, dtype=np.float32)[dataset.action[block]]
        z = np.concatenate([np.asarray(x)[: len(block)], one_hot], axis=1)
        gram += np.asarray(jnp.asarray(z).T @ jnp.asarray(z), np.float64)
        moment += z.T.astype(np.float64) @ reward[begin : begin + _BLOCK]
    return gram, moment, (reward**2).sum(axis=0)


def _held_out(fitted: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> Float[np.ndarray, "P M"]:
    """Squared error on the other fold under each penalty: Σ r² − 2 βᵀ Σ z r + βᵀ (Σ z zᵀ) β."""
    gram, moment, square = other
    betas = [_solved(fitted[0], fitted[1], penalty) for penalty in PENALTIES]
    return np.stack([square - 2 * (b * moment).sum(axis=0) + (b * (gram @ b)).sum(axis=0) for b in betas])


def _solved(gram: Any, moment: Any, penalty: float) -> Any:
    return np.linalg.solve(gram + penalty * np.eye(len(gram)), moment)
