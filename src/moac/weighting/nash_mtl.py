"""Nash-MTL: the Nash bargaining solution of the gains.

Navon et al., *Multi-Task Learning as a Bargaining Game*, 2022, https://arxiv.org/abs/2202.01017.

>>> rule = nash_mtl(max_norm=1.0)
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.arguments import checked
from moac.choices import NOT_NEGATIVE
from moac.weighting.fairgrad import fair_weights
from moac.weighting.rule import Rule, stateless


@checked
def nash_mtl(max_norm: float = 1.0) -> Rule:
    """The Nash bargaining solution, K α = 1/α, which maximises Σ log gⁱᵀd over ‖d‖ ≤ 1 (Navon et al., 2022).

    gⁱᵀd > 0 for all i, and ‖d‖ = √M whatever the length of the gradients; as in its authors' code d is then cut to
    `max_norm`.

    Args:
        max_norm: the longest d; 0 leaves it as it is.
    """
    NOT_NEGATIVE.checked("max_norm", max_norm)

    def weights(K: Float[Array, "M M"]) -> Float[Array, " M"]:
        lam = fair_weights(K, 1.0)
        length = jnp.sqrt(jnp.maximum(jnp.sum(lam * (K @ lam)), 0))
        return lam * max_norm / jnp.maximum(length, max_norm) if max_norm > 0 else lam

    return stateless(weights, simplex=False)
