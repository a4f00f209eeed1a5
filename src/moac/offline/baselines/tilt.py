"""Policies that know items and no person: what a learner must beat before its gain can be called personal.

And one that knows the person by a closed form: the tilt by what past responses say of the items' features.

Each is a network like the behaviour model's whose last biases alone are changed, so that it is evaluated, scored and
saved like any other policy. With a number z_a for each item,

    π(a|s) ∝ b(a|s) exp(τ z_a),

where b is the behaviour model, or the items' popularity where the log has none. z may be the sum over signals of the
standardised mean signal of an item (`signal_scores`), or one feature of it (`feature_scores`): longer videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag
from scipy.optimize import brentq

from moac.choices import shown
from moac.logs.catalogue import Catalogue
from moac.logs.dataset import LoggedDataset
from moac.offline import evaluate, ncis, reward_model
from moac.offline.behaviour import log_popularity
from moac.offline.evaluation import Method
from moac.policies import Items, ItemsPolicy, SoftmaxMLP
from moac.policies.networks import Plain
from moac.training.trained import TrainedPolicy

SHRINKAGE = 30
"""Rows of the overall mean that are added to each item's: an item that was hardly shown has no mean of its own."""
_LARGEST = 20.0  # τ, in standard deviations of z
_SMALL = 0.05  # the most that a hidden unit of `_with_product` gets from numbers in [−1, 1]: tanh is off by 0.1 %


def uniform(dataset: LoggedDataset) -> Method:
    """π(a|s) = 1/K."""
    return _biased(*_without_state(dataset), np.zeros(dataset.num_actions))


def popularity(dataset: LoggedDataset) -> Method:
    """π(a|s) = the item's share of train rows, each counted once more than it was shown."""
    return _biased(*_without_state(dataset), log_popularity(dataset, dataset.rows("train")))


@dataclass(frozen=True, eq=False)
class Personal:
    """z(s, a) = z_a + x(s)ᵀ A v_a: what an item is worth to this user."""

    items: Float[np.ndarray, " K"]  # z_a
    state: Float[np.ndarray, "F e"]  # A
    features: Float[np.ndarray, "K e"]  # v


Scores = Float[np.ndarray, " K"] | Personal


def tilted(dataset: LoggedDataset, scores: Scores, tau: float) -> Method:
    """π(a|s) ∝ b(a|s) exp(τ z), with z_a, or z(s, a) of `personal_scores`."""
    known: Any = dataset.behaviour
    policy, theta = _without_state(dataset) if known is None else (known.policy, known.clone)
    z = log_popularity(dataset, dataset.rows("train")) if known is None else 0.0
    if not isinstance(scores, Personal):
        return _biased(policy, theta, z + tau * scores)
    if isinstance(policy, ItemsPolicy):
        raise ValueError("`scores` must be one number an item with policy=items, got scores that know the user.")
    wider = _with_product(theta, scores.state, tau * scores.features.T)
    hidden = tuple(layer.shape[1] for layer in wider[:-1])
    return _biased(replace(policy, hidden=hidden), wider, z + tau * scores.items)


def tilted_to(dataset: LoggedDataset, scores: Scores, share: float) -> tuple[Method, float]:
    """The tilt whose effective share of rows is `share` on validation users, and its τ; no reward of theirs is read.

    Where no τ up to 20 comes down to that share, it is 20.
    """
    if not 0 < share < 1:
        raise ValueError(f"`share` must be in (0, 1), got {share}.")
    rows, known = dataset.rows("validation"), dataset.propensity
    if not len(rows) or known is None:
        raise ValueError(f"{dataset.name} must have propensities and validation users: τ is chosen on them.")

    def above(tau: float) -> float:
        (p,) = evaluate.probabilities(dataset, *tilted(dataset, scores, tau), rows)
        w = np.minimum(p / known[rows], ncis.Options().cap)
        return float(w.sum() ** 2 / (w @ w) / len(rows)) - share

    if above(0.0) <= 0:
        return tilted(dataset, scores, 0.0), 0.0
    root: Any = _LARGEST if above(_LARGEST) > 0 else brentq(above, 0.0, _LARGEST, xtol=1e-3)
    tau = float(root)
    return tilted(dataset, scores, tau), tau


def signal_scores(dataset: LoggedDataset, signals: Sequence[str] = ()) -> Float[np.ndarray, " K"]:
    """z_a = Σ_i z(mean signal i of item a), means over train rows shrunk by 30 rows; of costs the negative.

    `signals` are names; none is all of them.
    """
    return np.sum([_standardised(column) for column in _means(dataset, signals).T], axis=0)


