"""FairGrad: α-fair gains.

Ban and Ji, *Fair Resource Allocation in Multi-Task Learning*, 2024, https://arxiv.org/abs/2402.15638.

FairGrad and Nash-MTL solve K λ = λ^−p, the optimum of a convex barrier: ½ λᵀKλ − Σ Φ(λᵢ), Φ' = λ^−p. With
n = √diag K, cosines C and β = n∘λ it is C β = n^(p−1) β^−p, whose Newton steps are taken relative to β: a step that
would change some βᵢ by more than its own size is shortened, so that the curvature stays what it was taken for.

At a Pareto-stationary point there is no solution: λ grows without bound while the direction keeps its length. A ridge
of the size of rounding ends that, and there the direction vanishes. A zero gradient gets the weight 0.

>>> rule = fairgrad(2.0)
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from moac import simplex
from moac.arguments import checked
from moac.choices import POSITIVE
from moac.weighting.rule import Rule, lengths, stateless

_NEWTON_STEPS = 80  # at most; ten are usual, and each may double a weight


@checked
def fairgrad(alpha: float = 1.0) -> Rule:
    """α-fair gains: K λ = λ^(−1/α), which maximises Σ (gⁱᵀd)^(1−α)/(1−α) over ‖d‖ ≤ 1 (Ban and Ji, 2024).

    gⁱᵀd > 0 for all i. α → 0 is the sum, 1 is Nash bargaining, and α → ∞ max-min fairness. λ is as defined: for α = 1
    the direction has length √M, whatever the length of the gradients.

    Args:
        alpha: α > 0.
    """
    p = 1 / POSITIVE.checked("alpha", alpha)
    return stateless(lambda K: fair_weights(K, p), simplex=False)


def fair_weights(K: Float[Array, "M M"], p: float) -> Float[Array, " M"]:
    """λ with K λ = λ^−p: of K/s it is s^(1/(1+p)) times that of K."""
    largest = jnp.max(jnp.diagonal(K))
    s = jnp.where(largest > 0, largest, 1)
    return _balanced(K / s, p) * s ** (-1 / (1 + p))


def _balanced(K: Float[Array, "M M"], p: float) -> Float[Array, " M"]:
    """λ with K λ = λ^−p, 0 for zero gradients; the largest of K's diagonal is 1."""
    eps = jnp.finfo(K.dtype).eps
    n, C = lengths(K)
    there = n > 0
    C = C + 8 * len(n) * eps * jnp.eye(len(n), dtype=K.dtype)
    size = jnp.maximum(jnp.where(there, n, 1) ** (p - 1), jnp.finfo(K.dtype).tiny ** 0.5)

    def step(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        beta, _, count = carry
        s = _relative_newton_step(C, size * beta ** (1 - p), beta, p)
        change = jnp.max(jnp.abs(s)) * max(1.0, (1 + p) / 2)
        return beta * (1 + s / (1 + change)), change, count + 1

    start = size ** (1 / (1 + p)), jnp.ones((), K.dtype), jnp.zeros((), jnp.int32)
    beta, _, _ = lax.while_loop(lambda carry: (carry[1] > jnp.sqrt(eps) / 8) & (carry[2] < _NEWTON_STEPS), step, start)
    return jnp.where(there, beta / jnp.where(there, n, 1), 0)


def _relative_newton_step(
    C: Float[Array, "M M"], gain: Float[Array, " M"], beta: Float[Array, " M"], p: float
) -> Array:
    """s of β ← β∘(1 + s): (βCβ + diag(p·gain)) s = gain − β∘Cβ, where gain = n^(p−1) β^(1−p); scaled to pivots ≥ 1."""
    root = jnp.sqrt(p * gain)
    b = beta / root
    H = b[:, None] * C * b + jnp.eye(len(b), dtype=C.dtype)
    u, _ = simplex.solve(H, (gain - beta * (C @ beta)) / root, jnp.ones(len(b), bool))
    return u / root
