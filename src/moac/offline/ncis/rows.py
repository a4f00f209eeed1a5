"""The rows of a log that an estimate uses: who, what they answered, and how probable the logged action was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.offline.ncis import checks

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset


@final
@dataclass(frozen=True, eq=False)
class Logged:
    """Rows with known or estimated propensities, in any order. Make one by `Logged.of` or `Logged.from_dataset`.

    Attributes:
        user: [N] who; anything that can be ordered.
        reward: [N, M] signals times their signs: more is better, also where the signal is a cost.
        propensity: [N] π_b(a|s) of the logged action.
        action: [N] its index; needed only where policies give the probabilities of all actions.
        signal_names: M of them.
    """

    user: Any
    reward: Float[np.ndarray, "N M"]
    propensity: Float[np.ndarray, " N"]
    action: Int[np.ndarray, " N"] | None
    signal_names: tuple[str, ...]

    @staticmethod
    def of(
        user: Any, reward: Any, propensity: Any, action: Any = None, signal_names: Sequence[str] | None = None
    ) -> Logged:
        """A log of one's own, checked: a column for each attribute; `reward` [N] is one signal."""
        who = checks.column("`user`", user)
        count = len(who)
        if not count:
            raise ValueError("the log has no rows: there is nothing to estimate from.")
        found = checks.rewards(reward, count)
        return Logged(
            who,
            found,
            checks.propensities(propensity, count),
            None if action is None else checks.actions(action, count),
            checks.signal_names(signal_names, found.shape[1]),
        )

    @staticmethod
    def from_dataset(dataset: LoggedDataset, split: str | None = None, propensity: Any = None) -> Logged:
        """The rows of a dataset, or of one split's users.

        Args:
            dataset: with propensities, unless they are given.
            split: train, validation or test; None is all rows.
            propensity: [N] of all the dataset's rows, in place of its own: a behaviour model's.
        """
        known = (
            dataset.propensity if propensity is None else checks.column("`propensity`", propensity, len(dataset.user))
        )
        if known is None:
            raise ValueError(
                f"{dataset.name} has no propensities: give `propensity`, the probability of each logged action [N]."
            )
        rows = np.arange(dataset.num_rows) if split is None else dataset.rows(split)
        if not len(rows):
            raise ValueError(f"{dataset.name} has no rows{'' if split is None else f' of {split} users'}.")
        user = dataset.user_ids[dataset.user[rows]]
        return Logged.of(user, dataset.reward[rows], known[rows], dataset.action[rows], dataset.signal_names)

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.user)

    @cached_property
    def people(self) -> tuple[Any, Int[np.ndarray, " N"]]:
        """The users [U] in ascending order, and the index of each row's."""
        return np.unique(self.user, return_inverse=True)

    def signals(self, names: Sequence[str]) -> Logged:
        """The same rows with only these signals."""
        unknown = [name for name in names if name not in self.signal_names]
        if unknown or not names:
            raise ValueError(f"signals must be among {', '.join(self.signal_names)}, got {', '.join(names) or 'none'}.")
        kept = [self.signal_names.index(name) for name in names]
        return replace(self, reward=self.reward[:, kept], signal_names=tuple(names))

    def rows(self, chosen: Any) -> Logged:
        """Some of the rows, by index or mask: a shard."""
        action = None if self.action is None else self.action[chosen]
        return Logged.of(self.user[chosen], self.reward[chosen], self.propensity[chosen], action, self.signal_names)

    def weight(self, name: str, policy: Any) -> Float[np.ndarray, " N"]:
        """π(a|s) / π_b(a|s) of each row, for probabilities of the logged action [N] or of all actions [N, K]."""
        found = checks.probabilities(name, policy, self.num_rows)
        chosen = found if found.ndim == 1 else checks.taken(name, found, self.action)
        return chosen / self.propensity
