"""Gradients common to all objectives, added to the direction after the weighting: outside the theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moac.policies import Entropic
from moac.types import Batch, Params, Policy


def build(policy: Policy, entropy: float, pull: float | None) -> Callable[[Params, Batch, Params], Params]:
    """(θ, batch, direction) ↦ direction + entropy · ∇ (1/B) Σ_l H(π(·|s_l)) − pull · ∇ (1/B) Σ_l KL(π_b ‖ π)(s_l).

    A coefficient of 0 leaves its part out of the program; one that is traced is not 0.
    """
    parts: list[tuple[Any, Callable[[Any, Params, Batch], jax.Array]]] = []
    if not _absent(entropy):
        parts.append((entropy, _known if isinstance(policy, Entropic) else _sampled))
    if not _absent(pull):
        parts.append((pull, _likelihood))

    def add(theta: Params, batch: Batch, direction: Params) -> Params:
        for coefficient, bonus in parts:
            gradient = jax.grad(bonus, argnums=1)(policy, theta, batch)
            direction = jax.tree.map(lambda d, g, c=coefficient: d + c * g, direction, gradient)
        return direction

    return add


def _absent(coefficient: Any) -> bool:
    return coefficient is None or (isinstance(coefficient, int | float) and coefficient == 0)


def _known(policy: Entropic, theta: Params, batch: Batch) -> jax.Array:
    return jnp.mean(policy.entropy(theta, batch.observation))


def _sampled(policy: Policy, theta: Params, batch: Batch) -> jax.Array:
    """A function with the gradient −(1/B) Σ log π ψ, which is that of the entropy in expectation; centred."""
    log_pi = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, batch.observation, batch.action)
    held = jax.lax.stop_gradient(log_pi)
    return jnp.mean((jnp.mean(held) - held) * log_pi)


def _likelihood(policy: Policy, theta: Params, batch: Batch) -> jax.Array:
    """−(1/B) Σ KL(π_b ‖ π) but for a constant: E_{π_b} log π, over all actions where π_b is known, else as logged."""
    if batch.behaviour_log_probs is None:
        return jnp.mean(jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, batch.observation, batch.action))
    p = jnp.exp(batch.behaviour_log_probs)
    every = jax.vmap(policy.log_prob, in_axes=(None, None, 0))
    log_pi = jax.vmap(every, in_axes=(None, 0, None))(theta, batch.observation, jnp.arange(p.shape[-1]))
    return jnp.mean(jnp.sum(p * log_pi, axis=-1))
