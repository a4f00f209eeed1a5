"""How good a behaviour model is: log-losses beside those of simpler ones, and calibration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from moac.logs.dataset import LoggedDataset
from moac.offline.blocks import BLOCK, lengths, of_taken, places

if TYPE_CHECKING:
    from moac.offline.behaviour import BehaviourModel

_BINS = 15


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
    listed, share = np.asarray(dataset.candidates), np.empty(len(rows))
    for begin in range(0, len(rows), BLOCK):
        block = rows[begin : begin + BLOCK]
        padded = dataset.lists.padded(listed[block])
        p = np.where(padded >= 0, np.exp(log_p[cell[block][:, None], np.maximum(padded, 0)]), 0)
        share[begin : begin + BLOCK] = np.log(p.sum(axis=1))
    return share
