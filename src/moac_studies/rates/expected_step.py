"""The expected step of plain MGDA (η = 1), by enumeration of all batches of a problem with one state.

With exact advantages g(n) = (1/B) Σ_a n_a Adv(a) ψ(a) depends on the batch through the counts n of its actions alone.
So E[g λ̂(g)] is a sum over the multisets of B actions, weighted by their multinomial chances.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float
from scipy.special import gammaln

from moac import simplex
from moac.config import Discounted
from moac_studies.rates.closed_form import gradients
from moac_studies.rates.problems import LinearLogits, Problem

SETTING = Discounted(0.5)
"""Episodes of one step: the discount does not matter."""


def multisets(num_actions: int, size: int) -> tuple[Float[np.ndarray, "n A"], Float[np.ndarray, " n"]]:
    """Counts of all multisets of `size` actions, and the logarithms of their multinomial coefficients."""
    drawn = np.array(list(combinations_with_replacement(range(num_actions), size)))
    counts = (drawn[:, :, None] == np.arange(num_actions)).sum(axis=1).astype(np.float64)
    return counts, gammaln(size + 1) - gammaln(counts + 1).sum(axis=1)


def expected_step(own: Problem, theta: Float[Array, " p"], batches: Any) -> Float[Array, " p"]:
    """E[g λ̂(g)] over batches of actions drawn from π_θ."""
    counts, log_coefficient = batches
    policy, reward = LinearLogits(own), jnp.einsum("sao,saom->sam", own.probability, own.reward)[0]
    pi = policy.tabulate(theta)[0]
    score = policy.scores(theta)[0] * counts.sum(axis=1)[:1] ** -1
    each = jnp.einsum("am,ap->amp", reward - pi @ reward, score)
    G = jnp.einsum("na,amp->nmp", counts, each)
    lam = simplex.min_norm_from_gram(jnp.einsum("nmp,nkp->nmk", G, G)).weights
    chance = jnp.exp(log_coefficient + counts @ jnp.log(pi))
    return jnp.einsum("n,nm,nmp->p", chance, lam, G)


def measure(own: Problem, size: int, alpha: float, iterations: int) -> tuple[Any, Any, Any]:
    """The bias ‖E[g λ̂] − ∇J λ*‖ of batches of `size` at θ_1; θ and ‖E[g λ̂]‖ after `iterations` expected steps."""
    with jax.enable_x64(True):
        batches = tuple(jnp.asarray(x) for x in multisets(own.features.shape[1], size))
        found = _follow(iterations, jax.tree.map(jnp.asarray, own), batches, jnp.asarray(alpha))
        return np.asarray(found[0]), np.asarray(found[1]), np.asarray(found[2])


@partial(jax.jit, static_argnums=0)
def _follow(iterations: int, own: Problem, batches: Any, alpha: Any) -> Any:
    start = own.theta
    true = simplex.min_norm(gradients(own, start, SETTING)).direction
    bias = jnp.linalg.norm(expected_step(own, start, batches) - true)
    theta = lax.fori_loop(0, iterations, lambda _, x: x + alpha * expected_step(own, x, batches), start)
    return bias, theta, jnp.linalg.norm(expected_step(own, theta, batches))
