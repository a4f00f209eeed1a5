"""An interval for the stationarity gap min over λ of ‖Σ λᵢ∇Jⁱ‖² from independent unbiased gradients.

Whatever λ and d are, as long as they were chosen from other episodes,

    (min over i of d·∇Jⁱ)₊² ≤ gap ≤ ‖Σ λᵢ∇Jⁱ‖²    with ‖d‖ ≤ 1,

so that a lower bound of M scalars and an upper bound of one squared norm are an interval for the gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from moac import simplex
from moac.theory.episodes import Baseline, Episodes
from moac.theory.scores import Metric, Scores

GROUPS = 40
"""Means of so many groups of episodes are compared with each other; memory grows with groups × P."""
_FIRST = 0.25  # share of the episodes that chooses λ and d


@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for the gap, and the λ that attains its upper end."""

    low: float
    high: float
    weights: Float[np.ndarray, " M"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The statistics of n episodes in one metric, for an interval at any confidence; the last m give the bounds."""

    weights: Float[np.ndarray, " M"]  # λ, chosen from the first n − m
    kernel: Float[np.ndarray, "G G"]  # products of the means of groups of the last m of Σ λᵢ xⁱ
    slopes: Float[np.ndarray, "n M"]  # d·xⁱ of each episode, with d chosen from the first n − m
    sizes: Float[np.ndarray, " n"]  # about ‖Σ λᵢ xⁱ‖ of each episode, by how its rewards differ from what V expects
    silent: float  # the same, if an objective that was never rewarded had its largest reward
    bounding: int  # m

    def interval(self, alpha: float) -> Interval:
        """The interval at confidence 1 − α: both ends at α/2.

        The lower end needs no smaller level for each of the M slopes: it is above the smallest of them only if the
        bound of that one fails (an intersection-union test; Berger, 1982).
        """
        level, m = alpha / 2, self.bounding
        along = beyond_normal(_centred(self.slopes @ self.weights), m, level)
        unseen = -math.log(level) * self.silent / len(self.sizes)
        high = upper(self.kernel, level, max(beyond_normal(self.sizes, m, level), along) + unseen)
        margins = np.array([beyond_normal(_centred(column), m, level) for column in self.slopes.T])
        return Interval(min(lower(self.slopes[-m:], level, margins), high), high, self.weights)


@dataclass(frozen=True, eq=False)
class Look:
    """Some episodes in two parts: the first gives baseline, metric, λ and d, the second the bounds."""

    scores: Scores  # of the policy
    episodes: Episodes  # of the policy
    gamma: tuple[float, ...]  # γ, one per objective
    bound: float  # of rewards

    @cached_property
    def metric(self) -> Metric:
        """F̂ + ζI, of the first part."""
        first = self._parts[0]
        return Metric.of(self.scores, first.x, first.weight.max(axis=1) / first.count)

    @cached_property
    def theta(self) -> Evidence:
        """The statistics for the gap in θ."""
        return self._evidence(lambda rows: rows, self.metric.trace)

    @cached_property
    def natural(self) -> Evidence:
        """The statistics for the gap in the metric."""
        return self._evidence(self.metric.solve, self.metric.rank)

    @cached_property
    def norms(self) -> Float[np.ndarray, " M"]:
        """‖∇Jⁱ‖ by the products of two independent estimates; 0 where noise hides it."""
        first, second = self._gradients
        return np.sqrt(np.maximum((first * second).sum(axis=1), 0.0))

    @cached_property
    def _parts(self) -> tuple[Episodes, Episodes]:
        first, last = int(_FIRST * self.episodes.count), self.episodes.count
        return self.episodes.part(0, first), self.episodes.part(first, last)

    @cached_property
    def _V(self) -> Baseline:
        return Baseline.of(self._parts[0], self.gamma)

    @cached_property
    def _advantages(self) -> Float[np.ndarray, "N M"]:
        return self.episodes.advantages(self._V, self.gamma)

    @cached_property
    def _gradients(self) -> Float[np.ndarray, "2 M P"]:
        """The gradients estimated from both halves of the first part."""
        first, A = self._parts[0], self._advantages
        edges = np.array([0, first.count // 2, first.count])
        sums = self.scores.sums(first.x, A[: len(first.number)], np.searchsorted(first.number, edges))
        return sums / np.diff(edges)[:, None, None]

    def _evidence(self, solve: Callable[[Any], Any], size: float) -> Evidence:
        """The statistics in the metric with inverse `solve`; `size` is the squared length of an episode's scores."""
        G, (first, second), A = self._gradients.mean(axis=0), self._parts, self._advantages
        raised = solve(G).astype(np.float64)
        gram = G.astype(np.float64) @ raised.T
        gram = (gram + gram.T) / 2
        lam = min_norm(gram)
        psi = self.scores.slopes(first.x, _direction(gram, lam, raised))
        spread = first.per_episode(psi[:, None] * A[: len(psi)]).std(axis=0)
        d = _direction(gram, cautious(gram, 2 * spread / math.sqrt(second.count)), raised)
        slopes = self.episodes.per_episode(self.scores.slopes(self.episodes.x, d)[:, None] * A)
        edges = np.linspace(0, second.count, min(GROUPS, second.count) + 1).astype(int)
        sums = self.scores.sums(second.x, A[len(psi) :] @ lam[:, None], np.searchsorted(second.number, edges))[:, 0]
        Y = sums / np.diff(edges)[:, None]
        kernel = (Y @ solve(Y).T).astype(np.float64)
        errors = self.episodes.errors(self._V, self.gamma) @ lam
        reach, never = math.sqrt(size), ~self.episodes.reward.any(axis=0)
        sizes, silent = np.sqrt(self.episodes.per_episode(errors**2)) * reach, float(lam @ never) * self.bound * reach
        return Evidence(lam, (kernel + kernel.T) / 2, slopes, sizes, silent, second.count)


def min_norm(gram: Float[np.ndarray, "M M"]) -> Float[np.ndarray, " M"]:
    """λ of the min-norm point."""
    scale = float(np.abs(gram).max())
    if not scale > 0:
        return np.full(len(gram), 1 / len(gram))
    return np.asarray(simplex.min_norm_from_gram(gram / scale).weights)


def cautious(gram: Float[np.ndarray, "M M"], noise: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
    """λ whose direction d has the largest minᵢ (d·∇Jⁱ − noiseᵢ), ‖d‖ ≤ 1: that of min ‖Σ λᵢ∇Jⁱ‖ − Σ λᵢ noiseᵢ."""
    scale = math.sqrt(float(np.abs(gram).max())) or 1.0
    K, b, M = gram / scale**2, noise / scale, len(noise)

    def value(lam: Any) -> tuple[float, Any]:
        length = math.sqrt(max(float(lam @ K @ lam), 1e-30))
        return length - float(b @ lam), K @ lam / length - b

    sums_to_one = {"type": "eq", "fun": lambda lam: lam.sum() - 1, "jac": lambda lam: np.ones(M)}
    options: dict[str, Any] = {"jac": True, "method": "SLSQP", "bounds": [(0, 1)] * M, "constraints": sums_to_one}
    lam = np.maximum(optimize.minimize(value, min_norm(gram), **options).x, 0.0)
    return lam / lam.sum()


def _direction(gram: Any, lam: Float[np.ndarray, " M"], raised: Any) -> Float[np.ndarray, " P"]:
    """d of length 1 along Σ λᵢ∇Jⁱ; 0 where that is 0."""
    length = math.sqrt(max(float(lam @ gram @ lam), 0.0))
    return lam @ raised / (length or math.inf)


def upper(kernel: Float[np.ndarray, "G G"], level: float, margin: float = 0.0) -> float:
    """A bound that is above ‖g‖² with probability 1 − level, by products ⟨y_a, y_b⟩ of G independent means, E y_a = g.

    The mean u over a ≠ b is unbiased for θ = ‖g‖², with variance 4 gᵀΣg/G + 2 tr Σ²/G², Σ = cov(y_a): the bound is the
    largest θ that a test at this level does not reject. u + tr Σ/G = ‖ȳ‖² is a sum of squares of normal numbers; a
    power of it is nearly normal (Jensen and Solomon, 1972). A u below 0 counts as 0, so the bound is positive. tr Σ² is
    the estimate of Bai and Saranadasa (1996), unbiased also where G < P. The variance along g is that along ȳ; as far
    as ȳ is noise, the largest of any direction. `margin` is what ‖g‖ may be above a bound for normal numbers.
    """
    G = len(kernel)
    row, squared, trace = kernel.mean(axis=1), float(kernel.mean()), float(np.trace(kernel))
    centred = kernel - row - row[:, None] + squared
    tr, tr2 = float(np.trace(centred)) / (G - 1), float((centred**2).sum()) / (G - 1) ** 2
    u = max((float(kernel.sum()) - trace) / (G * (G - 1)), 0.0)
    if not tr > 0 or not squared > 0:
        return (math.sqrt(u) + margin) ** 2
    tau = max((G - 1) ** 2 / ((G - 2) * (G + 1)) * (tr2 - tr**2 / (G - 1)), tr2 / G)
    rho = float(((row - squared) ** 2).sum()) / (G - 1) / squared
    largest = min(float(np.linalg.eigvalsh(centred)[-1]) / (G - 1), math.sqrt(tau))
    rho += max(largest - rho, 0.0) * (min(1.0, math.sqrt(2 * tau) / (G * u)) if u > 0 else 1.0)
    q = float(special.stdtrit(G - 1, 1 - level))

    def score(theta: float) -> float:
        return _score(u + tr / G, theta, (tr / G, rho / G, tau / G**2)) + q

    widest = 2 * (u + 2 * q**2 * rho / G + math.sqrt(4 * q**2 * rho * (u + q**2 * rho / G) / G + 2 * q**2 * tau / G**2))
    while score(widest) > 0:
        widest *= 2
    theta: Any = optimize.brentq(score, u, widest)
    return (math.sqrt(theta) + margin) ** 2


def _score(squared: float, theta: float, noise: tuple[float, float, float]) -> float:
    """The normal score of ‖ȳ‖² if ‖g‖² = θ, where cov(ȳ) = S has (tr S, gᵀSg/θ, tr S²) = `noise`.

    With cumulants k₁ = θ + tr S, k₂ = 4 gᵀSg + 2 tr S², k₃ = 24 gᵀS²g + 8 tr S³ and h = 1 − k₁k₃/3k₂², (‖ȳ‖²/k₁)ʰ has
    mean 1 + h(h − 1)k₂/2k₁² and deviation h√k₂/k₁. k₃ is taken as small as the other numbers allow, which is right
    where S is alike in all directions that it has.
    """
    tr, rho, tau = noise
    k1, k2, k3 = theta + tr, 4 * theta * rho + 2 * tau, 24 * theta * rho**2 + 8 * tau**2 / tr
    h, v = max(1 - k1 * k3 / (3 * k2**2), 0.1), k2 / k1**2
    return ((squared / k1) ** h - 1 - h * (h - 1) * v / 2) / (h * math.sqrt(v))


def lower(slopes: Float[np.ndarray, "n M"], level: float, margin: Any = 0.0) -> float:
    """A bound that is below the gap with probability 1 − level: (min over i of a bound of d·∇Jⁱ)₊².

    `slopes` are samples of d·∇Jⁱ, each with Student's bound; `margin` [M] is what they may be below it.
    """
    error = slopes.std(axis=0, ddof=1) / math.sqrt(len(slopes))
    bounds = slopes.mean(axis=0) - special.stdtrit(len(slopes) - 1, 1 - level) * error - margin
    return max(float(bounds.min()), 0.0) ** 2


def _centred(samples: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return np.abs(samples - samples.mean())


def beyond_normal(sizes: Float[np.ndarray, " n"], count: int, level: float) -> float:
    """How much further than a normal bound an upper bound of the mean of `count` samples of such sizes must be.

    As if k events of one size R made up the sum of squares: k = (Σ a²)²/Σ a⁴ of n samples, R² = Σ a⁴/Σ a². Then their
    number has a Poisson law, whose upper limit exceeds the normal k + z√k: by 3.7 events for k = 0, 2.1 for k = 20, and
    (z² + 2)/3 = 1.9 for many, at 97.5 %. By Cauchy-Schwarz that is at least the term of the Edgeworth expansion of
    Student's bound, (2z² + 1)/6 Σ a³/Σ a² (Johnson, 1978; Hall, 1992), whatever the signs: also for many samples the
    bound errs on the safe side.
    """
    largest = float(sizes.max())
    if not largest > 0:
        return 0.0
    squares = (sizes / largest) ** 2
    second, fourth = float(squares.sum()), float((squares**2).sum())
    k, R = second**2 / fourth * count / len(sizes), largest * math.sqrt(fourth / second)
    excess = float(special.gammaincinv(k + 1, 1 - level)) - k - float(special.ndtri(1 - level)) * math.sqrt(k)
    return excess * R / count
