"""Weights that do not depend on the batch: linear scalarisation, and the paper's fixed-weight ablation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.arguments import Numbers, checked
from moac.weighting.rule import Needs, Rule, middle, starting


@checked
def fixed(weights: Numbers | None = None) -> Rule:
    """λ_t = `weights` (None is uniform), or the preference of a trial, for ever: linear scalarisation.

    >>> rule = fixed([0.2, 0.8])
    """

    def update(lam: Float[Array, " M"], K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        return lam, lam.astype(K.dtype)

    return Rule(starting("weights", weights), update, Needs(preference=True))


def uniform() -> Rule:
    """λ_t = (1/M, …, 1/M)."""
    return Rule(lambda M: (), lambda state, K, t: (state, middle(K.shape[0]).astype(K.dtype)))


@checked
def first_batch(complete: bool = False) -> Rule:
    """The min-norm weights of the first batch, for ever: the paper's fixed-weight ablation.

    A signal that does not fire in that batch has gradient 0 and takes all weight. `complete` waits for the first batch
    in which every objective has a reward; weights are equal until then.
    """

    def update(state: Any, seen: Any, t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        kept, is_kept = state
        fired = jnp.all(jnp.any(seen.rewards != 0, axis=0)) if complete else True
        lam_hat = simplex.min_norm_from_gram(seen.gram if complete else seen).weights
        lam = jnp.where(is_kept | ~jnp.asarray(fired), kept.astype(lam_hat.dtype), lam_hat)
        return (lam, is_kept | fired), lam

    return Rule(lambda M: (middle(M), jnp.zeros((), bool)), update, Needs(values=complete))
