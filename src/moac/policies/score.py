"""The score of a network's policy as outer products, from one backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moac.policies.networks import Passed, Weights
from moac.policies.protocols import Factor


def factors_of(
    log_probs: Callable[[Weights], tuple[Any, Passed]], shifts: Weights, more_inputs: tuple[Any, ...] = ()
) -> tuple[Factor, ...]:
    """One factor per layer: its inputs, and the derivative of log π by zeros added to its output.

    Samples do not meet in a network, so one backward pass of Σ_l log π_l gives the signals of all samples.

    Args:
        log_probs: shifts ↦ log π [B], and the forward pass.
        shifts: zeros [B, k], one for each layer and for what `more_inputs` belong to.
        more_inputs: inputs of further factors, which are not layers of the network.
    """

    def total(shifts: Weights) -> tuple[Any, tuple[Any, ...]]:
        log_prob, passed = log_probs(shifts)
        return jnp.sum(log_prob), passed.inputs

    signals, inputs = jax.grad(total, has_aux=True)(shifts)
    seen = (*map(with_constant, inputs), *more_inputs)
    return tuple(Factor(x, signal) for x, signal in zip(seen, signals, strict=True))


def with_constant(x: Any) -> Any:
    """Vectors with a 1 for the bias at their end; indices as they are."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)
