"""Rules that start from the sum or the mean of the gradients and take conflict out of it.

Their weights are not on the simplex: each has the scale of its definition, in which the mean gradient is (1/M, …, 1/M)
for CAGrad and UPGrad, and the sum of gradients is (1, …, 1) for PCGrad.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from moac import active_set
from moac.weighting.rule import Rule, at_least_zero, lengths, stateless, where_finite


def cagrad(c: float = 0.4) -> Rule:
    """d = argmax over ‖d − g⁰‖ ≤ c‖g⁰‖ of min_i gⁱᵀd, with g⁰ the mean gradient (Liu et al., 2021).

    With g^w = Σ wᵢgⁱ, its dual is w = argmin over the simplex of g^wᵀg⁰ + c‖g⁰‖‖g^w‖, and

        d = g⁰ + c‖g⁰‖ g^w / ‖g^w‖,    λ = 1/M + c‖g⁰‖/‖g^w‖ w.

    λ = 0 where g^w vanishes: no direction is better than none for the worst objective.

    Args:
        c: the radius, at least 0; 0 is the mean gradient, and below 1 its stationary points are those of the mean.
    """
    at_least_zero("c", c)

    return stateless(lambda K: _conflict_averse(K, c), simplex=False)


def _conflict_averse(K: Float[Array, "M M"], c: float) -> Float[Array, " M"]:
    """By halving log τ: for τ = ‖g^w‖ the dual is the programme min g^wᵀg⁰ + r‖g^w‖²/(2τ), r = c‖g⁰‖."""
    M, eps = K.shape[0], jnp.finfo(K.dtype).eps
    largest = jnp.max(jnp.diagonal(K))
    K = K / jnp.where(largest > 0, largest, 1)
    mean = jnp.full(M, 1 / M, K.dtype)
    r = c * _length(K, mean)
    smallest = jnp.sqrt(64 * eps)  # a Gram matrix knows no shorter vector

    def dual(log_tau: Array) -> Float[Array, " M"]:
        return active_set.on_capped_simplex(r * jnp.exp(-log_tau) * K, -K @ mean)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        beyond = _length(K, dual(middle)) > jnp.exp(middle)  # ‖g^w‖/τ falls with τ
        return jnp.where(beyond, middle, low), jnp.where(beyond, high, middle)

    ends = jnp.log(smallest / 2), jnp.log(jnp.ones((), K.dtype) * 1.1)
    low, high = lax.fori_loop(0, jnp.finfo(K.dtype).nmant + 4, halve, ends)
    w = dual((low + high) / 2)
    length = _length(K, w)
    found = mean + r / jnp.where(length > smallest, length, 1) * w
    return jnp.where((length > smallest) & (largest > 0), found, 0) if c > 0 else mean


def _length(K: Float[Array, "M M"], w: Float[Array, " M"]) -> Array:
    return jnp.sqrt(jnp.maximum(w @ K @ w, 0))


def pcgrad(seed: int = 0) -> Rule:
    """d = Σᵢ g̃ⁱ, each gⁱ projected in turn off the normal plane of what it conflicts with (Yu et al., 2020).

    g̃ ← gⁱ; for every j ≠ i in random order: g̃ ← g̃ − min(g̃ᵀgʲ, 0) gʲ/‖gʲ‖². With two objectives nothing falls; with
    more a later projection may undo an earlier one.

    Args:
        seed: of the orders, which are drawn anew for every t, the same in every trial.
    """
    key = jax.random.key(seed)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        M = K.shape[0]
        draws = jax.random.uniform(jax.random.fold_in(key, jnp.asarray(t, jnp.uint32)), (M, M))
        n, C = lengths(K)
        v = jax.vmap(_projected, in_axes=(None, 0, 0))(C, jnp.arange(M), jnp.argsort(draws, axis=1))
        scaled = n[:, None] * v / jnp.where(n > 0, n, 1)  # from unit gradients back to their own lengths
        return state, where_finite(K, jnp.sum(jnp.where(jnp.eye(M, dtype=bool), v, scaled), axis=0))

    return Rule(lambda M: (), update, simplex=False)


def _projected(C: Float[Array, "M M"], i: Array, order: Array) -> Float[Array, " M"]:
    """Weights of g̃ⁱ for gradients of length one."""
    v = jnp.zeros(C.shape[0], C.dtype).at[i].set(1)
    for j in order:
        v = v.at[j].add(jnp.where(j != i, jnp.maximum(-C[j] @ v, 0), 0))
    return v


def imtl_g() -> Rule:
    """d with equal projections on all gⁱ/‖gⁱ‖: λ ∝ K⁺ √diag K, Σλ = 1; weights may be negative (Liu et al., 2021).

    With linearly dependent gradients the pseudo-inverse is the generalisation of Quinton and Rey (2024). λ = 0 where
    K⁺ √diag K sums to zero, within rounding.
    """

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        K = K / jnp.where(jnp.max(jnp.diagonal(K)) > 0, jnp.max(jnp.diagonal(K)), 1)
        v = jnp.linalg.pinv(K, hermitian=True) @ lengths(K)[0]
        total = jnp.sum(v)
        there = jnp.abs(total) > 64 * jnp.finfo(K.dtype).eps * jnp.sum(jnp.abs(v))
        return jnp.where(there, v / jnp.where(there, total, 1), 0)

    return stateless(weights, simplex=False)


def upgrad() -> Rule:
    """d = (1/M) Σᵢ of each gⁱ projected on the dual cone {d: gʲᵀd ≥ 0 for all j} (Quinton and Rey, 2024).

    The projection of gⁱ is gⁱ + Σⱼ xⱼgʲ with x = argmin over x ≥ 0 of ‖gⁱ + Σⱼ xⱼgʲ‖². Nothing falls along d, and d is
    linear in each ‖gⁱ‖.
    """

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        n, C = lengths(K)
        there = n > 0
        y, _ = jax.vmap(active_set.non_negative, in_axes=(None, 0))(C, -jnp.where(there, C, 0))
        x = jnp.where(there, n[:, None] * y / jnp.where(there, n, 1), 0)  # row i: of the projection of gⁱ
        return (1 + jnp.sum(x, axis=0)) / K.shape[0]

    return stateless(weights, simplex=False)
