"""A behaviour model fitted on train users; when to stop, and the temperature, are chosen on validation users."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize_scalar

from moac.logs.dataset import LoggedDataset
from moac.offline.behaviour import kernels
from moac.offline.behaviour.model import BehaviourModel, Member, folds, identity
from moac.offline.behaviour.options import Options
from moac.policies.networks import Network, Plain, Weights

_STEPS = 200
"""Of a round, at most."""
_LAST_SCALE = 0.01
"""The network starts close to popularity, which is in its last biases."""
_TEMPERATURES = (0.1, 10.0)


def fit(dataset: LoggedDataset, options: Options | None = None) -> BehaviourModel:
    """A softmax of all train users, and for each fold one of the other folds' users.

    Args:
        dataset: with rows of train and of validation users; propensities that it has are not used.
        options: how.
    """
    options = options or Options()
    train, validation = _checked(dataset)
    network = Network(Plain(dataset.num_features), options.hidden, dataset.num_actions, _LAST_SCALE)
    fold = folds(dataset, options)[dataset.user[train]]
    parts = [train, *(train[fold != k] for k in range(options.folds))]
    for k, part in enumerate(parts):
        if not len(part) or (len(part) == len(train) and k):
            raise ValueError(f"`folds` must leave train users on both sides, got {options.folds} with an empty side.")
    members = (_member(network, dataset, (part, validation), options, k) for k, part in enumerate(parts))
    return BehaviourModel(network, tuple(members), options, identity(dataset))


def _checked(dataset: LoggedDataset) -> tuple[Any, Any]:
    """Rows of train and validation users."""
    if dataset.num_actions < 2:
        raise ValueError(f"{dataset.name} has one action only: there is no choice to model.")
    train, validation = dataset.rows("train"), dataset.rows("validation")
    for split, rows, need in (("train", train, "fitted"), ("validation", validation, "stopped and calibrated")):
        if not len(rows):
            raise ValueError(f"{dataset.name} has no rows of {split} users: a behaviour model is {need} on them.")
    return train, validation


def _member(network: Network, dataset: LoggedDataset, rows: tuple[Any, Any], options: Options, index: int) -> Member:
    """Rounds of Adam until validation users' log-loss has not fallen for a while; the best round's weights."""
    train, validation = rows
    rng, rates = np.random.default_rng([options.seed, index]), (options.step_size, options.weight_decay)
    state = _start(network, dataset, train, options, index)
    best, least, rounds = state[0], math.inf, 0
    size = (max(1, min(len(dataset.rows("train")) // options.batch_size, _STEPS)), options.batch_size)
    for done in range(options.max_rounds + 1):
        loss = _log_loss(network, state[0], dataset, validation)(1.0)
        if loss < least:
            best, least, rounds = state[0], loss, done
        if done - rounds >= options.patience or done == options.max_rounds:
            break
        batches = train[rng.integers(len(train), size=size)].astype(np.int32)
        state = kernels.descend(network, rates, state, dataset.data, batches)
    T, calibrated = temperature(_log_loss(network, best, dataset, validation), least)
    return Member(jax.tree.map(np.asarray, best), T, rounds, (least, calibrated))


def _start(network: Network, dataset: LoggedDataset, train: Any, options: Options, index: int) -> Any:
    """Small weights, whose last biases are log-popularity; and Adam's moments."""
    *others, last = network.init(jax.random.fold_in(jax.random.key(options.seed), index))
    count = np.bincount(dataset.action[train], minlength=dataset.num_actions) + 1
    weights = (*others, last.at[-1].set(np.log(count / count.sum())))
    return weights, kernels.optimiser_of((options.step_size, options.weight_decay)).init(weights)


def _log_loss(network: Network, weights: Weights, dataset: LoggedDataset, rows: Any) -> Callable[[float], float]:
    """Mean of −log b(a|s) over the rows, as a function of the temperature."""
    action = dataset.action[rows]

    def at(T: float) -> float:
        found = kernels.blocks(network, weights, T, dataset.data, rows)
        return -float(sum(kernels.taken(log_p, action[place]).sum() for place, log_p in found)) / len(rows)

    return at


def temperature(log_loss: Callable[[float], float], plain: float) -> tuple[float, float]:
    """T that minimises the log-loss, which is convex in 1/T; 1 where no other is better than `plain`, its log-loss."""
    low, high = (math.log(1 / T) for T in reversed(_TEMPERATURES))
    found = minimize_scalar(
        lambda x: log_loss(math.exp(-x)), bounds=(low, high), method="bounded", options={"xatol": 1e-3}
    )
    return (math.exp(-float(found.x)), float(found.fun)) if found.fun < plain else (1.0, plain)
