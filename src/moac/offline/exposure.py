"""Random exposure: the change to the behaviour policy where chance alone decided what was shown.

On rows of uniformly random exposure nothing unobserved can have decided, and no policy was trained on them: all of them
are used, whatever the split of their users. Beside it stands the same change on the same users' standard rows, and the
difference of the two, which is 0 on average where the standard log is not confounded. Levels differ for other reasons,
such as who is shown random items and where, and are a footnote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from moac.logs.dataset import LoggedDataset
from moac.offline import ncis
from moac.offline.ncis import estimates
from moac.offline.ncis.limits import MIN_POSITIVES


@dataclass(frozen=True, eq=False)
class Exposure:
    """The relative change of each signal from the behaviour policy to another, by chance and by the log."""

    signals: tuple[str, ...]
    rows: int  # of random exposure
    users: int  # that have any
    events: Float[np.ndarray, " M"]  # rows of random exposure with the signal
    change: Float[np.ndarray, " M"]  # on random exposure
    interval: Float[np.ndarray, "M 2"]  # over users
    standard: Float[np.ndarray, " M"]  # on the same users' standard rows
    standard_interval: Float[np.ndarray, "M 2"]
    difference: Float[np.ndarray, " M"]  # standard minus random: what the log shows and chance does not
    difference_interval: Float[np.ndarray, "M 2"]  # users drawn alike for both
    level: Float[np.ndarray, " M"]  # mean reward of the behaviour policy on random exposure
    standard_level: Float[np.ndarray, " M"]  # and on the same users' standard rows

    def of(self, signal: str) -> dict[str, Any] | None:
        """One signal as plain data, each change with the ends of its interval; None where there is too little."""
        k = self.signals.index(signal) if signal in self.signals else None
        if k is None or not self.estimable[k]:
            return None
        changes = {name: getattr(self, name)[k] for name in ("change", "standard", "difference")}
        ends = (self.interval[k], self.standard_interval[k], self.difference_interval[k])
        told = {
            name: [float(value), *map(float, end)] for (name, value), end in zip(changes.items(), ends, strict=True)
        }
        levels = {"level": float(self.level[k]), "standard_level": float(self.standard_level[k])}
        return told | {"rows": self.rows, "users": self.users, "events": int(self.events[k])} | levels

    @property
    def estimable(self) -> Bool[np.ndarray, " M"]:
        """Whether there are enough rows with the signal."""
        return self.events >= MIN_POSITIVES


def exposures(
    dataset: LoggedDataset, methods: Mapping[str, Any], probabilities: Any, options: ncis.Options
) -> dict[str, Exposure]:
    """What random exposure says of each method; nothing where the log has none, or no model of how it chose.

    `probabilities` is `evaluate.probabilities`: (dataset, policy, θ, rows) ↦ [R, n] of logged actions.
    """
    random, model, known = dataset.random, dataset.behaviour, dataset.propensity
    if random is None or model is None or known is None or len(np.unique(random.user)) < 2:
        return {}
    users, everywhere = np.unique(random.user), np.arange(random.num_rows)
    rows = np.flatnonzero(np.isin(dataset.user, users))
    by_chance = partial(_sums, random, everywhere, users, np.inf)
    by_log = partial(_sums, dataset, rows, users, options.cap)
    base, logged = by_chance(probabilities(random, *model.method, everywhere)), by_log(known[rows][None])

    def one(method: Any) -> Exposure:
        theirs = by_chance(probabilities(random, *method, everywhere)), by_log(probabilities(dataset, *method, rows))
        changes = [_changes(*pair, options) for pair in zip(theirs, (base, logged), strict=True)]
        events = (random.reward != 0).sum(axis=0)
        (change, chance_draws), (standard, log_draws) = changes
        intervals = (estimates.interval(draws, options.level) for draws in (chance_draws, log_draws))
        difference = estimates.interval(log_draws - chance_draws, options.level)
        levels = (np.abs(_value(sums)[0]) for sums in (base, logged))
        first, second = intervals
        about = (dataset.signal_names, random.num_rows, len(users), events)
        return Exposure(*about, change, first, standard, second, standard - change, difference, *levels)

    return {name: one(method) for name, method in methods.items()}


def _sums(
    source: LoggedDataset, rows: Any, users: Any, cap: float, p: Float[np.ndarray, "R n"]
) -> Float[np.ndarray, "U R 1+M"]:
    """Σ w and Σ w r of each user under each training seed, w = min(C, π/π_b); zeros of a user without rows."""
    known: Any = source.propensity
    w = np.minimum(p / known[rows], cap)
    reward = np.column_stack([np.ones(len(rows)), source.reward[rows]]).astype(np.float64)
    sums = np.zeros((len(users), len(w), reward.shape[1]))
    np.add.at(sums, np.searchsorted(users, source.user[rows]), w.T[:, :, None] * reward[:, None])
    return sums


def _value(sums: Float[np.ndarray, "U R 1+M"]) -> Float[np.ndarray, "1 M"]:
    """Σ w r / Σ w, mean over training seeds."""
    return _ratio(sums.sum(axis=0)[None])


def _ratio(total: Float[np.ndarray, "B R 1+M"]) -> Float[np.ndarray, "B M"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (total[..., 1:] / total[..., :1]).mean(axis=1)


def _changes(policy: Any, base: Any, options: ncis.Options) -> tuple[Any, Any]:
    """V / V_b − 1, and in each draw of users; a cost that falls is negative."""
    drawn = estimates.resampled([policy, base], options.draws, options.seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (_value(policy) / _value(base) - 1)[0], _ratio(drawn[0]) / _ratio(drawn[1]) - 1
