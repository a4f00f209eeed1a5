"""How a log chose its actions, where it does not say: a calibrated softmax over all of them, fitted on the log itself.

`fit` makes a model, `dataset.with_behaviour(model)` takes its propensities; `calibration` says how good they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from moac.logs import schema, states
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.policies.networks import Network, Plain, Weights

_BLOCK = 2048
"""Rows whose probabilities are computed at a time."""
_STEPS = 200
"""The most steps of a round."""
_LAST_SCALE = 0.01
"""The network starts close to popularity, which is in its last biases."""
_TEMPERATURES = (0.1, 10.0)


@final
@dataclass(frozen=True)
class Options:
    """How a behaviour model is fitted."""

    hidden: tuple[int, ...] = (64,)  # width of each hidden layer; none makes it linear
    step_size: float = 1e-3  # of Adam
    weight_decay: float = 0.3  # of Adam, decoupled (Loshchilov & Hutter, 2019)
    batch_size: int = 512  # rows of a step
    max_rounds: int = 100  # a round is one pass over the train rows, at most 200 steps; then validation users are asked
    patience: int = 5  # fitting stops after so many rounds without a lower log-loss of validation users
    folds: int = 2  # F; a train row's propensity is from a model of the other F − 1 folds of train users
    seed: int = 0  # of weights, batches and folds

    def __post_init__(self) -> None:
        least = {"batch_size": 1, "max_rounds": 1, "patience": 1, "folds": 2, "seed": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"`{name}` must be at least {low}, got {getattr(self, name)}.")
        if self.folds > 127 or self.seed >= 2**32:
            raise ValueError(f"`folds` must be below 128, `seed` below 2^32, got {self.folds} and {self.seed}.")
        if not self.step_size > 0 or not self.weight_decay >= 0:
            raise ValueError(
                f"`step_size` must be positive, `weight_decay` not negative, got {self.step_size}, {self.weight_decay}."
            )
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"`hidden` must hold widths of at least 1, got {self.hidden}.")


@final
@dataclass(frozen=True, eq=False)
class Member:
    """One softmax of the model."""

    weights: Weights  # of the network
    temperature: float  # T of softmax(f(x) / T), chosen on validation users
    rounds: int  # after which validation users' log-loss was least
    log_loss: tuple[float, float]  # of validation users, with T = 1 and with T


@final
@dataclass(frozen=True, eq=False)
class BehaviourModel:
    """b(a|s) = softmax(f(x(s)) / T)_a over all K actions."""

    network: Network
    members: tuple[Member, ...]  # the first has seen all train users; member 1 + k all but those of fold k
    options: Options  # how it was fitted
    identity: str  # of the users, actions and tables it was fitted on

    @property
    def temperature(self) -> float:
        """T of the member that has seen all train users."""
        return self.members[0].temperature

    @property
    def clone(self) -> Weights:
        """Weights of the member that has seen all train users, with its temperature: b = softmax(f(x))."""
        *others, last = self.members[0].weights
        return (*others, np.asarray(last / np.float32(self.temperature)))

    def propensities(self, dataset: LoggedDataset) -> Float[np.ndarray, " N"]:
        """b(a|s) of each logged action, from a member that has not seen the row's user."""
        b = np.empty(dataset.num_rows)
        for place, log_p in self.blocks(dataset, np.arange(dataset.num_rows)):
            b[place] = np.exp(log_prob_of_taken(log_p, dataset.action[place]))
        return b

    def probabilities(self, dataset: LoggedDataset, rows: Any) -> Float[np.ndarray, "n K"]:
        """b(·|s) of some rows, by index: all actions; each from a member that has not seen the row's user."""
        rows = np.asarray(rows)
        b = np.empty((len(rows), dataset.num_actions))
        for place, log_p in self.blocks(dataset, rows):
            p = np.exp(log_p.astype(np.float64))
            b[place] = p / p.sum(axis=1, keepdims=True)
        return b

    def blocks(self, dataset: LoggedDataset, rows: Any) -> Iterator[tuple[Any, Any]]:
        """Positions in `rows`, and their log-probabilities [n, K]; member by member, so not in the order given."""
        if identity(dataset) != self.identity:
            raise ValueError(
                f"{dataset.name} has other users, actions or tables than the log that the model was fitted on."
            )
        member_of_user = np.where(dataset.split == 0, 1 + _folds(dataset, self.options), 0)
        member_of_row = member_of_user[dataset.user][rows]
        for k, member in enumerate(self.members):
            mine = np.flatnonzero(member_of_row == k)
            blocks = _blocks(self.network, member.weights, member.temperature, dataset.data, rows[mine])
            for place, log_p in blocks:
                yield mine[place], log_p


def fit(dataset: LoggedDataset, options: Options | None = None) -> BehaviourModel:
    """A softmax of all train users, and for each fold one of the other folds' users.

    When to stop, and the temperature, are chosen on validation users.

    Args:
        dataset: with rows of train and of validation users; propensities that it has are not used.
        options: how.
    """
    options = options or Options()
    train, validation = _train_and_validation(dataset)
    network = Network(Plain(dataset.num_features), options.hidden, dataset.num_actions, _LAST_SCALE)
    fold = _folds(dataset, options)[dataset.user[train]]
    parts = [train, *(train[fold != k] for k in range(options.folds))]
    for k, part in enumerate(parts):
        if not len(part) or (len(part) == len(train) and k):
            raise ValueError(f"`folds` must leave train users on both sides, got {options.folds} with an empty side.")
    members = (_member(network, dataset, (part, validation), options, k) for k, part in enumerate(parts))
    return BehaviourModel(network, tuple(members), options, identity(dataset))


