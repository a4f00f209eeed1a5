"""Weighting rules: from the Gram matrix of the objectives' gradients to weights on the simplex.

A rule is a pair of pure functions and sees nothing but K = G Gᵀ. Momentum wraps any rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import schedules, simplex

SMALLEST = 1e-3
"""No preference counts for less: a row divided by 0 has no min-norm point."""


@final
@dataclass(frozen=True)
class Rule:
    """A weighting rule.

    Attributes:
        init: M ↦ state, a pytree.
        update: (state, K [M, M], t) ↦ (state, λ [M]), where t = 1, 2, … counts the updates.
        prefer: (state, p [M]) ↦ the state of a trial with preference p on the simplex; None where p means nothing.
    """

    init: Callable[[int], Any]
    update: Callable[[Any, Float[Array, "M M"], Any], tuple[Any, Float[Array, " M"]]]
    prefer: Callable[[Any, Float[Array, " M"]], Any] | None = None


def min_norm() -> Rule:
    """λ̂_t = argmin over the simplex of λᵀK λ: the common ascent direction of MGDA (Désidéri, 2012)."""
    return Rule(lambda M: (), lambda state, K, t: (state, simplex.min_norm_from_gram(K).weights))


def preferred(preference: Any = None) -> Rule:
    """λ̂ of the min-norm point d of the rows gⁱ/pᵢ, d = Σ νᵢ gⁱ with Σ pᵢνᵢ = 1; λ̂ = ν / Σν.

    gⁱᵀd ≥ pᵢ‖d‖² for every i: what is preferred rises faster, nothing falls. Equal p is min-norm.

    Args:
        preference: p on the simplex; None is uniform. What is below `SMALLEST` counts as that.
    """
    start = None if preference is None else on_simplex("preference", preference)

    def init(M: int) -> Float[Array, " M"]:
        return _uniform(M) if start is None else jnp.asarray(_of_length("preference", start, M), float)

    def update(p: Float[Array, " M"], K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        scale = 1 / jnp.maximum(p.astype(K.dtype), SMALLEST)
        scale = scale / jnp.max(scale)
        nu = scale * simplex.min_norm_from_gram(scale[:, None] * K * scale).weights
        return p, nu / jnp.sum(nu)

    return Rule(init, update, lambda state, p: p)


def fixed(weights: Any = None) -> Rule:
    """λ_t = `weights` (None is uniform), for ever: linear scalarisation."""
    lam = None if weights is None else on_simplex("weights", weights)

    def init(M: int) -> Float[Array, " M"]:
        return _uniform(M) if lam is None else jnp.asarray(_of_length("weights", lam, M), float)

    return Rule(init, lambda state, K, t: (state, state.astype(K.dtype)), lambda state, p: p)


def uniform() -> Rule:
    """λ_t = (1/M, …, 1/M)."""
    return Rule(lambda M: (), lambda state, K, t: (state, _uniform(K.shape[0]).astype(K.dtype)))


def first_batch(rule: Rule | None = None) -> Rule:
    """The weights that `rule` (min-norm) gives for the first batch, for ever: the paper's fixed-weight ablation."""
    inner = min_norm() if rule is None else rule

    def init(M: int) -> Any:
        return inner.init(M), _uniform(M), jnp.zeros((), bool)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        inner_state, kept, seen = state
        inner_state, lam_hat = inner.update(inner_state, K, t)
        lam = jnp.where(seen, kept.astype(K.dtype), lam_hat)
        return (inner_state, lam, jnp.ones((), bool)), lam

    return Rule(init, update)


def with_momentum(rule: Rule, schedule: str | schedules.Schedule, initial: Any = None) -> Rule:
    """λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t, with λ̂_t from `rule`: Algorithm 2's smoothing of the weights.

    Args:
        rule: gives λ̂_t.
        schedule: η_t, by name (`moac.schedules.names()`) or as a function of t with values in [0, 1]. With η_1 = 1
            the first batch sets the weights and λ_0 is irrelevant.
        initial: λ_0; None is uniform.
    """
    eta_of = schedules.parse(schedule)
    start = None if initial is None else on_simplex("initial", initial)

    def init(M: int) -> Any:
        return rule.init(M), _uniform(M) if start is None else jnp.asarray(_of_length("initial", start, M), float)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        inner_state, lam = state
        inner_state, lam_hat = rule.update(inner_state, K, t)
        eta = jnp.asarray(eta_of(jnp.asarray(t, K.dtype)), K.dtype)
        lam = (1 - eta) * lam.astype(K.dtype) + eta * lam_hat
        lam = lam / jnp.sum(lam)
        return (inner_state, lam), lam

    inner_prefer = rule.prefer
    return Rule(init, update, None if inner_prefer is None else lambda state, p: (inner_prefer(state[0], p), state[1]))


def _of_length(name: str, weights: Float[np.ndarray, " M"], M: int) -> Float[np.ndarray, " M"]:
    if len(weights) != M:
        raise ValueError(f"`{name}` must hold one weight per objective ({M}), got {len(weights)}.")
    return weights


def _uniform(M: int) -> Float[Array, " M"]:
    return jnp.full(M, 1 / M, float)


def on_simplex(name: str, weights: Any) -> Float[np.ndarray, " M"]:
    """`weights` as float64 on the simplex, refused if they are not on it."""
    lam = np.asarray(weights, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0:
        raise ValueError(f"`{name}` must be a vector with one weight per objective, got shape {lam.shape}.")
    if not (np.isfinite(lam).all() and (lam >= 0).all() and abs(lam.sum() - 1) <= 1e-6):
        raise ValueError(f"`{name}` must be non-negative and sum to 1, got {lam.tolist()}.")
    return lam / lam.sum()
