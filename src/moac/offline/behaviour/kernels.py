"""The compiled parts; a dataset's arrays are arguments and never constants of the program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from moac.logs import sampling, states
from moac.logs.sampling import Data
from moac.policies.networks import Network, Weights

BLOCK = 2048
"""Rows whose probabilities are computed at a time."""


@partial(jax.jit, static_argnames="network")
def log_probabilities(
    network: Network, weights: Weights, temperature: Any, data: Data, rows: Int[Array, " n"]
) -> Float[Array, "n K"]:
    """log softmax(f(x) / T)."""
    x = states.features(data.tables, sampling.observation(data, rows))
    return jax.nn.log_softmax(network(weights, x) / temperature)


@partial(jax.jit, static_argnames=("network", "rates"))
def descend(network: Network, rates: tuple[float, float], state: Any, data: Data, rows: Int[Array, "s n"]) -> Any:
    """A step of Adam on the log-loss of each batch of rows; `rates` are its step size and weight decay."""
    optimiser = optimiser_of(rates)

    def loss(weights: Weights, batch: Int[Array, " n"]) -> Any:
        log_p = log_probabilities(network, weights, 1.0, data, batch)
        return -jnp.take_along_axis(log_p, data.action[batch][:, None], axis=1).mean()

    def step(state: Any, batch: Int[Array, " n"]) -> Any:
        weights, moments = state
        change, moments = optimiser.update(jax.grad(loss)(weights, batch), moments, weights)
        return (optax.apply_updates(weights, change), moments), None

    return jax.lax.scan(step, state, rows)[0]


def optimiser_of(rates: tuple[float, float]) -> optax.GradientTransformation:
    """Adam with decoupled weight decay."""
    step_size, weight_decay = rates
    return optax.adamw(step_size, weight_decay=weight_decay)


def blocks(network: Network, weights: Weights, temperature: float, data: Data, rows: Any) -> Iterator[tuple[Any, Any]]:
    """Positions in `rows`, and their log-probabilities [n, K]; every block has one shape, so one program serves all."""
    for begin in range(0, len(rows), BLOCK):
        chosen = rows[begin : begin + BLOCK]
        padded = np.resize(chosen, BLOCK).astype(np.int32)
        found = log_probabilities(network, weights, np.float32(temperature), data, padded)
        yield slice(begin, begin + len(chosen)), np.asarray(found)[: len(chosen)]


def taken(log_p: Any, action: Any) -> Float[np.ndarray, " n"]:
    """Of the logged actions, in float64, so that sums over many rows stay exact enough."""
    return np.take_along_axis(log_p, np.asarray(action)[:, None], axis=1)[:, 0].astype(np.float64)
