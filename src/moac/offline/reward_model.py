"""What a row is expected to earn: ridge regressions of the signals, for the doubly robust second opinion and a tilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.logs import splits, states
from moac.logs.dataset import LoggedDataset
from moac.offline.blocks import in_blocks
from moac.types import Request, vectors

_MAX_ROWS = 50_000
"""So many train rows are enough for the few hundred coefficients of a reward model; of more, as many are drawn."""
_PENALTIES, _FOLDS, _SEED = tuple(10.0**k for k in range(6)), 2, 0


@dataclass(frozen=True, eq=False)
class RewardModel:
    """q_i(s, a) = m_i + x(s)ᵀ β_i + γ_{a,i} + t(s)ᵀ B_i v_a: what a row is expected to earn.

    t(s) are the last numbers of x(s), those of taste, and v_a the features of an item, standardised over items. Where
    states hold no taste, or it does not help to predict a signal, B_i = 0.
    """

    signal_names: tuple[str, ...]
    mean: Float[np.ndarray, " M"]  # m, of train rows
    state: Float[np.ndarray, "F M"]  # β
    action: Float[np.ndarray, "K M"]  # γ
    penalty: Float[np.ndarray, " M"]  # chosen on users that the fit had not seen
    explained: Float[np.ndarray, " M"]  # share of the variance explained on such users; below 0 is worse than the mean
    taste: Float[np.ndarray, "T e M"]  # B; T = 0 without taste
    items: Float[np.ndarray, "K e"]  # v
    personal: Float[np.ndarray, " M"]  # share of what is left of the variance that B explains on such users, or 0

    def values(self, x: Any) -> Float[np.ndarray, "n K M"]:
        """q of all actions, for features x [n, F]."""
        additive = (self.mean + np.asarray(x, np.float64) @ self.state)[:, None] + self.action
        T = len(self.taste)
        if not T:
            return additive
        return additive + np.einsum("nt,tem,ke->nkm", np.asarray(x)[:, -T:], self.taste, self.items, optimize=True)

    def of_choices(self, seen: Any, chosen: Any) -> Float[np.ndarray, "n C M"]:
        """q of all that can be chosen, for some of the rows that policies see as `seen`."""
        q = self.values(vectors(seen)[chosen])
        if not isinstance(seen, Request):
            return q
        return np.take_along_axis(q, np.maximum(seen.candidates[chosen], 0)[..., None], axis=1)

    def as_dict(self) -> dict[str, Any]:
        """What a card says of it."""
        names = ("penalty", "explained", *(["personal"] if len(self.taste) else []))
        columns = zip(*(getattr(self, name).tolist() for name in names), strict=True)
        each = (dict(zip(names, numbers, strict=True)) for numbers in columns)
        return dict(zip(self.signal_names, each, strict=True))


def fit_rewards(dataset: LoggedDataset, signals: Sequence[str]) -> RewardModel:
    """Ridge regressions on train users' rows alone; the penalty of each signal by two folds of these users.

    β, γ = argmin Σ (r − m − xᵀβ − γ_a)² + penalty (‖β‖² + ‖γ‖²),  from sums over rows, in one pass; then B in the same
    way from what is left, kept for a signal only where the fold that it has not seen is predicted better with it.
    """
    columns, rows = [dataset.signal_names.index(name) for name in signals], dataset.rows("train")
    if len(rows) > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(_SEED).choice(rows, _MAX_ROWS, replace=False))
    reward = np.asarray(dataset.reward[rows][:, columns], np.float64)
    mean, M = reward.mean(axis=0), len(columns)
    v = np.asarray(states.numbers(dataset.tables.items[dataset.action_items]), np.float64)
    items = (v - v.mean(axis=0)) / np.where(v.std(axis=0) > 0, v.std(axis=0), 1)
    fitted = _fitted(dataset, rows, reward - mean, lambda x, action: x, dataset.num_actions)
    state, action = np.split(fitted.coefficients, [dataset.num_features])
    T = states.widths(dataset.tables, len(dataset.response_scale))[-1]
    about = (tuple(signals), mean, state, action, fitted.penalty, fitted.explained)
    if not T:
        return RewardModel(*about, np.zeros((0, items.shape[1], M)), items, np.zeros(M))

    def products(x: Any, action: Any) -> Any:
        return (x[:, -T:, None] * items[action][:, None]).reshape(len(x), -1).astype(np.float32)

    more = _fitted(dataset, rows, reward - mean - fitted.predicted, products)
    personal = np.maximum(more.explained, 0.0)
    taste = (more.coefficients * (personal > 0)).reshape(T, -1, M)
    return RewardModel(*about, taste, items, personal)


class _Fitted(NamedTuple):
    """A ridge regression."""

    coefficients: Float[np.ndarray, "P M"]
    penalty: Float[np.ndarray, " M"]
    explained: Float[np.ndarray, " M"]  # of the target's squares, on the fold that was not seen
    predicted: Float[np.ndarray, "n M"]


def _fitted(
    dataset: LoggedDataset, rows: Any, target: Any, design: Callable[[Any, Any], Any], groups: int = 0
) -> _Fitted:
    """Regress on z = design(x(s), a), with the penalty that two folds of users choose.

    With `groups` = K each action has a coefficient of its own beside those of z.
    """
    fold = splits.fold_users(dataset.user_ids, _SEED, _FOLDS)[dataset.user[rows]]

    def blocks(chosen: Any) -> Iterator[tuple[slice, Any, Any]]:
        for place, x in in_blocks(partial(states.of_rows, dataset.data), chosen):
            action = dataset.action[chosen[place]]
            yield place, design(x, action), action

    size = design(np.zeros((1, dataset.num_features), np.float32), np.zeros(1, int)).shape[1]
    empty = _Moments.empty(size, groups, target.shape[1])
    parts = [empty.plus(blocks(rows[fold == k]), target[fold == k]) for k in range(_FOLDS)]
    held_out = [[parts[k].loss(*parts[1 - k].ridge(penalty)) for penalty in _PENALTIES] for k in range(_FOLDS)]
    losses = np.sum(held_out, axis=0)
    penalty = np.array(_PENALTIES)[losses.argmin(axis=0)]
    whole = _Moments(*(np.add(*each) for each in zip(*parts, strict=True)))
    solved = {c: np.concatenate(whole.ridge(c)) for c in set(penalty)}
    coefficients = np.stack([solved[c][:, i] for i, c in enumerate(penalty)], axis=1)
    explained = 1 - losses.min(axis=0) / np.maximum(whole.square, np.finfo(float).tiny)
    beta, gamma = np.split(coefficients, [len(whole.dense)])
    predicted = [z @ beta + (gamma[action] if groups else 0) for _, z, action in blocks(rows)]
    return _Fitted(coefficients, penalty, explained, np.concatenate(predicted))


class _Moments(NamedTuple):
    """Sums over rows of products of z, the one-hot e_a, and the target r; of e_a with itself these are counts."""

    dense: Float[np.ndarray, "P P"]  # Σ z zᵀ
    both: Float[np.ndarray, "K P"]  # Σ e_a zᵀ
    rows: Float[np.ndarray, " K"]  # of each action
    dense_target: Float[np.ndarray, "P M"]  # Σ z r
    target: Float[np.ndarray, "K M"]  # Σ e_a r
    square: Float[np.ndarray, " M"]  # Σ r²

    @staticmethod
    def empty(P: int, K: int, M: int) -> _Moments:
        """Of no rows."""
        return _Moments(*map(np.zeros, ((P, P), (K, P), (K,), (P, M), (K, M), (M,))))

    def plus(self, blocks: Iterator[tuple[slice, Any, Any]], target: Any) -> _Moments:
        """With some rows more, in one pass."""
        dense, both, count, dense_target, totals, square = map(np.copy, self)
        for place, z, action in blocks:
            dense += np.asarray(jnp.asarray(z).T @ jnp.asarray(z), np.float64)
            dense_target += z.T.astype(np.float64) @ target[place]
            if len(count):
                np.add.at(both, action, z)
                np.add.at(totals, action, target[place])
                count += np.bincount(action, minlength=len(count))
        return _Moments(dense, both, count, dense_target, totals, square + (target**2).sum(axis=0))

    def ridge(self, penalty: float) -> tuple[Any, Any]:
        """β [P, M] and γ [K, M]; γ is eliminated first, since its own block of the matrix is diagonal."""
        share = (1 / (self.rows + penalty))[:, None]
        inner = self.dense + penalty * np.eye(len(self.dense)) - self.both.T @ (share * self.both)
        beta = np.linalg.solve(inner, self.dense_target - self.both.T @ (share * self.target))
        return beta, share * (self.target - self.both @ beta)

    def loss(self, beta: Any, gamma: Any) -> Float[np.ndarray, " M"]:
        """Σ (r − zᵀβ − γ_a)² over the rows."""
        linear = (beta * self.dense_target).sum(axis=0) + (gamma * self.target).sum(axis=0)
        square = (beta * (self.dense @ beta)).sum(axis=0) + (self.rows[:, None] * gamma**2).sum(axis=0)
        return self.square - 2 * linear + square + 2 * (gamma * (self.both @ beta)).sum(axis=0)
