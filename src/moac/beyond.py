"""Outside the paper: importance ratios, generalised advantages, entropy and KL terms, Adam and clipping.

Each is an option of the configuration, and absent from the compiled program where it is off. A reader of Algorithms 1
and 2 may skip this file: with all options off `with_ratios`, `advantages` and `regularised` return what they are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Bool, Float

from moac.policies import Entropic, log_probs
from moac.settings import Settings
from moac.types import Batch, Params, Policy


def with_ratios(policy: Policy, cap: float, theta: Params, batch: Batch) -> Batch:
    """The batch with importance ratios ρ = min{cap, π(a|s) / π_b(a|s)}; one sampled by θ itself stays as it is."""
    if batch.behaviour_log_prob is None:
        return batch
    log_prob = policy.log_prob
    for _ in batch.behaviour_log_prob.shape:
        log_prob = jax.vmap(log_prob, in_axes=(None, 0, 0))
    log_pi = log_prob(theta, batch.observation, batch.action)
    return replace(batch, weight=jnp.minimum(cap, jnp.exp(log_pi - batch.behaviour_log_prob)))


def advantages(
    settings: Settings, gamma: tuple[float, ...], num_chains: int, delta: Float[Array, "B M"], batch: Batch
) -> Float[Array, "B M"]:
    """The actor's signals: the TD errors δ, traced over time with `gae`, weighted by age with discounted visitation."""
    if settings.gae > 0:
        delta = gae(delta, goes_on(batch, num_chains), gamma, settings.gae)
    return by_age(settings, gamma, delta, batch)


def by_age(
    settings: Settings, gamma: tuple[float, ...], delta: Float[Array, "B M"], batch: Batch
) -> Float[Array, "B M"]:
    """δ; where visitation is discounted at several rates (γⁱ/c)^k δⁱ, with c = max γ and the age k.

    That turns samples of the c-restarted chain into ∇Jⁱ.
    """
    if settings.visitation != "discounted" or len(set(gamma)) == 1:
        return delta
    log_ratio = [math.log(value / max(gamma)) for value in gamma]
    age = jnp.asarray(batch.age, delta.dtype)
    return delta * jnp.exp(age[:, None] * jnp.asarray(log_ratio, delta.dtype))


def gae(
    delta: Float[Array, "B M"], on: Bool[Array, "T n"], gamma: tuple[float, ...], trace: float
) -> Float[Array, "B M"]:
    """Aⁱ_τ = δⁱ_τ + γⁱ λ Aⁱ_{τ+1} while an episode goes on, with λ = `trace` (Schulman et al., 2016).

    Each of n chains ends with its last sample: what would follow is not in the batch, and counts as 0.
    """
    keep = jnp.where(on[..., None], trace * jnp.asarray(gamma, delta.dtype), 0)
    return recurrence(keep, delta.reshape(*on.shape, -1), reverse=True).reshape(delta.shape)


def recurrence(
    keep: Float[Array, "T ..."], gain: Float[Array, "T ..."], start: Any = 0.0, reverse: bool = False
) -> Float[Array, "T ..."]:
    """x_τ = keep_τ x_{τ−1} + gain_τ with x_0 = `start`, for τ = 1 … T; from the last to the first if `reverse`.

    One step after the other: an associative scan is thirty kernels more to compile, and slower on a CPU.
    """

    def step(x: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        x = now[0] * x + now[1]
        return x, x

    first = jnp.broadcast_to(jnp.asarray(start, gain.dtype), gain.shape[1:])
    return lax.scan(step, first, (keep, gain), reverse=reverse)[1]


def goes_on(batch: Batch, num_chains: int) -> Bool[Array, "T n"]:
    """Where the next sample of a chain starts in the state in which this one ended, and that was no end.

    A chain that was cut and happens to start again in that very state goes on: its future has the same law.
    """

    def chains(x: Any) -> Any:
        return x.reshape(-1, num_chains, *x.shape[1:])

    def same(then: Any, now: Any) -> Any:
        equal = chains(then)[:-1] == chains(now)[1:]
        return jnp.all(equal, axis=tuple(range(2, equal.ndim)))

    equal = jax.tree.leaves(jax.tree.map(same, batch.next_observation, batch.observation))
    on = jnp.concatenate([jnp.all(jnp.stack(equal), axis=0), jnp.zeros((1, num_chains), bool)])
    return on if batch.terminated is None else on & ~chains(batch.terminated)


def regularised(settings: Settings, policy: Policy, theta: Params, batch: Batch, direction: Params) -> Params:
    """direction + entropy · ∇ (1/B) Σ_l H(π(·|s_l)) − behaviour_pull · ∇ (1/B) Σ_l KL(π_b ‖ π)(s_l).

    Both gradients are common to all objectives and are added after the weighting: the Gram matrix does not see them.
    """
    terms: list[tuple[Any, Callable[[Any, Params, Batch], Array]]] = []
    if settings.entropy is not None:
        terms.append((settings.entropy, lambda policy, theta, x: entropy(policy, theta, x.observation, x.action)))
    if settings.behaviour_pull is not None:
        terms.append((settings.behaviour_pull, _behaviour_likelihood))
    for coefficient, term in terms:
        gradient = jax.grad(term, argnums=1)(policy, theta, batch)
        direction = jax.tree.map(lambda d, g, c=coefficient: d + c * g, direction, gradient)
    return direction


def entropy(policy: Policy, theta: Params, observation: Any, action: Any) -> Array:
    """(1/B) Σ H(π(·|s_l)).

    For a policy that does not know its entropy, a function with the gradient −(1/B) Σ log π ψ, centred, which is that
    of the entropy in expectation.
    """
    if isinstance(policy, Entropic):
        return jnp.mean(policy.entropy(theta, observation))
    log_pi = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, observation, action)
    constant = lax.stop_gradient(log_pi)
    return jnp.mean((jnp.mean(constant) - constant) * log_pi)


def _behaviour_likelihood(policy: Policy, theta: Params, batch: Batch) -> Array:
    """−(1/B) Σ KL(π_b ‖ π) but for a constant: E_{π_b} log π, over all actions where π_b is known, else as logged."""
    if batch.behaviour_log_probs is None:
        return jnp.mean(jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, batch.observation, batch.action))
    p = jnp.exp(batch.behaviour_log_probs)
    return jnp.mean(jnp.sum(p * log_probs(policy, theta, batch.observation, p.shape[-1]), axis=-1))


def steps(optimiser: str, size: Any, clip: float | None = None, eps: float = 1e-8) -> optax.GradientTransformation:
    """From a direction of ascent to a step: constant step sizes, the paper's, or Adam (Kingma and Ba, 2015).

    A direction is cut to the norm `clip` before; Adam adds `eps` to the root of the second moment.
    """
    cut = [] if clip is None else [optax.clip_by_global_norm(clip)]
    moments = [optax.scale_by_adam(eps=eps)] if optimiser == "adam" else []
    return optax.chain(*cut, *moments, optax.scale(size))