def personal_scores(dataset: LoggedDataset, signals: Sequence[str] = ()) -> Personal:
    """z(s, a) = `signal_scores` + Σ_i t(s)ᵀ B_i v_a / spread_i, for a dataset `with_taste`; q is of `fit_rewards`.

    spread_i is what the mean signal i of items is standardised by. Where taste does not help to predict any signal of
    users that the fit has not seen, B = 0, and this is the tilt.
    """
    if not dataset.tables.taste:
        raise ValueError(f"{dataset.name} must have taste in its states: dataset.with_taste().")
    means, names = _means(dataset, signals), signals or dataset.signal_names
    model, spread = reward_model.fit_rewards(dataset, names), means.std(axis=0)
    A = (model.taste / np.where(spread > 0, spread, np.inf)).sum(axis=2)
    before = np.zeros((dataset.num_features - len(A), A.shape[1]))
    return Personal(signal_scores(dataset, signals), np.concatenate([before, A]), model.items)


def _means(dataset: LoggedDataset, signals: Sequence[str]) -> Float[np.ndarray, "K M"]:
    """The mean of each signal of each item."""
    for name in (name for name in signals if name not in dataset.signal_names):
        raise ValueError(f"`signals` must be of {', '.join(dataset.signal_names)}, got {shown(name)}.")
    columns = [dataset.signal_names.index(name) for name in signals or dataset.signal_names]
    rows = dataset.rows("train")
    reward = dataset.reward[rows][:, columns].astype(np.float64)
    count, total = np.zeros(dataset.num_actions), np.zeros((dataset.num_actions, len(columns)))
    np.add.at(count, dataset.action[rows], 1)
    np.add.at(total, dataset.action[rows], reward)
    return (total + SHRINKAGE * reward.mean(axis=0)) / (count + SHRINKAGE)[:, None]


def feature_scores(dataset: LoggedDataset, feature: str) -> Float[np.ndarray, " K"]:
    """z_a = z(a feature of item a), named as `item_features(dataset)` has it; a minus before it turns it round."""
    names, sign = item_features(dataset), -1.0 if feature.startswith("-") else 1.0
    if feature.removeprefix("-") not in names:
        known = f"one of {', '.join(names)}" if names else "left out: the log has no item features"
        raise ValueError(f"`feature` must be {known}, got {shown(feature)}.")
    column = dataset.tables.items[dataset.action_items, names.index(feature.removeprefix("-"))]
    return sign * _standardised(np.asarray(column, np.float64))


def item_features(dataset: LoggedDataset) -> tuple[str, ...]:
    """Names of the numbers that states hold of an item."""
    return () if dataset.table_names is None else dataset.table_names[1]


def permuted(dataset: LoggedDataset, seed: int = 0) -> LoggedDataset:
    """The log with the rewards of train rows permuted among the rows of the same item: nothing personal is left."""
    rows = dataset.rows("train")
    shuffled = np.random.default_rng(seed).permutation(rows)
    reward = np.array(dataset.reward)
    here, there = (each[np.argsort(dataset.action[each], kind="stable")] for each in (rows, shuffled))
    reward[here] = dataset.reward[there]
    return replace(dataset, reward=reward, folder=None, fingerprint=f"{dataset.fingerprint}:permuted-{seed}")


def trained(dataset: LoggedDataset, method: Method) -> TrainedPolicy:
    """A method on a log as a policy that recommends, and that `moac.evaluate(policy, data=dataset)` takes."""
    return TrainedPolicy(*method, dataset.spec.observations)


def _biased(policy: Any, theta: Any, bias: Float[np.ndarray, " K"]) -> Method:
    """A policy of one training seed, with this added to the scores of items."""
    shifted, moved = policy.shifted(theta, bias)
    return shifted, tuple(np.asarray(layer)[None] for layer in moved)


def _with_product(layers: Any, A: Float[np.ndarray, "F r"], R: Float[np.ndarray, "r K"]) -> list[Any]:
    """The network with x(s)ᵀ A R added to its outputs: by further hidden units so small that tanh leaves them alone."""
    *hidden, last = (np.asarray(layer, np.float64) for layer in layers)
    if not hidden:
        return [last + np.concatenate([A @ R, np.zeros((1, R.shape[1]))])]
    small = _SMALL / max(np.abs(A).sum(axis=0).max(), 1e-12)
    path = np.concatenate([small * A, np.zeros((1, A.shape[1]))])
    wider = [np.concatenate([hidden[0], path], axis=1)]
    for layer in hidden[1:]:  # (h + 1, k) to (h + r + 1, k + r): the bias stays the last row
        whole: Any = block_diag(layer[:-1], np.eye(len(R)))
        wider.append(np.concatenate([whole, np.append(layer[-1], np.zeros(len(R)))[None]]))
    return [*wider, np.concatenate([last[:-1], R / small, last[-1:]])]


def _without_state(dataset: LoggedDataset) -> tuple[Any, Any]:
    """A policy that scores all actions alike in every state: zeros."""
    policy = SoftmaxMLP(Plain(dataset.num_features), (), dataset.num_actions)
    if dataset.lists is not None:
        policy = ItemsPolicy(policy.inputs, (), Items.of(Catalogue.of(dataset).described.features))
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return policy, tuple(np.zeros(leaf.shape, np.float32) for leaf in shapes)


def _standardised(values: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """z, over items; 0 where all are alike."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-12 * max(1.0, np.abs(values).max()) else 0 * values
