"""The rows of a log that an estimate uses, checked: each mistake is one line that names the argument and the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from moac.arguments import NUMERIC, Numbers, checked
from moac.choices import several, shown

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

_ROUNDING = 1e-6
"""By how much a probability may exceed 1: single precision."""
_SUM_TOLERANCE = 1e-3
"""By how much the probabilities of all actions may miss 1 in sum."""


@dataclass(frozen=True, eq=False)
class Logged:
    """Rows with known or estimated propensities, in any order; made by `Logged.of` or `Logged.from_dataset`."""

    user: Any  # [N] who; anything that can be ordered
    reward: Float[np.ndarray, "N M"]  # signals times their signs: more is better, also where the signal is a cost
    propensity: Float[np.ndarray, " N"]  # π_b(a|s) of the logged action
    action: Int[np.ndarray, " N"] | None  # its index; needed where policies give the probabilities of all actions
    signal_names: tuple[str, ...]

    @staticmethod
    @checked
    def of(
        user: Any,
        reward: Numbers,
        propensity: Numbers,
        action: Numbers | None = None,
        signal_names: Sequence[str] | None = None,
    ) -> Logged:
        """A log of one's own, checked: a column for each attribute; `reward` [N] is one signal."""
        who = _column("`user`", user)
        count = len(who)
        if not count:
            raise ValueError("`user` has no rows: there is nothing to estimate from.")
        rewards = _rewards(reward, count)
        chance = _column("`propensity`", propensity, count).astype(np.float64)
        _require("`propensity` must be in (0, 1]", chance, (chance > 0) & (chance <= 1 + _ROUNDING))
        taken = None if action is None else _actions(action, count)
        return Logged(who, rewards, chance, taken, _signal_names(signal_names, rewards.shape[1]))

    @staticmethod
    @checked
    def from_dataset(dataset: LoggedDataset, rows: Any = None) -> Logged:
        """The rows of a dataset with propensities: by index, those of a split's users by its name, or all."""
        which = np.arange(dataset.num_rows) if rows is None else rows
        which = dataset.rows(which) if isinstance(which, str) else _chosen("rows", which, dataset.num_rows)
        if not len(which):
            raise ValueError(f"{dataset.name} has no rows{f' of {rows} users' if isinstance(rows, str) else ''}.")
        dataset.check_known()
        known: Any = dataset.propensity
        columns = (dataset.reward[which], known[which], dataset.action[which])
        return Logged.of(dataset.user_ids[dataset.user[which]], *columns, dataset.signal_names)

    @cached_property
    def users(self) -> tuple[Any, Int[np.ndarray, " N"]]:
        """The users [U] in ascending order, and the index of each row's."""
        return np.unique(self.user, return_inverse=True)

    def user_sums(self, parts: Float[np.ndarray, "n J"], rows: Any = slice(None)) -> Float[np.ndarray, "U J"]:
        """Sums over each user's rows, of all rows or of those that `parts` are of."""
        users, index = self.users
        return np.stack([np.bincount(index[rows], column, len(users)) for column in parts.T], axis=1)

    @checked
    def signals(self, names: Sequence[str]) -> Logged:
        """The same rows with only these signals."""
        wanted = several(names)
        if not wanted or any(name not in self.signal_names for name in wanted):
            raise ValueError(f"`names` must be some of {', '.join(self.signal_names)}, got {shown(wanted)}.")
        kept = [self.signal_names.index(name) for name in wanted]
        return replace(self, reward=self.reward[:, kept], signal_names=wanted)

    def rows(self, chosen: Any) -> Logged:
        """Some of the rows, by index or mask: a shard."""
        chosen = _chosen("chosen", chosen, len(self.user))
        action = None if self.action is None else self.action[chosen]
        return Logged.of(self.user[chosen], self.reward[chosen], self.propensity[chosen], action, self.signal_names)

    @checked
    def importance_ratio(self, name: str, policy: Numbers) -> Float[np.ndarray, " N"]:
        """π(a|s) / π_b(a|s) of each row, for probabilities of the logged action [N] or of all actions [N, K]."""
        p = np.asarray(policy, dtype=np.float64)
        N = len(self.user)
        if p.ndim not in (1, 2) or len(p) != N or not p.size:
            raise ValueError(f"{name} must have shape [{N}] or [{N}, K], got {list(p.shape)}.")
        _require(f"{name} must hold probabilities in [0, 1]", p, (p >= 0) & (p <= 1 + _ROUNDING))
        return (p if p.ndim == 1 else self._taken(name, p)) / self.propensity

    def _taken(self, name: str, table: Float[np.ndarray, "N K"]) -> Float[np.ndarray, " N"]:
        """π(a|s) of the logged actions."""
        total = table.sum(axis=1)
        _require(f"{name} must sum to 1 over the actions", total, np.abs(total - 1) <= _SUM_TOLERANCE)
        action: Any = self.action
        if action is None:
            raise ValueError(f"{name} has all actions' probabilities [N, K]; the log then needs `action` [N].")
        _require(f"`action` must be below {table.shape[1]}, the actions of {name}", action, action < table.shape[1])
        return table[np.arange(len(table)), action]


def _chosen(name: str, rows: Any, count: int) -> Any:
    """Rows by index, by mask or as a slice; another index would be an error, or count from the end."""
    if isinstance(rows, slice):
        return rows
    index = np.asarray(rows if NUMERIC.holds(rows) else np.nan)
    index = index if index.size else np.zeros(0, int)
    mask = index.dtype.kind == "b" and index.shape == (count,)
    inside = index.dtype.kind in "iu" and index.ndim == 1 and bool(((index >= 0) & (index < count)).all())
    if not mask and not inside:
        raise ValueError(f"`{name}` must be indices in [0, {count}) or a mask of {count} rows, got {shown(rows)}.")
    return index


def _column(name: str, given: Any, count: int | None = None) -> Any:
    column = np.asarray(given)
    if column.ndim != 1 or (count is not None and len(column) != count):
        raise ValueError(f"{name} must have shape [{'N' if count is None else count}], got {list(column.shape)}.")
    return column


def _rewards(given: Any, count: int) -> Float[np.ndarray, "N M"]:
    reward = np.asarray(given, dtype=np.float64)
    reward = reward[:, None] if reward.ndim == 1 else reward
    if reward.ndim != 2 or len(reward) != count or not reward.shape[1]:
        raise ValueError(f"`reward` must have shape [{count}, M], got {list(np.shape(given))}.")
    _require("`reward` must be finite", reward, np.isfinite(reward))
    return reward


def _actions(given: Any, count: int) -> Int[np.ndarray, " N"]:
    action = _column("`action`", given, count)
    if action.dtype.kind not in "iu":
        raise ValueError(f"`action` must hold whole numbers, got {action.dtype}.")
    _require("`action` must hold indices from 0", action, action >= 0)
    return action


def _signal_names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    names = tuple(f"signal {k}" for k in range(count)) if given is None else tuple(map(str, given))
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"`signal_names` must hold {count} different names, got {list(names)}.")
    return names


def _require(rule: str, values: Any, holds: Any) -> None:
    """Raise with the first value for which the rule does not hold."""
    if not holds.all():
        at = tuple(int(k) for k in np.argwhere(~holds)[0])
        raise ValueError(f"{rule}, got {values[at]} in row {at[0]}.")
