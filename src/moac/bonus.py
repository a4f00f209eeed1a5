"""A gradient common to all objectives, added to the direction after the weighting: outside the theory."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from moac.policy import Entropic
from moac.types import Batch, Params, Policy


def entropy(policy: Policy, coefficient: float) -> Callable[[Params, Batch, Params], Params]:
    """(θ, batch, direction) ↦ direction + coefficient · ∇ (1/B) Σ_l H(π(·|s_l)); 0 leaves the direction as it is."""
    if coefficient == 0:
        return lambda theta, batch, direction: direction
    gradient = jax.grad(_known if isinstance(policy, Entropic) else _sampled, argnums=1)

    def add(theta: Params, batch: Batch, direction: Params) -> Params:
        bonus = gradient(policy, theta, batch)
        return jax.tree.map(lambda d, h: d + coefficient * h, direction, bonus)

    return add


def _known(policy: Entropic, theta: Params, batch: Batch) -> jax.Array:
    return jnp.mean(policy.entropy(theta, batch.observation))


def _sampled(policy: Policy, theta: Params, batch: Batch) -> jax.Array:
    """A function with the gradient −(1/B) Σ log π ψ, which is that of the entropy in expectation; centred."""
    log_pi = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, batch.observation, batch.action)
    held = jax.lax.stop_gradient(log_pi)
    return jnp.mean((jnp.mean(held) - held) * log_pi)
