"""Weights of transitions that another policy has chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from moac.types import Batch, Params, Policy


def build(policy: Policy, cap: float) -> Callable[[Params, Batch], Batch]:
    """(θ, batch) ↦ the batch with ρ = min{C, π(a|s) / π_b(a|s)}; one that θ itself has sampled stays as it is."""

    def weigh(theta: Params, batch: Batch) -> Batch:
        if batch.behaviour_log_prob is None:
            return batch
        log_prob = policy.log_prob
        for _ in batch.behaviour_log_prob.shape:
            log_prob = jax.vmap(log_prob, in_axes=(None, 0, 0))
        log_pi = log_prob(theta, batch.observation, batch.action)
        return replace(batch, weight=jnp.minimum(cap, jnp.exp(log_pi - batch.behaviour_log_prob)))

    return weigh
