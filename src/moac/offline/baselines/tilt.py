"""Policies that know items and no person: what a learner must beat before its gain can be called personal.

Each is a network like the behaviour model's whose last biases alone are changed, so that it is evaluated, scored and
saved like any other policy. With a number z_a for each item,

    π(a|s) ∝ b(a|s) exp(τ z_a),

where b is the behaviour model, or the items' popularity where the log has none. z may be the sum over signals of the
standardised mean signal of an item (`signal_scores`), or one feature of it (`feature_scores`): longer videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from moac.logs.dataset import LoggedDataset
from moac.offline import evaluate, ncis
from moac.offline.evaluation import Method
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac.training.trained import TrainedPolicy

SHRINKAGE = 30
"""Rows of the overall mean that are added to each item's: an item that was hardly shown has no mean of its own."""
_LARGEST = 20.0  # τ, in standard deviations of z


def uniform(dataset: LoggedDataset) -> Method:
    """π(a|s) = 1/K."""
    return _biased(_without_state(dataset), np.zeros(dataset.num_actions))


def popularity(dataset: LoggedDataset) -> Method:
    """π(a|s) = the item's share of train rows, each counted once more than it was shown."""
    return _biased(_without_state(dataset), _log_popularity(dataset))


def tilted(dataset: LoggedDataset, scores: Float[np.ndarray, " K"], tau: float) -> Method:
    """π(a|s) ∝ b(a|s) exp(τ z_a)."""
    if dataset.behaviour is None:
        return _biased(_without_state(dataset), _log_popularity(dataset) + tau * scores)
    return _biased(dataset.behaviour.clone, tau * scores)


def tilted_to(dataset: LoggedDataset, scores: Float[np.ndarray, " K"], share: float) -> tuple[Method, float]:
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
    for name in (name for name in signals if name not in dataset.signal_names):
        raise ValueError(f"`signals` must be of {', '.join(dataset.signal_names)}, got {name!r}.")
    columns = [dataset.signal_names.index(name) for name in signals or dataset.signal_names]
    rows = dataset.rows("train")
    reward = dataset.reward[rows][:, columns].astype(np.float64)
    count, total = np.zeros(dataset.num_actions), np.zeros((dataset.num_actions, len(columns)))
    np.add.at(count, dataset.action[rows], 1)
    np.add.at(total, dataset.action[rows], reward)
    means = (total + SHRINKAGE * reward.mean(axis=0)) / (count + SHRINKAGE)[:, None]
    return np.sum([_standardised(column) for column in means.T], axis=0)


def feature_scores(dataset: LoggedDataset, feature: str) -> Float[np.ndarray, " K"]:
    """z_a = z(a feature of item a), named as `item_features(dataset)` has it; a minus before it turns it round."""
    names, sign = item_features(dataset), -1.0 if feature.startswith("-") else 1.0
    if feature.removeprefix("-") not in names:
        known = f"one of {', '.join(names)}" if names else "left out: the log has no item features"
        raise ValueError(f"`feature` must be {known}, got {feature!r}.")
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


def _biased(layers: Any, bias: Float[np.ndarray, " K"]) -> Method:
    """A network of one training seed, with this added to its last biases."""
    *others, last = (np.array(layer, np.float32) for layer in layers)
    last[-1] += bias.astype(np.float32)
    hidden = tuple(layer.shape[1] for layer in others)
    policy = SoftmaxMLP(Plain(len((*others, last)[0]) - 1), hidden, last.shape[1])
    return policy, tuple(layer[None] for layer in (*others, last))


def _without_state(dataset: LoggedDataset) -> tuple[Float[np.ndarray, "F K"]]:
    """One layer of zeros."""
    return (np.zeros((dataset.num_features + 1, dataset.num_actions), np.float32),)


def _log_popularity(dataset: LoggedDataset) -> Float[np.ndarray, " K"]:
    count = np.bincount(dataset.action[dataset.rows("train")], minlength=dataset.num_actions) + 1
    return np.log(count / count.sum())


def _standardised(values: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """z, over items; 0 where all are alike."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-12 * max(1.0, np.abs(values).max()) else 0 * values
