"""IMTL-G: a direction with equal projections on all normalised gradients.

Liu et al., *Towards Impartial Multi-task Learning*, 2021, https://openreview.net/forum?id=IMPnRXEWpvr.

>>> rule = imtl_g()
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.weighting.rule import Rule, lengths, stateless


def imtl_g() -> Rule:
    """d with equal projections on all gⁱ/‖gⁱ‖: λ ∝ K⁺ √diag K, Σλ = 1; weights may be negative (Liu et al., 2021).

    With linearly dependent gradients the pseudo-inverse is the generalisation of Quinton and Rey (2024). λ = 0 where
    K⁺ √diag K sums to zero, within rounding.
    """

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        K = K / jnp.where(jnp.max(jnp.diagonal(K)) > 0, jnp.max(jnp.diagonal(K)), 1)
        v = _pseudo_inverse(K) @ lengths(K)[0]
        total = jnp.sum(v)
        there = jnp.abs(total) > 64 * jnp.finfo(K.dtype).eps * jnp.sum(jnp.abs(v))
        return jnp.where(there, v / jnp.where(there, total, 1), 0)

    return stateless(weights, simplex=False)


@jax.custom_batching.sequential_vmap
def _pseudo_inverse(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """K⁺, one matrix after the other, as `simplex` factors them and for the same reason."""
    return jnp.linalg.pinv(K, hermitian=True)
