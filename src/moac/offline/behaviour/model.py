"""A fitted behaviour model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.logs import splits
from moac.logs.dataset import LoggedDataset
from moac.offline.behaviour import kernels
from moac.offline.behaviour.options import Options
from moac.policies.networks import Network, Weights


@final
@dataclass(frozen=True, eq=False)
class Member:
    """One softmax of the model.

    Attributes:
        weights: of the network.
        temperature: T of softmax(f(x) / T), chosen on validation users.
        rounds: after which validation users' log-loss was least.
        log_loss: of validation users, with T = 1 and with T.
    """

    weights: Weights
    temperature: float
    rounds: int
    log_loss: tuple[float, float]


@final
@dataclass(frozen=True, eq=False)
class BehaviourModel:
    """b(a|s) = softmax(f(x(s)) / T)_a over all K actions.

    Attributes:
        network: f.
        members: the first has seen all train users; member 1 + k all but those of fold k.
        options: how it was fitted.
        identity: of the users, actions and tables it was fitted on.
    """

    network: Network
    members: tuple[Member, ...]
    options: Options
    identity: str

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
        found = np.empty(dataset.num_rows)
        for place, log_p in self.blocks(dataset, np.arange(dataset.num_rows)):
            found[place] = np.exp(kernels.taken(log_p, dataset.action[place]))
        return found

    def probabilities(self, dataset: LoggedDataset, rows: Any) -> Float[np.ndarray, "n K"]:
        """b(·|s) of some rows, by index: all actions; each from a member that has not seen the row's user."""
        rows = np.asarray(rows)
        found = np.empty((len(rows), dataset.num_actions))
        for place, log_p in self.blocks(dataset, rows):
            p = np.exp(log_p.astype(np.float64))
            found[place] = p / p.sum(axis=1, keepdims=True)
        return found

    def blocks(self, dataset: LoggedDataset, rows: Any) -> Iterator[tuple[Any, Any]]:
        """Positions in `rows`, and their log-probabilities [n, K]; member by member, so not in the order given."""
        if identity(dataset) != self.identity:
            raise ValueError(
                f"{dataset.name} has other users, actions or tables than the log that the model was fitted on."
            )
        who = self._member(dataset)[rows]
        for k, member in enumerate(self.members):
            own = np.flatnonzero(who == k)
            judged = kernels.blocks(self.network, member.weights, member.temperature, dataset.data, rows[own])
            for place, log_p in judged:
                yield own[place], log_p

    def _member(self, dataset: LoggedDataset) -> Int[np.ndarray, " N"]:
        """Which member judges each row."""
        return np.where(dataset.split == 0, 1 + folds(dataset, self.options), 0)[dataset.user]


def folds(dataset: LoggedDataset, options: Options) -> Int[np.ndarray, " U"]:
    """Of each user, by a hash of its id."""
    return splits.folds(dataset.user_ids, options.seed, options.folds)


def identity(dataset: LoggedDataset) -> str:
    """Of all that a row's indices refer to: equal for a dataset, its subsets and its rows of random exposure."""
    tables = dataset.tables
    digest = hashlib.sha256(repr((tables.context_sizes, tables.window, tables.size)).encode())
    for part in (dataset.user_ids, dataset.split, dataset.action_ids, *vars(tables).values()):
        if not isinstance(part, tuple | int):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
