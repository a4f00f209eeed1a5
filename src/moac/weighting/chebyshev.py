"""Weighted Chebyshev: weights that lift the objective with the largest weighted gap to an ideal point.

In the manner of MOCHA, https://arxiv.org/abs/2507.21397; `moac docs rules` says what is its and what is ours.

>>> rule = with_momentum(chebyshev([0.3, 0.7], urgency=0.1), "1/t")
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.arguments import Numbers, checked
from moac.choices import POSITIVE
from moac.weighting.mgda import SMALLEST
from moac.weighting.rule import Needs, Rule, Seen, starting, where_finite


@checked
def chebyshev(preference: Numbers | None = None, urgency: float = 1.0, ideal: Numbers | None = None) -> Rule:
    """Weights for min over θ of max_i pᵢ (zᵢ − Jⁱ): the weighted-Chebyshev scalarisation, in the manner of MOCHA.

    With P = diag p and the gaps cᵢ = pᵢ (zᵢ − Jⁱ),

        λ* = argmin over the simplex of λᵀPKPλ − u Σ λᵢcᵢ,    λ̂ ∝ p∘λ*.

    This is the dual of a proximal step: d = (2/u) Σ pᵢλ*ᵢ gⁱ maximises min_i (pᵢ gⁱᵀd − cᵢ) − (u/4) ‖d‖². All gaps
    equal, λ* is that of the min-norm point of the rows pᵢgⁱ; u large, it is on the objective with the largest gap
    alone. Jⁱ is the reward per step that the critic expects (`Seen.level`).

    Args:
        preference: p on the simplex; None is uniform. What is below `SMALLEST` counts as that.
        urgency: u > 0, how much the gaps count beside the gradients.
        ideal: z [M], in reward per step; None is the largest reward seen so far.
    """
    u = POSITIVE.checked("urgency", urgency)
    start = starting("preference", preference)
    z_given = None if ideal is None else np.asarray(ideal, dtype=np.float64)
    if z_given is not None and not (z_given.ndim == 1 and np.isfinite(z_given).all()):
        raise ValueError(f"`ideal` must be a vector of finite numbers, one per objective, got {z_given.tolist()}.")

    def init(M: int, *preference: Any) -> Any:
        if z_given is not None and len(z_given) != M:
            raise ValueError(f"`ideal` must hold one number per objective ({M}), got {len(z_given)}.")
        z = jnp.zeros(M) if z_given is None else jnp.asarray(z_given, float)
        return start(M, *preference), jnp.zeros(M), z, jnp.asarray(z_given is not None)

    def update(state: Any, seen: Seen, t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        K = seen.gram
        state = observed(state, seen)
        p, J, z = (each.astype(K.dtype) for each in state[:3])
        p = jnp.maximum(p, SMALLEST)
        lam = p * simplex.on_capped_simplex(p[:, None] * K * p, u / 2 * p * (z - J))
        return state, where_finite(K, lam / jnp.sum(lam))

    def observed(state: Any, seen: Seen) -> Any:
        """The state with Jⁱ, and with zᵢ where that is the largest reward so far."""
        p, _, z, known = state
        best = jnp.max(jnp.asarray(seen.rewards), axis=0)
        z = z if z_given is not None else jnp.where(known, jnp.maximum(z, best), best)
        return p, seen.level, z, jnp.ones((), bool)

    return Rule(init, update, Needs(preference=True, values=True))
