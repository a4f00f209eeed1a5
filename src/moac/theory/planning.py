"""How many samples guarantee ε: the printed corollaries, and a plan whose own bound is at most ε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.optimize import minimize

from moac.theory.bounds import ActorTerms, CriticTerms, Derivation, actor_terms, critic_terms, total
from moac.theory.quantities import Constants

_MOST = 1e300
"""More iterations than this are none."""


@final
@dataclass(frozen=True)
class Plan:
    """Sizes that make the bound of Theorem 2 at most ε above the approximation error.

    Attributes:
        derivation: whose constants.
        epsilon: ε.
        momentum: η_t.
        alpha: α = 1/(3L_J).
        beta: β, the largest that Theorem 1 allows.
        N: TD steps per iteration.
        D: transitions per TD step.
        B: transitions per policy gradient.
        T: iterations; infinite where no number is enough.
        samples: (B + ND)T.
        shares: what the ascent, the critic and the noise contribute to the bound.
        approximation: what ζ adds, whatever the sizes.
    """

    derivation: Derivation
    epsilon: float
    momentum: str
    alpha: float
    beta: float
    N: float
    D: float
    B: float
    T: float
    samples: float
    shares: tuple[float, float, float]
    approximation: float

    @property
    def bound(self) -> float:
        """The bound of Theorem 2 at these sizes, without the approximation error."""
        return sum(self.shares)


def plan(c: Constants, epsilon: float, momentum: str = "1/t", derivation: Derivation = "derived") -> Plan:
    """The cheapest split of ε among ascent, critic (its transient and its floor) and noise.

    Raises:
        ValueError: for an ε that is not positive, or constants that the theorems do not cover.
    """
    _check(epsilon)
    actor, critic = actor_terms(c, derivation), critic_terms(c, derivation)
    start = c.w_star**2

    def cost(x: Any) -> float:
        return math.log(_sizes(actor, critic, start, epsilon * _split(x), momentum)[-1])

    first = next((x for x in np.arange(30.0)[:, None] * [1.0, 0.0, 0.0] if math.isfinite(cost(x))), None)
    if first is None:
        best = np.full(4, 0.25)
    else:
        options = {"xatol": 1e-3, "fatol": 1e-6, "initial_simplex": first + np.vstack([np.zeros(3), np.eye(3)])}
        best = _split(minimize(cost, first, method="Nelder-Mead", options=options).x)
    N, D, B, T, samples = _sizes(actor, critic, start, epsilon * best, momentum)
    return _filled(c, derivation, epsilon, momentum, (N, D, B, T, samples))


def corollaries(c: Constants, epsilon: float, momentum: str = "1/t", derivation: Derivation = "printed") -> Plan:
    """The sizes of the paper's two corollaries; their bound is up to 4.5ε (see `Plan.bound`)."""
    _check(epsilon)
    actor, critic = actor_terms(c, derivation), critic_terms(c, derivation)
    error, lam, beta = epsilon / actor.critic, critic.lambda_A, critic.largest_beta
    N = math.ceil(max(1.0, 8 / (beta * lam) * math.log(max(2 * c.w_star**2 / error, 1.0))))
    D = _whole(critic.per_batch(beta) / error)
    B = _whole(actor.noise / epsilon)
    T = _smallest(lambda T: actor.ascent * max(1.0, 2 * total(momentum, T)) / T <= epsilon)
    return _filled(c, derivation, epsilon, momentum, (N, D, B, T, (B + N * D) * T))


def _filled(c: Constants, derivation: Derivation, epsilon: float, momentum: str, sizes: tuple[Any, ...]) -> Plan:
    N, D, B, T, samples = sizes
    actor, critic = actor_terms(c, derivation), critic_terms(c, derivation)
    beta = critic.largest_beta
    rest = c.w_star**2 * math.exp(N * math.log1p(-beta * critic.lambda_A / 8)) + critic.per_batch(beta) / D
    rate = 0.0 if math.isinf(T) else (actor.ends + 2 * total(momentum, T)) / T
    ascent = actor.ascent * rate if math.isfinite(T) else math.inf
    shares = (ascent, actor.critic * rest, actor.noise / B)
    return Plan(derivation, epsilon, momentum, actor.alpha, beta, N, D, B, T, samples, shares, actor.approximation)


def _sizes(
    actor: ActorTerms, critic: CriticTerms, start: float, shares: Any, momentum: str
) -> tuple[float, float, float, float, float]:
    """N, D, B, T and (B + ND)T for shares of the ascent, the transient, the floor and the noise."""
    ascent, transient, floor, noise = (float(share) for share in shares)
    beta = critic.largest_beta
    shrink = -math.log1p(-beta * critic.lambda_A / 8)
    ratio = actor.critic * start / transient
    N = math.ceil(max(1.0, math.log(ratio) / shrink)) if ratio > 1 else 1
    D = _whole(max(actor.critic * critic.per_batch(beta) / floor, critic.smallest_batch(beta)))
    B = _whole(actor.noise / noise)
    T = _iterations(actor, ascent, momentum)
    return N, D, B, T, (B + N * D) * T


def _iterations(actor: ActorTerms, share: float, momentum: str) -> float:
    return _smallest(lambda T: actor.ascent * (actor.ends + 2 * total(momentum, T)) / T <= share)


def _smallest(enough: Any) -> float:
    """The smallest whole T for which `enough` holds, which once true stays true; infinity where none is."""
    if enough(1.0):
        return 1.0
    high = 2.0
    while not enough(high):
        high *= 2.0
        if high > _MOST:
            return math.inf
    low = high / 2
    while high - low > max(1.0, 1e-12 * high):
        middle = math.floor((low + high) / 2)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)


def _split(x: Any) -> Any:
    """Four positive shares that sum to one."""
    weight = np.exp(np.append(x, 0.0) - max(0.0, float(np.max(x))))
    return weight / weight.sum()


def _whole(value: float) -> float:
    return float(max(1.0, math.ceil(value))) if math.isfinite(value) else math.inf


def _check(epsilon: Any) -> None:
    if not (isinstance(epsilon, int | float) and 0 < epsilon < math.inf):
        raise ValueError(f"`epsilon` must be positive and finite, got {epsilon!r}.")
