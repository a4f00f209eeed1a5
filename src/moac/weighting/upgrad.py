"""UPGrad: the mean of the gradients, each projected on the cone of directions along which none falls.

Quinton and Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024, https://arxiv.org/abs/2406.16232.

>>> rule = upgrad()
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.weighting.rule import Rule, lengths, stateless


def upgrad() -> Rule:
    """d = (1/M) Σᵢ of each gⁱ projected on the dual cone {d: gʲᵀd ≥ 0 for all j} (Quinton and Rey, 2024).

    The projection of gⁱ is gⁱ + Σⱼ xⱼgʲ with x = argmin over x ≥ 0 of ‖gⁱ + Σⱼ xⱼgʲ‖². Nothing falls along d, and d is
    linear in each ‖gⁱ‖.
    """

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        n, C = lengths(K)
        there = n > 0
        y, _ = jax.vmap(simplex.non_negative, in_axes=(None, 0))(C, -jnp.where(there, C, 0))
        x = jnp.where(there, n[:, None] * y / jnp.where(there, n, 1), 0)  # row i: of the projection of gⁱ
        return (1 + jnp.sum(x, axis=0)) / K.shape[0]

    return stateless(weights, simplex=False)
