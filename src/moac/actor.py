"""Per-objective policy gradients gⁱ = (1/B) Σ_l δⁱ_l ψ_l, seen by the rule as their Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import gram
from moac.policy import Accumulating, Factored
from moac.types import Batch, Params, Policy


@final
@dataclass(frozen=True)
class Gradients:
    """The gradients of all objectives; they are formed only where that is cheaper than their products.

    Attributes:
        gram: K [M, M] of the scaled gradients.
        scale: [M], what each is multiplied by: 1, or 1/‖gⁱ‖ where gradients are normalised.
        mix: weights [M] ↦ their sum Σ weightᵢ gⁱ, a pytree like θ.
    """

    gram: Float[Array, "M M"]
    scale: Float[Array, " M"]
    mix: Callable[[Float[Array, " M"]], Params]

    def direction(self, lam: Float[Array, " M"]) -> Params:
        """Σ λᵢ gⁱ, scaled."""
        return self.mix(lam * self.scale)


def gradients(
    policy: Policy, theta: Params, batch: Batch, delta: Float[Array, "B M"], normalise: str = "none"
) -> Gradients:
    """gⁱ of every objective: summed by the policy, from its factors, or by M vector-Jacobian products."""
    if isinstance(policy, Accumulating):
        found = of_rows(policy.accumulate(theta, batch.observation, batch.action, delta / len(delta)))
    elif isinstance(policy, Factored):
        found = of_factors(policy, theta, batch, delta / len(delta))
    else:
        found = of_products(policy, theta, batch, delta / len(delta))
    if normalise == "none":
        return found
    norm = jnp.sqrt(jnp.diagonal(found.gram))
    scale = jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 1)
    return replace(found, gram=scale[:, None] * found.gram * scale, scale=scale)


def of_rows(rows: tuple[Params, ...]) -> Gradients:
    """From the gradients themselves, each a pytree like θ."""

    def mix(weight: Float[Array, " M"]) -> Params:
        return jax.tree.map(lambda *g: sum(weight[i] * g[i] for i in range(len(g))), *rows)

    K = products(rows)
    return Gradients(K, jnp.ones(len(rows), K.dtype), mix)


def of_factors(policy: Factored, theta: Params, batch: Batch, weights: Float[Array, "B M"]) -> Gradients:
    """From one forward and one backward pass, whatever M; the direction uses the same signals once more."""
    factors = policy.factors(theta, batch.observation, batch.action)
    leaves, structure = jax.tree.flatten(theta)

    def mix(weight: Float[Array, " M"]) -> Params:
        signal = weights @ weight
        pairs = zip(factors, leaves, strict=True)
        return jax.tree.unflatten(structure, [gram.outer(factor, signal, len(leaf)) for factor, leaf in pairs])

    K = gram.of_factors(factors, weights)
    return Gradients(K, jnp.ones(len(K), K.dtype), mix)


def of_products(policy: Policy, theta: Params, batch: Batch, weights: Float[Array, "B M"]) -> Gradients:
    """From M vector-Jacobian products of log π: all that a policy of three functions allows."""
    log_prob = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))
    _, pull = jax.vjp(lambda theta: log_prob(theta, batch.observation, batch.action), theta)
    return of_rows(tuple(pull(column)[0] for column in weights.T))


def products(rows: tuple[Params, ...]) -> Float[Array, "M M"]:
    """K_ij = ⟨gⁱ, gʲ⟩. Written out: XLA's batched product of such thin matrices is slower than plain sums."""
    M = len(rows)
    leaves = [jax.tree.leaves(row) for row in rows]
    upper = {
        (i, j): sum(jnp.sum(a * b) for a, b in zip(leaves[i], leaves[j], strict=True))
        for i in range(M)
        for j in range(i, M)
    }
    return jnp.stack([jnp.stack([upper[min(i, j), max(i, j)] for j in range(M)]) for i in range(M)])
