"""From TD errors to what weighs the scores: traces of them over time, and the weight of a sample's age."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from moac.config import Config
from moac.types import Batch

Weigh = Callable[[Float[Array, "B M"], Batch], Float[Array, "B M"]]


def build(config: Config, gamma: tuple[float, ...], num_chains: int) -> Weigh:
    """δ ↦ the signals of the actor: δ itself unless the configuration asks for more."""
    parts: list[Weigh] = []
    if config.gae > 0:
        parts.append(lambda delta, batch: gae(delta, goes_on(batch, num_chains), gamma, config.gae))
    if config.visitation == "discounted" and len(set(gamma)) > 1:
        parts.append(lambda delta, batch: _aged(delta, batch, gamma))

    def weigh(delta: Float[Array, "B M"], batch: Batch) -> Float[Array, "B M"]:
        for part in parts:
            delta = part(delta, batch)
        return delta

    return weigh


def gae(
    delta: Float[Array, "B M"], on: Bool[Array, "T n"], gamma: tuple[float, ...], trace: float
) -> Float[Array, "B M"]:
    """Aⁱ_τ = δⁱ_τ + γⁱ λ Aⁱ_{τ+1} while an episode goes on, with λ = `trace` (Schulman et al., 2016).

    Each of n chains ends with its last sample: what would follow is not in the batch, and counts as 0.
    """

    def compose(later: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[Array, Array]:
        return later[0] * now[0], now[0] * later[1] + now[1]

    table = delta.reshape(*on.shape, -1)
    keep = jnp.where(on[..., None], trace * jnp.asarray(gamma, delta.dtype), 0)
    _, advantage = lax.associative_scan(compose, (keep, table), reverse=True)
    return advantage.reshape(delta.shape)


def goes_on(batch: Batch, num_chains: int) -> Bool[Array, "T n"]:
    """Where the next sample of a chain starts in the state in which this one ended, and that was no end.

    A chain that was cut and happens to start again in that very state goes on: its future has the same law.
    """

    def chains(x: Any) -> Any:
        return x.reshape(-1, num_chains, *x.shape[1:])

    def same(then: Any, now: Any) -> Any:
        equal = chains(then)[:-1] == chains(now)[1:]
        return jnp.all(equal.reshape(*equal.shape[:2], -1), axis=-1)

    equal = jax.tree.leaves(jax.tree.map(same, batch.next_observation, batch.observation))
    on = jnp.concatenate([jnp.all(jnp.stack(equal), axis=0), jnp.zeros((1, num_chains), bool)])
    return on if batch.terminated is None else on & ~chains(batch.terminated)


def _aged(delta: Float[Array, "B M"], batch: Batch, gamma: tuple[float, ...]) -> Float[Array, "B M"]:
    """(γⁱ/c)^k δⁱ with c = max γ, where k is the age: what turns samples of the c-restarted chain into ∇Jⁱ."""
    log_ratio = [math.log(value / max(gamma)) for value in gamma]
    age = jnp.asarray(batch.age, delta.dtype)
    return delta * jnp.exp(age[:, None] * jnp.asarray(log_ratio, delta.dtype))
