"""What episodes say of the stationarity gap, before a confidence is chosen.

An eighth of the episodes gives the baseline and the metric, a quarter λ and d, the rest bounds of what the others have
fixed (`intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import simplex
from moac.theory import intervals, logged
from moac.theory.episodes import Baseline, Episodes
from moac.theory.scores import Metric, Scores

GROUPS = 40
"""Means of so many groups of episodes are compared with each other; memory grows with groups × P."""


@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for the gap, and the λ that attains its upper end."""

    low: float
    high: float
    weights: Float[np.ndarray, " M"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What episodes say of the gap in one metric, whatever the confidence."""

    weights: Float[np.ndarray, " M"]  # λ, chosen from other episodes
    kernel: Float[np.ndarray, "G G"]  # products of the means of groups of episodes of Σ λᵢ xⁱ
    slopes: Float[np.ndarray, "n M"]  # d·xⁱ of each episode, with d chosen from others
    sizes: Float[np.ndarray, "N M"]  # what each episode, also of those others, has to tell of each objective
    reach: tuple[float, float]  # of one unit of size, in ‖g‖ and in d·g
    bound: float  # of rewards

    def interval(self, alpha: float) -> Interval:
        """The interval at confidence 1 − α: both ends at α/2."""
        share, M = len(self.sizes) / len(self.slopes), len(self.weights)
        mixed = np.abs(self.slopes @ self.weights)[:, None]
        rare = [intervals.unseen(self.sizes, level, self.bound) * share for level in (alpha / 2, alpha / 2 / M)]
        margin = max(float(rare[0] @ self.weights) * self.reach[0], float(intervals.unseen(mixed, alpha / 2)[0]))
        margins = np.maximum(rare[1] * self.reach[1], intervals.unseen(np.abs(self.slopes), alpha / 2 / M))
        high = intervals.upper(self.kernel, alpha / 2, margin)
        return Interval(min(intervals.lower(self.slopes, alpha / 2, margins), high), high, self.weights)


@dataclass(frozen=True, eq=False)
class Look:
    """Some episodes in three parts: the first gives baseline and metric, the second λ and d, the last the bounds."""

    scores: Scores  # of the policy
    episodes: Episodes  # of the policy
    gamma: tuple[float, ...]  # γ, one per objective
    bound: float  # of rewards

    @cached_property
    def metric(self) -> Metric:
        """F̂ + ζI, of the first part."""
        pilot = self._part(0)
        return Metric.of(self.scores, pilot.x, pilot.weight.max(axis=1) / pilot.count)

    @cached_property
    def theta(self) -> Evidence:
        """What they say of the gap in θ."""
        return self._evidence(lambda rows: rows, self.metric.trace)

    @cached_property
    def natural(self) -> Evidence:
        """What they say of it in the metric."""
        return self._evidence(self.metric.solve, self.metric.rank)

    @cached_property
    def norms(self) -> Float[np.ndarray, " M"]:
        """‖∇Jⁱ‖ by the products of two independent estimates; 0 where noise hides it."""
        first, second = self._gradients
        return np.sqrt(np.maximum((first * second).sum(axis=1), 0.0))

    @cached_property
    def _V(self) -> Baseline:
        return (Baseline.of if self.episodes.summed else logged.values)(self._part(0), self.gamma)

    @cached_property
    def _gradients(self) -> list[Float[np.ndarray, "M P"]]:
        """Of both halves of the second part."""
        part = self._part(1)
        halves = part.part(0, part.count // 2), part.part(part.count // 2, part.count)
        return [self.scores.total(half.x, half.advantages(self._V, self.gamma)) / half.count for half in halves]

    def _part(self, number: int) -> Episodes:
        edges = [self.episodes.count * eighths // 8 for eighths in (0, 1, 3, 8)]
        return self.episodes.part(edges[number], edges[number + 1])

    def _evidence(self, solve: Callable[[Any], Any], size: float) -> Evidence:
        """In the metric whose inverse `solve` applies; `size` is the squared length of an episode's scores in it."""
        G, bounding = np.mean(self._gradients, axis=0), self._part(2)
        raised = solve(G).astype(np.float64)
        lam, d = _chosen(G.astype(np.float64) @ raised.T, raised)
        A, psi = bounding.advantages(self._V, self.gamma), self.scores.slopes(bounding.x, d)
        along = bounding.per_episode(psi**2).mean()
        edges = np.linspace(0, bounding.count, min(GROUPS, bounding.count) + 1).astype(int)
        Y = self.scores.totals(bounding.x, A @ lam, np.searchsorted(bounding.number, edges)) / np.diff(edges)[:, None]
        kernel = (Y @ solve(Y).T).astype(np.float64)
        sizes, reach = self.episodes.innovations(self._V, self.gamma), (math.sqrt(size), math.sqrt(along))
        slopes = bounding.per_episode(psi[:, None] * A)
        return Evidence(lam, (kernel + kernel.T) / 2, slopes, sizes, reach, self.bound)


def _chosen(gram: Float[np.ndarray, "M M"], raised: Any) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " P"]]:
    """λ of the min-norm point, and the direction d of length 1 towards it; 0 where there is none."""
    gram = (gram + gram.T) / 2
    scale = float(np.abs(gram).max())
    if not scale > 0:
        return np.full(len(gram), 1 / len(gram)), np.zeros(raised.shape[1])
    lam = np.asarray(simplex.min_norm_from_gram(gram / scale).weights)
    length = math.sqrt(max(float(lam @ gram @ lam), 0.0))
    return lam, lam @ raised / (length or math.inf)
