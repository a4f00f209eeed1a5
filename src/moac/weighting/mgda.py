"""MGDA, the rule of the paper, with a preference and with a cap on every weight.

Désidéri, *Multiple-gradient descent algorithm (MGDA) for multiobjective optimization*, 2012,
https://doi.org/10.1016/j.crma.2012.03.014.

>>> rule = with_momentum(min_norm(), "1/t")
>>> rule = with_momentum(preferred([0.2, 0.8]), "1/t")
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.arguments import Numbers, checked
from moac.choices import POSITIVE_SHARE
from moac.weighting.rule import Needs, Rule, starting, stateless

SMALLEST = 1e-3
"""No preference counts for less: a row divided by 0 has no min-norm point."""


def min_norm() -> Rule:
    """λ̂_t = argmin over the simplex of λᵀK λ: the common ascent direction of MGDA (Désidéri, 2012)."""
    return Rule(lambda M: (), lambda state, K, t: (state, simplex.min_norm_from_gram(K).weights))


@checked
def preferred(preference: Numbers | None = None) -> Rule:
    """λ̂ of the min-norm point d of the rows gⁱ/pᵢ, d = Σ νᵢ gⁱ with Σ pᵢνᵢ = 1; λ̂ = ν / Σν.

    gⁱᵀd ≥ pᵢ‖d‖² for every i: what is preferred rises faster, nothing falls. Equal p is min-norm.

    Args:
        preference: p on the simplex; None is uniform. What is below `SMALLEST` counts as that.
    """

    def update(p: Float[Array, " M"], K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        scale = 1 / jnp.maximum(p.astype(K.dtype), SMALLEST)
        scale = scale / jnp.max(scale)
        nu = scale * simplex.min_norm_from_gram(scale[:, None] * K * scale).weights
        return p, nu / jnp.sum(nu)

    return Rule(starting("preference", preference), update, Needs(preference=True))


@checked
def capped(cap: float = 0.5) -> Rule:
    """λ̂ = argmin of λᵀK λ over the simplex with λᵢ ≤ `cap`: min-norm weights of which none takes all.

    With d = Σ λ̂ᵢgⁱ, the mean of the 1/cap smallest gⁱᵀd is at least ‖d‖²: those that are worst off rise together,
    though one of them may fall. Where no cap binds, it is min-norm and none falls.

    Args:
        cap: in (0, 1]; what is below 1/M counts as 1/M, which is uniform, and 1 is min-norm.
    """
    POSITIVE_SHARE.checked("cap", cap)

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        M = K.shape[0]
        return simplex.on_capped_simplex(K, jnp.zeros(M, K.dtype), max(cap, 1 / M))

    return stateless(weights)
