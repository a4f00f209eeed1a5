"""How a log chose its actions, where it does not say: a calibrated softmax, fitted on the log itself.

It is over all actions, or where requests bring their candidates over these.

`fit` makes a model, `dataset.with_behaviour(model)` takes its propensities; `calibration` says how good they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from moac.choices import COUNT, NOT_NEGATIVE, POSITIVE, Range, check_fields, shown
from moac.compiling import kept_for_few
from moac.logs import splits, states
from moac.logs.catalogue import Catalogue
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.offline.blocks import block_size, in_blocks, joined, lengths, num_choices, of_taken, places
from moac.policies import ItemsPolicy, SoftmaxMLP, items
from moac.policies.networks import Plain, Weights

_STEPS = 200  # the most of a round
_TEMPERATURES = (0.1, 10.0)
_RANGES = {
    **dict.fromkeys(("batch_size", "max_rounds", "patience"), COUNT),
    "step_size": POSITIVE, "weight_decay": NOT_NEGATIVE,
    "folds": Range("in [2, 127]", lambda x: 2 <= x <= 127), "seed": Range("in [0, 2^32)", lambda x: 0 <= x < 2**32),
}  # fmt: skip
_BINS = 15  # of confidences, for the error of calibration


@dataclass(frozen=True)
class Options:
    """How a behaviour model is fitted."""

    policy: str = "mlp"  # a logit for each action, or `items`: scores of their features
    hidden: tuple[int, ...] = (64,)  # width of each hidden layer; none makes it linear
    item_embedding: bool = True  # of `items`: as in `Config`
    step_size: float = 1e-3  # of Adam
    weight_decay: float = 0.3  # of Adam, decoupled (Loshchilov & Hutter, 2019)
    batch_size: int = 512  # rows of a step
    max_rounds: int = 100  # a round is one pass over the train rows, at most 200 steps; then validation users are asked
    patience: int = 5  # fitting stops after so many rounds without a lower log-loss of validation users
    folds: int = 2  # F; a train row's propensity is from a model of the other F − 1 folds of train users
    seed: int = 0  # of weights, batches and folds

    def __post_init__(self) -> None:
        check_fields(self, _RANGES)
        if self.policy not in ("mlp", "items"):
            raise ValueError(f"`policy` must be mlp or items, got {shown(self.policy)}.")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"`hidden` must hold widths of at least 1, got {self.hidden}.")


@dataclass(frozen=True, eq=False)
class Member:
    """One softmax of the model."""

    weights: Weights  # of the network
    temperature: float  # T of softmax(f(x) / T), chosen on validation users
    rounds: int  # after which validation users' log-loss was least
    log_loss: tuple[float, float]  # of validation users, with T = 1 and with T


@dataclass(frozen=True, eq=False)
class BehaviourModel:
    """b(a|s) = softmax(f(x(s)) / T)_a over all K actions, or a request's candidates."""

    policy: SoftmaxMLP | ItemsPolicy
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
        return self.policy.tempered(self.members[0].weights, self.temperature)

    @property
    def method(self) -> tuple[SoftmaxMLP | ItemsPolicy, Weights]:
        """Behavior-Clone as a policy, with its weights as those of one training seed."""
        return self.policy, tuple(W[None] for W in self.clone)

    def propensities(self, dataset: LoggedDataset) -> Float[np.ndarray, " N"]:
        """b(a|s) of each logged action, from a member that has not seen the row's user."""
        b = np.empty(dataset.num_rows)
        for place, log_p in self.blocks(dataset, np.arange(dataset.num_rows)):
            b[place] = np.exp(of_taken(log_p, places(dataset, place)))
        return b

    def probabilities(self, dataset: LoggedDataset, rows: Any) -> Float[np.ndarray, "n K"]:
        """b(·|s) of some rows, by index, of all that can be chosen; from members that have not seen the row's user."""
        rows = np.asarray(rows)
        b = np.empty((len(rows), num_choices(dataset)))
        for place, log_p in self.blocks(dataset, rows):
            p = np.exp(log_p.astype(np.float64))
            b[place] = p / p.sum(axis=1, keepdims=True)
        return b

    def blocks(self, dataset: LoggedDataset, rows: Any) -> Iterator[tuple[Any, Any]]:
        """Positions in `rows`, and their log-probabilities [n, K]; member by member, so not in the order given."""
        if identity(dataset) != self.identity:
            raise ValueError(f"{dataset.name} has other users, actions or tables than the log of the model.")
        fold = splits.fold_users(dataset.user_ids, self.options.seed, self.options.folds)
        member_of_row = np.where(dataset.row_splits == 0, 1 + fold[dataset.user], 0)[rows]
        for k, member in enumerate(self.members):
            mine = np.flatnonzero(member_of_row == k)
            T = np.float32(member.temperature)
            log_probs = partial(_log_probabilities, self.policy, member.weights, T, dataset.data)
            for place, log_p in in_blocks(log_probs, rows[mine], block_size(dataset)):
                yield mine[place], log_p


