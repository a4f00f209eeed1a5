"""Bounds of the stationarity gap min over λ of ‖Σ λᵢ∇Jⁱ‖² from independent unbiased gradients. NumPy and SciPy alone.

Whatever λ and d are, as long as they were chosen from other data,

    (min over i of d·∇Jⁱ)₊² ≤ gap ≤ ‖Σ λᵢ∇Jⁱ‖²    with ‖d‖ ≤ 1,

so that a lower bound of M scalars and an upper bound of one squared norm are an interval for the gap.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

_FEW = 20
"""Events from which on their number is nearly normal."""


def upper(kernel: Float[np.ndarray, "G G"], level: float, margin: float = 0.0) -> float:
    """A bound that is above ‖g‖² with probability 1 − level, by products ⟨y_a, y_b⟩ of G independent means, E y_a = g.

    The mean u over a ≠ b is unbiased for θ = ‖g‖², with variance 4 gᵀΣg/G + 2 tr Σ²/G², Σ = cov(y_a): the bound is the
    largest θ that a test at this level does not reject. u + tr Σ/G = ‖ȳ‖² is a sum of squares of normal numbers; a
    power of it is nearly normal (Jensen and Solomon, 1972). A u below 0 counts as 0, so the bound is positive. tr Σ² is
    the estimate of Bai and Saranadasa (1996), unbiased also where G < P.

    Args:
        kernel: the products.
        level: α.
        margin: what ‖g‖ may be above the bound because rare samples were not drawn (`unseen`).
    """
    G = len(kernel)
    row, squared, trace = kernel.mean(axis=1), float(kernel.mean()), float(np.trace(kernel))
    centred = kernel - row - row[:, None] + squared
    tr, tr2 = float(np.trace(centred)) / (G - 1), float((centred**2).sum()) / (G - 1) ** 2
    if not tr > 0 or not squared > 0:
        return margin**2
    u = max((float(kernel.sum()) - trace) / (G * (G - 1)), 0.0)
    tau = max((G - 1) ** 2 / ((G - 2) * (G + 1)) * (tr2 - tr**2 / (G - 1)), tr2 / G)
    rho = float(((row - squared) ** 2).sum()) / (G - 1) / squared  # along ȳ; as far as that is noise, half way up
    largest = min(float(np.linalg.eigvalsh(centred)[-1]) / (G - 1), math.sqrt(tau))
    rho += 0.5 * max(largest - rho, 0.0) * min(1.0, math.sqrt(2 * tau) / (G * u) if G * u > 0 else 1.0)
    q = float(stats.t.ppf(1 - level, G - 1))

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
    """A bound that is below the gap with probability 1 − level: (min over i of a bound of d·∇Jⁱ at level/M)₊².

    `slopes` are samples of d·∇Jⁱ, each with Student's bound; `margin` [M] as in `upper`.
    """
    n, M = slopes.shape
    error = slopes.std(axis=0, ddof=1) / math.sqrt(n)
    bounds = slopes.mean(axis=0) - stats.t.ppf(1 - level / M, n - 1) * error - margin
    return max(float(bounds.min()), 0.0) ** 2


def unseen(sizes: Float[np.ndarray, "n M"], level: float, largest: float = 0.0) -> Float[np.ndarray, " M"]:
    """How much rare samples that were not drawn may add to means of n samples of these sizes, beyond a normal bound.

    If k of n samples carry the sum of squares, k = (Σ a²)²/Σ a⁴, each of size R = (Σ a⁴/Σ a²)^½, then the upper limit
    of a Poisson mean after k events exceeds the normal one, k + z√k, by some events: 3.7 for k = 0, 2.1 for k = 20, at
    97.5 %; beyond, they are taken to fade as 20/k. They matter as R/n, beside a standard error of R√k/n. Where all
    sizes are 0, R is `largest`.
    """
    scale = np.maximum(sizes.max(axis=0), np.finfo(np.float64).tiny)
    squares = (sizes / scale) ** 2
    second, fourth = squares.sum(axis=0), (squares**2).sum(axis=0)
    known = second > 0
    k = np.divide(second**2, fourth, out=np.zeros_like(second), where=known)
    R = np.where(known, scale * np.sqrt(np.divide(fourth, second, out=np.zeros_like(second), where=known)), largest)
    excess = stats.chi2.ppf(1 - level, 2 * k + 2) / 2 - k - stats.norm.ppf(1 - level) * np.sqrt(k)
    return excess * np.minimum(1.0, _FEW / np.maximum(k, 1.0)) * R / len(sizes)
