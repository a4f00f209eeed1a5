"""What the behaviour model's own error does to an estimate, and how much of the odds each covariate decides.

An estimate V depends on the last layer W of b. Were other train users drawn, W would move by H⁻¹ Σ_u s_u / n, with s_u
the score of user u's rows and H the curvature of the log-loss where fitting ended; V moves by ∇V of that. Each train
user's part in it is an influence, which draws of users turn into an interval. Earlier layers, and the chance in
training, are not in it. So influences are scaled up where b's two halves, fitted on one half of the train users each,
disagree by more than they say. Against full refits: `benchmarks/behaviour_error.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.compiling import kept_for_few
from moac.logs import states
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.offline.behaviour import BehaviourModel
from moac.offline.blocks import BLOCK, block_size, in_blocks, joined, places
from moac.offline.controls import places_in_state
from moac.offline.ncis import Weighted
from moac.offline.ncis.checks import varies
from moac.policies.networks import Weights
from moac.types import Request

_CURVED, _SCORED = 4096, 16_384
"""Train rows that the curvature, and the scores, are computed on; of more, as many are drawn."""
_LEAST_CURVED = 1024
"""Rows of the curvature where there are so many actions that fewer rows fill the memory."""
_SOLVE_STEPS = 40
_QUANTILE = 0.9
"""Of rows: how far a covariate moves their odds."""


def influence(
    dataset: LoggedDataset, rows: Any, weights: Mapping[str, Weighted], reward: Float[np.ndarray, "n M"], cap: float
) -> dict[str, Float[np.ndarray, "T M"]]:
    """What each train user moves each policy's values by, through b; empty where the log knows its propensities.

    `weights` are those of each policy on the rows of the estimate, by that model.
    """
    model = dataset.behaviour
    if not isinstance(model, BehaviourModel) or not len(rows):
        return {}
    layer = partial(_layer, model.policy, model.clone, dataset.data)
    rng = np.random.default_rng(0)
    train = _some(rng, dataset.rows("train"), _SCORED)
    size = block_size(dataset)
    H = _Curvature(dataset, layer, _some(rng, train, _num_curved(dataset)), model)
    users, index = np.unique(dataset.user[train], return_inverse=True)
    scale = math.sqrt(len(train) / len(dataset.rows("train"))) / len(train)  # a sample's spread, for all users

    def of_policy(each: Weighted) -> Any:
        w = np.minimum(cap, each.ratio)
        values = w @ reward / w.sum(axis=1, keepdims=True)
        moved = np.where(each.ratio < cap, w, 0.0) / w.sum(axis=1, keepdims=True)  # capped weights do not move with b
        c = -np.mean(moved[..., None] * (reward - values[:, None]), axis=0) * varies(reward)
        solved, sums = H.solve(_gradient(dataset, layer, rows, c)), np.zeros((len(users), reward.shape[1]))
        for place, (h, b) in in_blocks(layer, train, size):
            np.add.at(sums, index[place], np.asarray(_scores(h, b, dataset.action[train[place]], solved), np.float64))
        return scale * sums

    found = {name: of_policy(each) for name, each in weights.items() if not (each.ratio == 1).all()}
    factor = _disagreement(dataset, rows, weights, reward, cap, found)
    return {name: factor * each for name, each in found.items()}


def _disagreement(
    dataset: LoggedDataset,
    rows: Any,
    weights: Mapping[str, Weighted],
    reward: Any,
    cap: float,
    found: Mapping[str, Any],
) -> float:
    """How much more the models of the two halves of train users disagree than influences say; at least 1.

    Each half's value varies twice as much as that of all users, and their difference four times.
    """
    model: Any = dataset.behaviour
    if len(model.members) != 3 or dataset.propensity is None:
        return 1.0
    action, own, values = dataset.action[rows], dataset.propensity[rows], list[dict[str, Any]]()
    for member in model.members[1:]:
        weights_of = model.policy.tempered(member.weights, member.temperature)
        layer = partial(_layer, model.policy, weights_of, dataset.data)
        blocks = in_blocks(layer, rows, block_size(dataset))
        b = np.concatenate([both[1][np.arange(len(both[1])), action[place]] for place, both in blocks])
        w = {name: np.minimum(cap, weights[name].ratio * own / b) for name in found}
        values.append({name: (x @ reward / x.sum(axis=1, keepdims=True)).mean(axis=0) for name, x in w.items()})
    told = np.concatenate([(each**2).sum(axis=0) for each in found.values()]) if found else np.zeros(0)
    seen = np.concatenate([(values[0][name] - values[1][name]) ** 2 / 4 for name in found]) if found else told
    return math.sqrt(max(1.0, float(np.mean(seen[told > 0] / told[told > 0])))) if (told > 0).any() else 1.0


def _num_curved(dataset: LoggedDataset) -> int:
    return max(_CURVED * block_size(dataset) // BLOCK, _LEAST_CURVED)


def _some(rng: np.random.Generator, rows: Any, most: int) -> Any:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _gradient(dataset: LoggedDataset, layer: Any, rows: Any, c: Any) -> Float[np.ndarray, "M P K"]:
    """Σ_i c_im h_i (e_a − b_i)ᵀ: the derivative of each value by the last layer."""
    total: Any = 0.0
    for place, (h, b) in in_blocks(layer, rows, block_size(dataset)):
        signal = _signal(dataset.action[rows[place]], b)
        total = total + np.asarray(_outer(c[place].astype(np.float32), h, signal), np.float64)
    return total


def _signal(action: Any, b: Any) -> Float[np.ndarray, "n K"]:
    """e_a − b."""
    signal = -b
    signal[np.arange(len(b)), action] += 1
    return signal


class _Curvature:
    """H v of the mean log-loss on some train rows, with what weight decay adds."""

    def __init__(self, dataset: LoggedDataset, layer: Any, rows: Any, model: BehaviourModel) -> None:
        self.h, self.b = joined(layer, rows, block_size(dataset))
        signal = _signal(dataset.action[rows], self.b)
        # Adam with decoupled decay c rests where the gradient is −c √v W, v the second moment of a batch's gradient:
        # as if c √v were the penalty of each weight.
        squares = (self.h**2).T @ signal**2 / len(rows)
        self.penalty = (model.options.weight_decay * np.sqrt(squares / model.options.batch_size)).astype(np.float32)

    def solve(self, right: Float[np.ndarray, "M P K"]) -> Any:
        """H⁻¹ of each, by conjugate gradients."""
        scale = np.maximum(np.abs(right).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
        return _solve(self.h, self.b, self.penalty, (right / scale).astype(np.float32)) * scale.astype(np.float32)


@kept_for_few(1)
def _layer(policy: Any, weights: Weights, data: Data, rows: Any) -> tuple[Any, Any]:
    """The last layer's inputs, and b of all actions."""
    return policy.last_layer(weights, states.requests(data, rows))