def fit(dataset: LoggedDataset, options: Options | None = None, cross_fit: bool = True) -> BehaviourModel:
    """A softmax of all train users, and for each fold one of the other folds' users: those only for train rows.

    When to stop, and the temperature, are chosen on validation users. Propensities that the log has are not used.
    """
    options = options or Options()
    if dataset.num_actions < 2:
        raise ValueError(f"{dataset.name} has one action only: there is no choice to model.")
    train, validation = (dataset.known_rows(s, "a behaviour model needs them") for s in ("train", "validation"))
    policy = _policy(dataset, options)
    fold = splits.fold_users(dataset.user_ids, options.seed, options.folds)[dataset.user[train]]
    parts = [train, *(train[fold != k] for k in range(options.folds if cross_fit else 0))]
    if any(len(part) in (0, len(train)) for part in parts[1:]):
        users = len(np.unique(dataset.user[train]))
        got = f"got {options.folds} folds of {users} train users: a behaviour model needs a log of more users"
        raise ValueError(f"`folds` must leave train users on both sides, {got}.")
    members = (_member(policy, dataset, (part, validation), options, k) for k, part in enumerate(parts))
    return BehaviourModel(policy, tuple(members), options, identity(dataset))


def _policy(dataset: LoggedDataset, options: Options) -> SoftmaxMLP | ItemsPolicy:
    """The policy that is fitted."""
    if options.policy == "items":
        described = Catalogue.of(dataset).described
        return ItemsPolicy(Plain(dataset.num_features), options.hidden, described, options.item_embedding)
    if dataset.lists is not None:
        raise ValueError(f"`policy` must be items on {dataset.name}, whose requests have candidates, got 'mlp'.")
    return SoftmaxMLP(Plain(dataset.num_features), options.hidden, dataset.num_actions)


def log_popularity(dataset: LoggedDataset, rows: Any) -> Float[np.ndarray, " K"]:
    """The logarithm of each action's share of the rows, counted once more than it was shown."""
    count = np.bincount(dataset.action[rows], minlength=dataset.num_actions) + 1
    return np.log(count / count.sum())


def identity(dataset: LoggedDataset) -> str:
    """A hash of all that rows refer to: equal for a dataset, its subsets and its rows of random exposure."""
    tables = dataset.tables
    digest = hashlib.sha256(repr((tables.context_sizes, tables.window, tables.size)).encode())
    for part in (dataset.user_ids, dataset.split, dataset.action_ids, *vars(tables).values()):
        if not isinstance(part, tuple | int):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]


