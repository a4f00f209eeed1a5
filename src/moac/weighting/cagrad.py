"""CAGrad: the direction near the mean gradient that serves the worst objective best.

Liu et al., *Conflict-Averse Gradient Descent for Multi-task Learning*, 2021, https://arxiv.org/abs/2110.14048.

>>> rule = cagrad(0.4)
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from moac import simplex
from moac.arguments import checked
from moac.choices import NOT_NEGATIVE
from moac.weighting.rule import Rule, stateless


@checked
def cagrad(c: float = 0.4) -> Rule:
    """d = argmax over ‖d − g⁰‖ ≤ c‖g⁰‖ of min_i gⁱᵀd, with g⁰ the mean gradient (Liu et al., 2021).

    With g^w = Σ wᵢgⁱ, its dual is w = argmin over the simplex of g^wᵀg⁰ + c‖g⁰‖‖g^w‖, and

        d = g⁰ + c‖g⁰‖ g^w / ‖g^w‖,    λ = 1/M + c‖g⁰‖/‖g^w‖ w.

    λ = 0 where g^w vanishes: no direction is better than none for the worst objective.

    Args:
        c: the radius, at least 0; 0 is the mean gradient, and below 1 its stationary points are those of the mean.
    """
    NOT_NEGATIVE.checked("c", c)
    return stateless(lambda K: _conflict_averse(K, c), simplex=False)


def _conflict_averse(K: Float[Array, "M M"], c: float) -> Float[Array, " M"]:
    """By halving log τ: for τ = ‖g^w‖ the dual is the programme min g^wᵀg⁰ + r‖g^w‖²/(2τ), r = c‖g⁰‖."""
    M, eps = K.shape[0], jnp.finfo(K.dtype).eps
    largest = jnp.max(jnp.diagonal(K))
    K = K / jnp.where(largest > 0, largest, 1)
    mean = jnp.full(M, 1 / M, K.dtype)
    r = c * _length(K, mean)
    smallest = jnp.sqrt(64 * eps)  # a Gram matrix knows no shorter vector

    # The dual has ‖g^w‖ in it, not its square. With τ held in its place it is a quadratic programme, and τ is right
    # where the solution's own ‖g^w‖ equals it; that is found by bisection, since ‖g^w‖/τ falls with τ.
    def dual(log_tau: Array) -> Float[Array, " M"]:
        return simplex.on_capped_simplex(r * jnp.exp(-log_tau) * K, -K @ mean)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        beyond = _length(K, dual(middle)) > jnp.exp(middle)
        return jnp.where(beyond, middle, low), jnp.where(beyond, high, middle)

    ends = jnp.log(smallest / 2), jnp.log(jnp.ones((), K.dtype) * 1.1)
    low, high = lax.fori_loop(0, jnp.finfo(K.dtype).nmant + 4, halve, ends)
    w = dual((low + high) / 2)
    length = _length(K, w)
    lam = mean + r / jnp.where(length > smallest, length, 1) * w
    return jnp.where((length > smallest) & (largest > 0), lam, 0) if c > 0 else mean


def _length(K: Float[Array, "M M"], w: Float[Array, " M"]) -> Array:
    return jnp.sqrt(jnp.maximum(w @ K @ w, 0))