@kept_for_few()
def _outer(c: Any, h: Any, signal: Any) -> Any:
    return jax.vmap(lambda own: (own[:, None] * h).T @ signal, in_axes=1)(c)


@kept_for_few()
def _scores(h: Any, b: Any, action: Any, solved: Any) -> Any:
    """⟨solved_m, h (e_a − b)ᵀ⟩ of each row."""

    def of(x: Any) -> Any:
        out = h @ x
        return jnp.take_along_axis(out, action[:, None], axis=1)[:, 0] - (out * b).sum(axis=1)

    return jax.vmap(of, out_axes=1)(solved)


@kept_for_few()
def _solve(h: Any, b: Any, penalty: Any, right: Any) -> Any:
    def curve(v: Any) -> Any:
        out = h @ v
        out = b * (out - (b * out).sum(axis=1, keepdims=True))
        return h.T @ out / len(h) + penalty * v

    return jax.vmap(lambda one: jax.scipy.sparse.linalg.cg(curve, one, tol=1e-4, maxiter=_SOLVE_STEPS)[0])(right)


def strongest(dataset: LoggedDataset, rows: Any) -> tuple[str, float] | None:
    """The covariate without which b's odds of what was shown would move most, and the factor for nine rows in ten.

    Without it means with its mean over the rows in its place. None where the log knows its propensities.
    """
    model = dataset.behaviour
    if not isinstance(model, BehaviourModel):
        return None
    some = _some(np.random.default_rng(0), np.asarray(rows), _num_curved(dataset))
    x = joined(partial(states.of_rows, dataset.data), some)
    clone, taken_at = tuple(map(jnp.asarray, model.clone)), places(dataset, some)
    lists = None if dataset.lists is None else dataset.lists.padded(np.asarray(dataset.candidates)[some])

    def log_odds(x: Any) -> Any:
        seen = jnp.asarray(x) if lists is None else Request(jnp.asarray(x), jnp.asarray(lists))
        b = np.asarray(jax.nn.softmax(model.policy.logits(clone, seen)), np.float64)
        taken = b[np.arange(len(b)), taken_at]
        return np.log(taken) - np.log1p(-np.minimum(taken, 1 - 1e-12))

    def factor(place: slice) -> float:
        without = x.copy()
        without[:, place] = x[:, place].mean(axis=0)
        return float(np.exp(np.quantile(np.abs(log_odds(without) - whole), _QUANTILE)))

    whole = log_odds(x)
    factors = {name: factor(place) for name, place in places_in_state(dataset).items() if place.stop > place.start}
    return max(factors.items(), key=lambda item: item[1]) if factors else None
