"""Valuing many policies by episodes within a number of environment steps: few first, more where policies are close."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from moac import statistics
from moac.config import Average
from moac.envs import Environment
from moac.envs.evaluation import Budget, Episodes, Following, play_within, reused, seeds_of
from moac.envs.rollout import Copy
from moac.search.archive import overlapping, surely_dominated
from moac.statistics import Mean
from moac.training.trained import TrainedPolicy

FIRST = 5
"""Episodes of each policy before it is known which policies are close to each other."""
STREAM = 1_000_000
"""Sets these seeds apart from those of the evaluations while training."""
Report = Callable[[int, int], None]
"""Told how many episodes have been played, and of how many."""


@dataclass(frozen=True)
class Effort:
    """How many episodes policies are valued by."""

    most: int  # episodes of each policy, at most
    steps: float = math.inf  # environment steps of all policies together, at most
    first: int = FIRST  # episodes of each policy, before those that are close to others get more
    least: int = 0  # so many policies play an episode, whatever it takes
    longest: int = 0  # steps of the longest episode that is known; 0 where none is


@dataclass(frozen=True, eq=False)
class Values:
    """What K policies are worth by episodes."""

    mean: Float[np.ndarray, "K M"]  # NaN for a policy that played none
    low: Float[np.ndarray, "K M"]  # lower end of the 95 % interval; NaN with fewer than two episodes
    high: Float[np.ndarray, "K M"]  # upper end, likewise
    episodes: Int[np.ndarray, " K"]  # how many each policy has played
    steps: int  # environment steps of all of them
    longest: int  # steps of the longest one

    @property
    def known(self) -> Bool[np.ndarray, " K"]:
        """The policies that have played."""
        return self.episodes > 0


def valued_within(
    environment: Environment,
    policies: Sequence[TrainedPolicy],
    preferences: Float[np.ndarray, "K M"],
    effort: Effort,
    report: Report = lambda done, of: None,
) -> Values:
    """Value policies by episodes.

    Where not even one episode of each fits, policies with preferences far from each other come first, and the last
    ones play none.
    """
    with reused() as copies:
        valuation = _Valuation(environment, policies, effort, copies, report)
        _play_first(valuation, _spread_out(preferences))
        _play_more(valuation)
        return valuation.values()


class _Valuation:
    """The episodes that each policy has played so far, and the steps that are left."""

    def __init__(
        self,
        environment: Environment,
        policies: Sequence[TrainedPolicy],
        effort: Effort,
        copies: list[Copy],
        report: Report,
    ) -> None:
        self.environment, self.policies, self.effort = environment, policies, effort
        self.budget = Budget(effort.steps, effort.longest)
        self._copies, self._report = copies, report
        setting = policies[0].setting or Average()
        self._is_average = isinstance(setting, Average)
        self._following = Following(setting.discounts(environment.spec.num_objectives))
        self._seeds = [seeds_of(STREAM + policy.trial, effort.most) for policy in policies]
        self._played: list[list[Episodes]] = [[] for _ in policies]

    @property
    def fitting(self) -> int:
        """Episodes that fit into the steps that are left."""
        return self.budget.fitting(min(self.environment.interface.limit, self._following.longest))

    @property
    def counts(self) -> Int[np.ndarray, " K"]:
        """Episodes of each policy."""
        return np.array([sum(len(part.lengths) for part in parts) for parts in self._played])

    @property
    def mean_lengths(self) -> Float[np.ndarray, " K"]:
        """Mean number of steps of each policy's episodes; 1 where it has played none."""
        totals = np.array([sum(part.steps for part in parts) for parts in self._played])
        return np.maximum(totals, 1) / np.maximum(self.counts, 1)

    def play(self, k: int, count: int) -> None:
        """The next episodes of a policy, as many as fit, and at least one."""
        played = int(self.counts.sum())
        self._report(played, min(played + self.fitting, self.effort.most * len(self.policies)))
        done = int(self.counts[k])
        seeds = self._seeds[k][done : done + count]
        following, copies = self._following, self._copies
        episodes = play_within(self.environment, self.policies[k], seeds, following, self.budget, copies)
        self._played[k].append(episodes)

    def values(self) -> Values:
        """What the policies are worth by now."""
        M = self.environment.spec.num_objectives
        mean, low, high = np.full((3, len(self.policies), M), np.nan)
        for k, parts in enumerate(self._played):
            if parts:
                means = self._means(Episodes.joined(parts))
                mean[k] = [one.value for one in means]
                low[k] = [one.low for one in means]
                high[k] = [one.high for one in means]
        return Values(mean, low, high, self.counts, self.budget.taken, self.budget.longest)

    def _means(self, episodes: Episodes) -> tuple[Mean, ...]:
        if self._is_average:
            return per_step([episodes])
        return means([episodes.discounted])