def _member(policy: Any, dataset: LoggedDataset, rows: tuple[Any, Any], options: Options, index: int) -> Member:
    """Rounds of Adam until validation users' log-loss has not fallen for a while; the best round's weights."""
    (train, validation), rates = rows, (options.step_size, options.weight_decay)
    rng = np.random.default_rng([options.seed, index])
    small = policy.init(jax.random.fold_in(jax.random.key(options.seed), index))
    weights = policy.popular(small, log_popularity(dataset, train))
    state: Any = (weights, optax.adamw(rates[0], weight_decay=rates[1]).init(weights))
    best, least, rounds = weights, math.inf, 0
    size = (max(1, min(len(dataset.rows("train")) // options.batch_size, _STEPS)), options.batch_size)
    for done in range(options.max_rounds + 1):
        loss = _log_loss(policy, state[0], dataset, validation)(1.0)
        if loss < least:
            best, least, rounds = state[0], loss, done
        if done - rounds >= options.patience or done == options.max_rounds:
            break
        batches = train[rng.integers(len(train), size=size)].astype(np.int32)
        state = _descend(policy, rates, state, dataset.data, batches)
    T, calibrated = temperature(_log_loss(policy, best, dataset, validation), least)
    return Member(jax.tree.map(np.asarray, best), T, rounds, (least, calibrated))


def _log_loss(policy: Any, weights: Weights, dataset: LoggedDataset, rows: Any) -> Callable[[float], float]:
    """Mean of −log b(a|s) over the rows, as a function of the temperature."""
    action, size = places(dataset, rows), block_size(dataset)

    def at(T: float) -> float:
        blocks = in_blocks(partial(_log_probabilities, policy, weights, np.float32(T), dataset.data), rows, size)
        return -float(sum(of_taken(log_p, action[place]).sum() for place, log_p in blocks)) / len(rows)

    return at


def temperature(log_loss: Callable[[float], float], plain: float) -> tuple[float, float]:
    """T that minimises the log-loss, which is convex in 1/T; 1 where no other is better than `plain`, its log-loss."""
    low, high = (math.log(1 / T) for T in reversed(_TEMPERATURES))
    how: dict[str, Any] = {"bounds": (low, high), "method": "bounded", "options": {"xatol": 1e-3}}
    best = minimize_scalar(lambda x: log_loss(math.exp(-x)), **how)
    return (math.exp(-float(best.x)), float(best.fun)) if best.fun < plain else (1.0, plain)


# Compiled: a dataset's arrays are arguments and never constants of the program.


@kept_for_few(1)
def _log_probabilities(policy: Any, weights: Weights, T: Any, data: Data, rows: Any) -> Float[Array, "n K"]:
    """log softmax(f(x) / T)."""
    return jax.nn.log_softmax(policy.logits(weights, states.requests(data, rows)) / T)


@kept_for_few(2)
def _descend(policy: Any, rates: tuple[float, float], state: Any, data: Data, rows: Int[Array, "s n"]) -> Any:
    """A step of Adam on the log-loss of each batch of rows."""
    optimiser = optax.adamw(rates[0], weight_decay=rates[1])

    def loss(weights: Weights, batch: Int[Array, " n"]) -> Any:
        log_p = _log_probabilities(policy, weights, 1.0, data, batch)
        taken = items.place(states.requests(data, batch), data.action[batch])
        return -jnp.take_along_axis(log_p, taken[:, None], axis=1).mean()

    def step(state: Any, batch: Int[Array, " n"]) -> Any:
        weights, moments = state
        change, moments = optimiser.update(jax.grad(loss)(weights, batch), moments, weights)
        return (optax.apply_updates(weights, change), moments), None

    return jax.lax.scan(step, state, rows)[0]


@dataclass(frozen=True)
class Calibration:
    """A behaviour model on one split's rows; log-losses are means of −log b(a|s), in nats."""

    split: str  # whose users
    rows: int
    log_loss: float  # of the model
    uniform: float  # log-loss of log K, or of the mean log-length of the lists of candidates
    popularity: float  # log-loss of the actions' shares among train users' rows, plus one each
    popularity_by_context: float  # the same by first and last column of the context: KuaiRand's tab and day of the week
    perplexity: float  # exp(log_loss): among so many equally likely actions it is as unsure
    calibration_error: float  # Σ_bins share × |hits − confidence|, of the action it thinks likeliest (Guo et al., 2017)
    temperature: float  # of the member that has seen all train users
    smallest_propensity: float  # there is no floor; a weight is at most 1 / this
    # Mean of π/b without a cap, of each policy evaluated; near 1 where b is right. Of the policy that made the log it
    # is 1 + χ², its distance from b.
    mean_weight: dict[str, float] = field(default_factory=dict)


def calibration(model: BehaviourModel, dataset: LoggedDataset, split: str = "validation") -> Calibration:
    """The model's log-loss and calibration on a split's users, beside those of simpler ones."""
    rows, train = dataset.rows(split), dataset.rows("train")
    if not len(rows) or not len(train):
        raise ValueError(f"{dataset.name} must have train and {split} users: there is nothing to measure.")
    taken, likeliest, hit = np.empty((3, len(rows)))
    for place, log_p in model.blocks(dataset, rows):
        action = places(dataset, rows[place])
        taken[place], likeliest[place] = of_taken(log_p, action), log_p.max(axis=1)
        hit[place] = log_p.argmax(axis=1) == action
    log_loss, whole = -float(taken.mean()), np.zeros(dataset.num_rows, int)
    cells = np.column_stack([whole, dataset.context[:, :1], dataset.context[:, -1:]])
    return Calibration(
        split,
        len(rows),
        log_loss,
        float(np.log(lengths(dataset, rows)).mean()),
        _popularity(dataset, whole, train, rows),
        _popularity(dataset, np.unique(cells, axis=0, return_inverse=True)[1].ravel(), train, rows),
        float(np.exp(log_loss)),
        calibration_error(np.exp(likeliest), hit),
        model.temperature,
        float(np.exp(taken.min())),
    )


def calibration_error(confidence: Float[np.ndarray, " n"], hit: Any) -> float:
    """Σ_bins share × |mean hit − mean confidence|, 15 bins of equal width on [0, 1]."""
    place = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    return float(np.abs(np.bincount(place, hit - confidence, minlength=_BINS)).sum() / len(confidence))


def _popularity(dataset: LoggedDataset, cell: Any, train: Any, rows: Any) -> float:
    """Log-loss of the actions' shares within each cell, among train users, plus one each."""
    K = dataset.num_actions
    code = cell * K + dataset.action
    count = np.bincount(code[train], minlength=(cell.max() + 1) * K).reshape(-1, K) + 1
    log_p = np.log(count / count.sum(axis=1, keepdims=True))
    return -float((log_p.ravel()[code[rows]] - _log_share(dataset, cell, log_p, rows)).mean())


def _log_share(dataset: LoggedDataset, cell: Any, log_p: Any, rows: Any) -> Any:
    """log Σ p over each row's candidates; 0 where all actions are candidates."""
    if dataset.lists is None:
        return 0.0
    lists, listed = dataset.lists, np.asarray(dataset.candidates)

    def of(block: Any) -> Any:
        padded = lists.padded(listed[block])
        p = np.where(padded >= 0, np.exp(log_p[cell[block][:, None], np.maximum(padded, 0)]), 0)
        return np.log(p.sum(axis=1))

    return joined(of, rows)
