"""Rules whose direction is a point of the gradients' convex hull, found by a quadratic programme."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import active_set, simplex
from moac.weighting.rule import Rule, in_interval, starting, stateless, where_finite

SMALLEST = 1e-3
"""No preference counts for less: a row divided by 0 has no min-norm point."""


def min_norm() -> Rule:
    """λ̂_t = argmin over the simplex of λᵀK λ: the common ascent direction of MGDA (Désidéri, 2012)."""
    return Rule(lambda M: (), lambda state, K, t: (state, simplex.min_norm_from_gram(K).weights))


def preferred(preference: Any = None) -> Rule:
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

    return Rule(starting("preference", preference), update, lambda state, p: p)


def capped(cap: float = 0.5) -> Rule:
    """λ̂ = argmin of λᵀK λ over the simplex with λᵢ ≤ `cap`: min-norm weights of which none takes all.

    With d = Σ λ̂ᵢgⁱ, the mean of the 1/cap smallest gⁱᵀd is at least ‖d‖²: those that are worst off rise together,
    though one of them may fall. Where no cap binds, it is min-norm and none falls.

    Args:
        cap: in (0, 1]; what is below 1/M counts as 1/M, which is uniform, and 1 is min-norm.
    """
    in_interval("cap", cap, 0, 1)

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        M = K.shape[0]
        return active_set.on_capped_simplex(K, jnp.zeros(M, K.dtype), max(cap, 1 / M))

    return stateless(weights)


def chebyshev(preference: Any = None, urgency: float = 1.0, ideal: Any = None) -> Rule:
    """Weights for min over θ of max_i pᵢ (zᵢ − Jⁱ): the weighted-Chebyshev scalarisation, in the manner of MOCHA.

    With P = diag p and the gaps cᵢ = pᵢ (zᵢ − Jⁱ),

        λ* = argmin over the simplex of λᵀPKPλ − u Σ λᵢcᵢ,    λ̂ ∝ p∘λ*.

    This is the dual of a proximal step: d = (2/u) Σ pᵢλ*ᵢ gⁱ maximises min_i (pᵢ gⁱᵀd − cᵢ) − (u/4) ‖d‖². All gaps
    equal, λ* is that of the min-norm point of the rows pᵢgⁱ; u large, it is on the objective with the largest gap
    alone. Jⁱ is the reward per step that the critic expects (`Rule.observe`).

    Args:
        preference: p on the simplex; None is uniform. What is below `SMALLEST` counts as that.
        urgency: u > 0, how much the gaps count beside the gradients.
        ideal: z [M], in reward per step; None is the largest reward seen so far.
    """
    u = in_interval("urgency", urgency, 0)
    start = starting("preference", preference)
    z_given = None if ideal is None else _finite("ideal", ideal)

    def init(M: int) -> Any:
        if z_given is not None and len(z_given) != M:
            raise ValueError(f"`ideal` must hold one number per objective ({M}), got {len(z_given)}.")
        z = jnp.zeros(M) if z_given is None else jnp.asarray(z_given, float)
        return start(M), jnp.zeros(M), z, jnp.asarray(z_given is not None)

    def observe(state: Any, level: Float[Array, " M"], reward: Float[Array, "B M"]) -> Any:
        p, _, z, known = state
        best = jnp.max(reward, axis=0)
        z = z if z_given is not None else jnp.where(known, jnp.maximum(z, best), best)
        return p, level, z, jnp.ones((), bool)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        p, J, z = (each.astype(K.dtype) for each in state[:3])
        p = jnp.maximum(p, SMALLEST)
        lam = p * active_set.on_capped_simplex(p[:, None] * K * p, u / 2 * p * (z - J))
        return state, where_finite(K, lam / jnp.sum(lam))

    return Rule(init, update, lambda state, p: (p, *state[1:]), observe=observe)


def _finite(name: str, values: Any) -> Float[np.ndarray, " M"]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError(f"`{name}` must be a vector of finite numbers, one per objective, got {found.tolist()}.")
    return found