def _play_first(valuation: _Valuation, order: Sequence[int]) -> None:
    """A few episodes of each policy, fewer where more do not fit for all of them."""
    few = min(valuation.effort.first, valuation.effort.most)
    for place, k in enumerate(order):
        fitting = valuation.fitting
        if fitting == 0 and place >= valuation.effort.least:
            break
        share = fitting // (len(order) - place)
        valuation.play(k, min(max(share, 1), few))


def _play_more(valuation: _Valuation) -> None:
    """Twice the episodes for policies that are close to others, time after time; then for all that may be archived."""
    while valuation.fitting > 0:
        values = valuation.values()
        low, high = _ends(values)
        unfinished = values.known & (values.episodes < valuation.effort.most)
        worthy = values.known & ~surely_dominated(low, high)
        chosen = unfinished & worthy & _close(low, high, worthy)
        if not chosen.any():
            chosen = unfinished & worthy
        if not chosen.any():
            break
        _play_round(valuation, np.flatnonzero(chosen), values.episodes)


def _play_round(valuation: _Valuation, chosen: Int[np.ndarray, " n"], episodes: Int[np.ndarray, " K"]) -> None:
    """As many episodes again for each of some policies, fewer where the steps that are left ask for it."""
    wanted = np.minimum(episodes[chosen], valuation.effort.most - episodes[chosen])
    cost = float((wanted * valuation.mean_lengths[chosen]).sum())
    affordable = min(1.0, valuation.budget.left / cost)
    for k, count in zip(chosen.tolist(), wanted.tolist(), strict=True):
        if valuation.fitting == 0:
            return
        valuation.play(k, max(1, int(affordable * count)))


def _close(
    low: Float[np.ndarray, "K M"], high: Float[np.ndarray, "K M"], others: Bool[np.ndarray, " K"]
) -> Bool[np.ndarray, " K"]:
    """The policies whose intervals overlap, in every objective, with those of one of the `others`."""
    overlap = overlapping(low, high) & others
    np.fill_diagonal(overlap, False)
    return np.asarray(overlap.any(axis=1))


def _ends(values: Values) -> tuple[Float[np.ndarray, "K M"], Float[np.ndarray, "K M"]]:
    """Intervals, infinite where there are too few episodes for one."""
    low = np.where(np.isnan(values.low), -np.inf, values.low)
    high = np.where(np.isnan(values.high), np.inf, values.high)
    return low, high


def _spread_out(preferences: Float[np.ndarray, "K M"]) -> list[int]:
    """The order in which each next preference is the one farthest from all before it, corners first.

    Preferences that are not known keep their order.
    """
    if not np.isfinite(preferences).all():
        return list(range(len(preferences)))
    order: list[int] = []
    distance = np.full(len(preferences), np.inf)
    for corner in np.eye(preferences.shape[1]):
        nearest = int(np.linalg.norm(preferences - corner, axis=1).argmin())
        if nearest not in order:
            order.append(nearest)
            distance = np.minimum(distance, np.linalg.norm(preferences - preferences[nearest], axis=1))
    while len(order) < len(preferences):
        distance[order] = -1.0
        farthest = int(distance.argmax())
        order.append(farthest)
        distance = np.minimum(distance, np.linalg.norm(preferences - preferences[farthest], axis=1))
    return order


def means(tables: Sequence[Float[np.ndarray, "E M"]]) -> tuple[Mean, ...]:
    """One mean per objective: over episodes of a single trial, or over the means of several."""
    rows = tables[0]
    if len(tables) > 1:
        rows = np.stack([table.mean(axis=0) for table in tables])
    return tuple(statistics.mean(column) for column in rows.T)


def mean_per_step(episodes: Episodes) -> Float[np.ndarray, " M"]:
    """Reward per step."""
    return episodes.returns.sum(axis=0) / episodes.steps


def per_step(played: Sequence[Episodes]) -> tuple[Mean, ...]:
    """Rewards per step; of a single trial with the interval of a ratio of two means (delta method)."""
    J = np.stack([mean_per_step(episodes) for episodes in played])
    if len(played) == 1:
        (episodes,) = played
        J = J + (episodes.returns - J * episodes.lengths[:, None]) / episodes.lengths.mean()
    return tuple(statistics.mean(column) for column in J.T)
