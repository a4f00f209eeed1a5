"""Users of a log in place of episodes: the gradients of the off-policy objective that training on a log follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from moac import beyond
from moac.logs import states
from moac.theory.episodes import Baseline, Episodes, powers
from moac.training.trained import TrainedPolicy

SPLIT = "validation"
"""Users that training has not seen: the policy does not depend on them."""
_RIDGE, _SHOWN = 1.0, 2000


def users(dataset: Any) -> Int[np.ndarray, " U"]:
    """Those whose rows are used."""
    return np.unique(dataset.user[dataset.rows(SPLIT)])


def sampler(dataset: Any, trained: TrainedPolicy, cap: float, seed: int) -> Callable[[int, int], Episodes]:
    """(first, count) ↦ users in random order, each with its rows: E x = E min{C, π/π_b} (rⁱ + γⁱ V(s') − V(s)) ψ."""
    rows = dataset.rows(SPLIT)
    known = users(dataset)
    order, mean = np.random.default_rng(seed).permutation(known), len(rows) / len(known)

    def sample(first: int, count: int) -> Episodes:
        place = np.full(dataset.num_users, -1)
        place[order[first : first + count]] = np.arange(count)
        number = place[dataset.user[rows]]
        picked = np.argsort(number, kind="stable")[(number < 0).sum() :]
        batch = states.with_features(dataset.data, states.transitions(dataset.data, jnp.asarray(rows[picked])))
        batch = beyond.with_ratios(trained.policy, cap, trained.trial_theta, batch)
        x, action, reward, after, ended, ratio = jax.tree.map(
            np.asarray,
            (batch.observation, batch.action, batch.reward, batch.next_observation, batch.terminated, batch.weight),
        )
        weight = np.repeat(ratio[:, None].astype(np.float64) / mean, reward.shape[1], axis=1)
        rarest = float(softmax(trained.logits(x[:_SHOWN]), axis=1).min())
        return Episodes(x, action, reward, weight, after, ended, number[picked], count, rarest, 0.0, summed=False)

    return sample


def values(episodes: Episodes, gamma: tuple[float, ...]) -> Baseline:
    """V by least-squares temporal differences with importance ratios (Bradtke and Barto, 1996)."""
    phi, after = powers(episodes.observation), powers(episodes.successor)
    after = np.where(episodes.ended[:, None], 0.0, after)
    table = [_solved(phi, after, episodes, i, discount) for i, discount in enumerate(gamma)]
    return Baseline(np.zeros(len(gamma)), np.stack(table, axis=1))


def _solved(phi: Any, after: Any, episodes: Episodes, i: int, discount: float) -> Float[np.ndarray, " d"]:
    weighted = phi * (episodes.weight[:, i, None] / episodes.weight[:, i].mean())
    A = weighted.T @ (phi - discount * after) + _RIDGE * np.eye(phi.shape[1])
    return np.linalg.solve(A, weighted.T @ episodes.reward[:, i])
