"""How good a behaviour model is on users it has not seen: log-loss beside simpler models', and calibration error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.logs.dataset import LoggedDataset
from moac.offline.behaviour import BehaviourModel, log_prob_of_taken
from moac.offline.ncis import Logged

BINS = 15
"""Number of bins of the calibration error."""


@final
@dataclass(frozen=True)
class Calibration:
    """A behaviour model on one split's rows; log-losses are means of −log b(a|s), in nats."""

    split: str  # whose users
    rows: int
    log_loss: float  # of the model
    uniform: float  # log-loss of log K
    popularity: float  # log-loss of the actions' shares among train users' rows, plus one each
    popularity_by_context: float  # the same within each cell of the context: for KuaiRand, of tab and day of the week
    perplexity: float  # exp(log_loss): among so many equally likely actions it is as unsure
    calibration_error: float  # Σ_bins share × |hits − confidence|, of the action it thinks likeliest (Guo et al., 2017)
    temperature: float  # of the member that has seen all train users
    smallest_propensity: float  # there is no floor; a weight is at most 1 / this
    # Mean of π/b without a cap, of each policy given; near 1 where b is right. Of the policy that made the log it is
    # 1 + χ², its distance from b.
    mean_weight: dict[str, float]


def measure(
    model: BehaviourModel,
    dataset: LoggedDataset,
    split: str = "validation",
    *,
    policies: Mapping[str, Any] | None = None,
    cells: Int[np.ndarray, "N c"] | None = None,
) -> Calibration:
    """The model's log-loss and calibration beside those of simpler ones.

    Args:
        model: fitted on the dataset's train users.
        dataset: the log.
        split: whose rows; a choice made by test users' numbers spoils them.
        policies: by name, probabilities of the split's logged actions [n], or of all actions [n, K].
        cells: codes of each of the dataset's rows, within which popularity is counted; None is the first and the last
            column of the context: for KuaiRand tab and day of the week.
    """
    rows, train = dataset.rows(split), dataset.rows("train")
    if not len(rows) or not len(train):
        raise ValueError(f"{dataset.name} must have rows of train and of {split} users: there is nothing to measure.")
    taken, likeliest, hit = _log_probs(model, dataset, rows).T
    log_loss = -float(taken.mean())
    logged = Logged.of(dataset.user[rows], dataset.reward[rows], np.exp(taken), dataset.action[rows])
    return Calibration(
        split,
        len(rows),
        log_loss,
        float(np.log(dataset.num_actions)),
        _popularity(dataset, np.zeros(dataset.num_rows, int), train, rows),
        _popularity(dataset, _codes(dataset, cells), train, rows),
        float(np.exp(log_loss)),
        calibration_error(np.exp(likeliest), hit),
        model.temperature,
        float(np.exp(taken.min())),
        {name: float(logged.importance_ratio(name, policy).mean()) for name, policy in (policies or {}).items()},
    )


def calibration_error(confidence: Float[np.ndarray, " n"], hit: Any) -> float:
    """Σ_bins share × |mean hit − mean confidence|, bins of equal width on [0, 1]."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(place, hit - confidence, minlength=BINS)).sum() / len(confidence))


def _log_probs(model: BehaviourModel, dataset: LoggedDataset, rows: Any) -> Float[np.ndarray, "n 3"]:
    """Log-probability of the logged action and of the likeliest, and whether they are the same."""
    numbers = np.empty((len(rows), 3))
    for place, log_p in model.blocks(dataset, rows):
        action = dataset.action[rows[place]]
        hit = log_p.argmax(axis=1) == action
        numbers[place] = np.column_stack([log_prob_of_taken(log_p, action), log_p.max(axis=1), hit])
    return numbers


def _popularity(dataset: LoggedDataset, cell: Any, train: Any, rows: Any) -> float:
    """Log-loss of the actions' shares within each cell, among train users, plus one each."""
    K = dataset.num_actions
    code = cell * K + dataset.action
    count = np.bincount(code[train], minlength=(cell.max() + 1) * K).reshape(-1, K) + 1
    log_p = np.log(count / count.sum(axis=1, keepdims=True))
    return -float(log_p.ravel()[code[rows]].mean())


def _codes(dataset: LoggedDataset, cells: Any) -> Int[np.ndarray, " N"]:
    """The number of each row's cell."""
    context = dataset.context
    given = context[:, sorted({0, context.shape[1] - 1})] if cells is None and context.shape[1] else context
    given = given if cells is None else np.asarray(cells).reshape(len(cells), -1)
    if len(given) != dataset.num_rows:
        raise ValueError(f"`cells` must hold codes of all {dataset.num_rows} rows, got {len(given)}.")
    if not given.shape[1]:
        return np.zeros(dataset.num_rows, int)
    return np.unique(given, axis=0, return_inverse=True)[1].ravel()
