"""Per-objective policy gradients gⁱ = (1/B) Σ_l δⁱ_l ψ_l, seen by the rule as their Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.policy import Accumulating, Factor, Factored
from moac.types import Batch, Params, Policy


@final
@dataclass(frozen=True)
class Gradients:
    """The gradients of all objectives.

    Attributes:
        rows: pytree like θ whose leaves are tuples' M gradients, one array per objective.
        scale: [M], what each is multiplied by: 1, or 1/‖gⁱ‖ where gradients are normalised.
        gram: K [M, M] of the scaled gradients.
    """

    rows: tuple[Params, ...]
    scale: Float[Array, " M"]
    gram: Float[Array, "M M"]

    def direction(self, lam: Float[Array, " M"]) -> Params:
        """Σ λᵢ gⁱ, scaled."""
        weight = lam * self.scale
        return jax.tree.map(lambda *g: sum(weight[i] * g[i] for i in range(len(g))), *self.rows)


def gradients(
    policy: Policy, theta: Params, batch: Batch, delta: Float[Array, "B M"], normalise: str = "none"
) -> Gradients:
    """gⁱ for every objective, from the policy's factors where it has them, else by M vector-Jacobian products."""
    if isinstance(policy, Accumulating):
        rows = policy.accumulate(theta, batch.observation, batch.action, delta / len(delta))
    elif isinstance(policy, Factored):
        rows = _from_factor(policy.factors(theta, batch.observation, batch.action), theta, delta)
    else:
        rows = _by_vjp(policy, theta, batch, delta)
    K = gram(rows)
    if normalise == "none":
        return Gradients(rows, jnp.ones(len(rows), K.dtype), K)
    norm = jnp.sqrt(jnp.diagonal(K))
    scale = jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 1)
    return Gradients(rows, scale, scale[:, None] * K * scale)


def gram(rows: tuple[Params, ...]) -> Float[Array, "M M"]:
    """K_ij = ⟨gⁱ, gʲ⟩. Written out: XLA's batched product of such thin matrices is slower than plain sums."""
    M = len(rows)
    leaves = [jax.tree.leaves(row) for row in rows]
    upper = {
        (i, j): sum(jnp.sum(a * b) for a, b in zip(leaves[i], leaves[j], strict=True))
        for i in range(M)
        for j in range(i, M)
    }
    return jnp.stack([jnp.stack([upper[min(i, j), max(i, j)] for j in range(M)]) for i in range(M)])


def _from_factor(factor: Factor, theta: Any, delta: Float[Array, "B M"]) -> tuple[Params, ...]:
    B, M = delta.shape
    if jnp.issubdtype(factor.inputs.dtype, jnp.integer):
        outer = (delta[:, :, None] * factor.signal[:, None, :]).reshape(B, -1)
        table = jnp.zeros((theta.shape[0], outer.shape[1]), theta.dtype)
        G = table.at[factor.inputs].add(outer / B, mode="promise_in_bounds").reshape(theta.shape[0], M, -1)
        return tuple(G[:, i] for i in range(M))
    return tuple(factor.inputs.T @ (factor.signal * delta[:, i, None] / B) for i in range(M))


def _by_vjp(policy: Policy, theta: Params, batch: Batch, delta: Float[Array, "B M"]) -> tuple[Params, ...]:
    log_prob = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))
    _, pull = jax.vjp(lambda theta: log_prob(theta, batch.observation, batch.action), theta)
    return tuple(pull(delta[:, i] / len(delta))[0] for i in range(delta.shape[1]))