def identity(dataset: LoggedDataset) -> str:
    """A hash of all that rows refer to: equal for a dataset, its subsets and its rows of random exposure."""
    tables = dataset.tables
    digest = hashlib.sha256(repr((tables.context_sizes, tables.window, tables.size)).encode())
    for part in (dataset.user_ids, dataset.split, dataset.action_ids, *vars(tables).values()):
        if not isinstance(part, tuple | int):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]


def log_prob_of_taken(log_p: Any, action: Any) -> Float[np.ndarray, " n"]:
    """Log-probabilities of the logged actions, in float64, so that sums over many rows stay exact enough."""
    return np.take_along_axis(log_p, np.asarray(action)[:, None], axis=1)[:, 0].astype(np.float64)


def _folds(dataset: LoggedDataset, options: Options) -> Int[np.ndarray, " U"]:
    """The fold of each user, by a hash of its id."""
    return schema.fold_users(dataset.user_ids, options.seed, options.folds)


def _train_and_validation(dataset: LoggedDataset) -> tuple[Any, Any]:
    """Rows of train and validation users, of which there must be some."""
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
    weights = _start(network, dataset, train, options, index)
    state: Any = (weights, _optimiser(rates).init(weights))
    best, least, rounds = weights, math.inf, 0
    size = (max(1, min(len(dataset.rows("train")) // options.batch_size, _STEPS)), options.batch_size)
    for done in range(options.max_rounds + 1):
        loss = _log_loss(network, state[0], dataset, validation)(1.0)
        if loss < least:
            best, least, rounds = state[0], loss, done
        if done - rounds >= options.patience or done == options.max_rounds:
            break
        batches = train[rng.integers(len(train), size=size)].astype(np.int32)
        state = _descend(network, rates, state, dataset.data, batches)
    T, calibrated = temperature(_log_loss(network, best, dataset, validation), least)
    return Member(jax.tree.map(np.asarray, best), T, rounds, (least, calibrated))


def _start(network: Network, dataset: LoggedDataset, train: Any, options: Options, index: int) -> Weights:
    """Small weights, whose last biases are log-popularity."""
    *others, last = network.init(jax.random.fold_in(jax.random.key(options.seed), index))
    count = np.bincount(dataset.action[train], minlength=dataset.num_actions) + 1
    return (*others, last.at[-1].set(np.log(count / count.sum())))


def _log_loss(network: Network, weights: Weights, dataset: LoggedDataset, rows: Any) -> Callable[[float], float]:
    """Mean of −log b(a|s) over the rows, as a function of the temperature."""
    action = dataset.action[rows]

    def at(T: float) -> float:
        blocks = _blocks(network, weights, T, dataset.data, rows)
        return -float(sum(log_prob_of_taken(log_p, action[place]).sum() for place, log_p in blocks)) / len(rows)

    return at


def temperature(log_loss: Callable[[float], float], plain: float) -> tuple[float, float]:
    """T that minimises the log-loss, which is convex in 1/T; 1 where no other is better than `plain`, its log-loss."""
    low, high = (math.log(1 / T) for T in reversed(_TEMPERATURES))
    best = minimize_scalar(
        lambda x: log_loss(math.exp(-x)), bounds=(low, high), method="bounded", options={"xatol": 1e-3}
    )
    return (math.exp(-float(best.x)), float(best.fun)) if best.fun < plain else (1.0, plain)


def _blocks(network: Network, weights: Weights, T: float, data: Data, rows: Any) -> Iterator[tuple[Any, Any]]:
    """Positions in `rows`, and their log-probabilities [n, K]; every block has one shape, so one program serves all."""
    for begin in range(0, len(rows), _BLOCK):
        chosen = rows[begin : begin + _BLOCK]
        padded = np.resize(chosen, _BLOCK).astype(np.int32)
        log_p = _log_probabilities(network, weights, np.float32(T), data, padded)
        yield slice(begin, begin + len(chosen)), np.asarray(log_p)[: len(chosen)]


# Compiled: a dataset's arrays are arguments and never constants of the program.


@partial(jax.jit, static_argnames="network")
def _log_probabilities(network: Network, weights: Weights, T: Any, data: Data, rows: Any) -> Float[Array, "n K"]:
    """log softmax(f(x) / T)."""
    x = states.features(data.tables, states.observation(data, rows))
    return jax.nn.log_softmax(network(weights, x) / T)


@partial(jax.jit, static_argnames=("network", "rates"))
def _descend(network: Network, rates: tuple[float, float], state: Any, data: Data, rows: Int[Array, "s n"]) -> Any:
    """A step of Adam on the log-loss of each batch of rows."""
    optimiser = _optimiser(rates)

    def loss(weights: Weights, batch: Int[Array, " n"]) -> Any:
        log_p = _log_probabilities(network, weights, 1.0, data, batch)
        return -jnp.take_along_axis(log_p, data.action[batch][:, None], axis=1).mean()

    def step(state: Any, batch: Int[Array, " n"]) -> Any:
        weights, moments = state
        change, moments = optimiser.update(jax.grad(loss)(weights, batch), moments, weights)
        return (optax.apply_updates(weights, change), moments), None

    return jax.lax.scan(step, state, rows)[0]


def _optimiser(rates: tuple[float, float]) -> optax.GradientTransformation:
    """Adam with decoupled weight decay."""
    step_size, weight_decay = rates
    return optax.adamw(step_size, weight_decay=weight_decay)
