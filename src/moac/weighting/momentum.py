"""Momentum: Algorithm 2's smoothing of the weights that any rule gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.arguments import Numbers, checked
from moac.choices import Schedule, schedule_of
from moac.weighting.rule import Rule, starting


@checked
def with_momentum(rule: Rule, schedule: str | Schedule, initial: Numbers | None = None) -> Rule:
    """λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t, with λ̂_t from `rule`: Algorithm 2's smoothing of the weights.

    λ_t is on the simplex where λ̂_t is. Where it is not (`Rule.simplex`), λ_t is the same average, at the scale of λ̂.

    Args:
        rule: gives λ̂_t.
        schedule: η_t, by name (`moac.choices.schedule_names()`) or as a function of t with values in [0, 1]. With
            η_1 = 1 the first batch sets the weights and λ_0 is irrelevant.
        initial: λ_0; None is uniform.
    """
    eta_of = schedule_of(schedule)
    start = starting("initial", initial)

    def init(M: int, *preference: Any) -> Any:
        return rule.init(M, *preference), start(M)

    def update(state: Any, seen: Any, t: Any) -> tuple[Any, Float[Array, " M"]]:
        inner_state, lam = state
        inner_state, lam_hat = rule.update(inner_state, seen, t)
        eta = jnp.asarray(eta_of(jnp.asarray(t, lam_hat.dtype)), lam_hat.dtype)
        lam = (1 - eta) * lam.astype(lam_hat.dtype) + eta * lam_hat
        lam = lam / jnp.sum(lam) if rule.simplex else lam
        return (inner_state, lam), lam

    return replace(rule, init=init, update=update)
