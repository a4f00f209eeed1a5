"""Weights that do not depend on the batch, and what smooths or keeps the weights of other rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import schedules
from moac.weighting.hull import min_norm
from moac.weighting.rule import Rule, middle, starting


def fixed(weights: Any = None) -> Rule:
    """λ_t = `weights` (None is uniform), for ever: linear scalarisation."""
    return Rule(
        starting("weights", weights), lambda state, K, t: (state, state.astype(K.dtype)), prefer=lambda state, p: p
    )


def uniform() -> Rule:
    """λ_t = (1/M, …, 1/M)."""
    return Rule(lambda M: (), lambda state, K, t: (state, middle(K.shape[0]).astype(K.dtype)))


def first_batch(rule: Rule | None = None) -> Rule:
    """The weights that `rule` (min-norm) gives for the first batch, for ever: the paper's fixed-weight ablation."""
    inner = min_norm() if rule is None else rule

    def init(M: int) -> Any:
        return inner.init(M), middle(M), jnp.zeros((), bool)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        inner_state, kept, seen = state
        inner_state, lam_hat = inner.update(inner_state, K, t)
        lam = jnp.where(seen, kept.astype(K.dtype), lam_hat)
        return (inner_state, lam, jnp.ones((), bool)), lam

    return _around(inner, init, update)


def with_momentum(rule: Rule, schedule: str | schedules.Schedule, initial: Any = None) -> Rule:
    """λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t, with λ̂_t from `rule`: Algorithm 2's smoothing of the weights.

    λ_t is on the simplex where λ̂_t is. Where it is not (`Rule.simplex`), λ_t is the same average, at the scale of λ̂.

    Args:
        rule: gives λ̂_t.
        schedule: η_t, by name (`moac.schedules.names()`) or as a function of t with values in [0, 1]. With η_1 = 1
            the first batch sets the weights and λ_0 is irrelevant.
        initial: λ_0; None is uniform.
    """
    eta_of = schedules.parse(schedule)
    start = starting("initial", initial)

    def init(M: int) -> Any:
        return rule.init(M), start(M)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        inner_state, lam = state
        inner_state, lam_hat = rule.update(inner_state, K, t)
        eta = jnp.asarray(eta_of(jnp.asarray(t, K.dtype)), K.dtype)
        lam = (1 - eta) * lam.astype(K.dtype) + eta * lam_hat
        lam = lam / jnp.sum(lam) if rule.simplex else lam
        return (inner_state, lam), lam

    return _around(rule, init, update)


def _around(rule: Rule, init: Callable[[int], Any], update: Callable[[Any, Any, Any], Any]) -> Rule:
    """A rule around another, whose state comes first in its own; all else is the inner rule's."""
    prefer, observe = rule.prefer, rule.observe
    return replace(
        rule,
        init=init,
        update=update,
        prefer=None if prefer is None else lambda state, p: (prefer(state[0], p), *state[1:]),
        observe=None
        if observe is None
        else lambda state, level, reward: (observe(state[0], level, reward), *state[1:]),
    )
