"""PCGrad: the sum of the gradients, each projected off what it conflicts with.

Yu et al., *Gradient Surgery for Multi-Task Learning*, 2020, https://arxiv.org/abs/2001.06782.

>>> rule = pcgrad(seed=0)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.arguments import checked
from moac.choices import SEED
from moac.weighting.rule import Rule, lengths, where_finite


@checked
def pcgrad(seed: int = 0) -> Rule:
    """d = Σᵢ g̃ⁱ, each gⁱ projected in turn off the normal plane of what it conflicts with (Yu et al., 2020).

    g̃ ← gⁱ; for every j ≠ i in random order: g̃ ← g̃ − min(g̃ᵀgʲ, 0) gʲ/‖gʲ‖². With two objectives nothing falls; with
    more a later projection may undo an earlier one.

    Args:
        seed: of the orders, which are drawn anew for every t, the same in every trial.
    """
    key = jax.random.key(SEED.checked("seed", seed))

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        M = K.shape[0]
        draws = jax.random.uniform(jax.random.fold_in(key, jnp.asarray(t, jnp.uint32)), (M, M))
        n, C = lengths(K)
        v = jax.vmap(_projected, in_axes=(None, 0, 0))(C, jnp.arange(M), jnp.argsort(draws, axis=1))
        scaled = n[:, None] * v / jnp.where(n > 0, n, 1)  # from unit gradients back to their own lengths
        return state, where_finite(K, jnp.sum(jnp.where(jnp.eye(M, dtype=bool), v, scaled), axis=0))

    return Rule(lambda M: (), update, simplex=False)


def _projected(C: Float[Array, "M M"], i: Array, order: Array) -> Float[Array, " M"]:
    """Weights of g̃ⁱ for gradients of length one."""
    v = jnp.zeros(C.shape[0], C.dtype).at[i].set(1)
    for j in order:
        v = v.at[j].add(jnp.where(j != i, jnp.maximum(-C[j] @ v, 0), 0))
    return v
