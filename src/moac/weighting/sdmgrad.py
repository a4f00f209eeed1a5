"""SDMGrad: min-norm weights drawn to a preference, by steps along the products of two independent batches.

Xiao, Ban and Ji, *Direction-oriented Multi-objective Learning*, 2023, https://arxiv.org/abs/2305.18409.

>>> rule = sdmgrad(0.3, preference=[0.2, 0.8])
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from moac import simplex
from moac.arguments import Numbers, checked
from moac.choices import NOT_NEGATIVE
from moac.weighting.rule import Needs, Rule, Seen, starting


@checked
def sdmgrad(pull: float = 0.3, preference: Numbers | None = None, initial: Numbers | None = None) -> Rule:
    """λ = (w + κp)/(1 + κ), w = argmin over the simplex of ‖Σ (wᵢ + κpᵢ) gⁱ‖²: SDMGrad (Xiao et al., 2023).

    w takes 20 projected gradient steps of size 10 with heavy-ball momentum ½ along A (w + κp), from where it stood, as
    in its authors' code; A is G₁G₂ᵀ of two independent batches over the square of the mean of √(its diagonal)₊.

    Args:
        pull: κ ≥ 0, how much the direction is drawn to Σ pᵢgⁱ.
        preference: p on the simplex; None is uniform.
        initial: w_0; None is uniform.
    """
    kappa = NOT_NEGATIVE.checked("pull", pull)
    w_start, p_start = starting("initial", initial), starting("preference", preference)

    def update(state: Any, seen: Seen, t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        K = jnp.asarray(seen.cross)
        w, p = state[0].astype(K.dtype), state[1].astype(K.dtype)
        A = _unit_scale(K)

        def step(_: Any, carry: Any) -> Any:
            w, velocity = carry
            velocity = velocity / 2 + A @ (w + kappa * p)
            return simplex.projection(w - 10 * velocity), velocity

        w, _ = lax.fori_loop(0, 20, step, (w, jnp.zeros_like(w)))
        return (w, state[1]), (w + kappa * p) / (1 + kappa)

    def init(M: int, *preference: Any) -> Any:
        return w_start(M), p_start(M, *preference)

    return Rule(init, update, Needs(preference=True, cross=True))


def _unit_scale(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """K over the square of the mean of √(its diagonal)₊, as far as that can be told from 0."""
    largest = jnp.max(jnp.abs(K))
    K = K / jnp.where(largest > 0, largest, 1)
    scale = jnp.mean(jnp.sqrt(jnp.maximum(jnp.diagonal(K), 0)))
    return K / jnp.maximum(scale * scale, jnp.finfo(K.dtype).eps)
