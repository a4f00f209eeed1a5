"""Algorithm 2 under several momentum schedules at once, from the same seeds, keeping the iterates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from moac import algorithm, settings, weighting
from moac.config import Config, Setting
from moac.critic import LinearCritic
from moac.policies import features
from moac.types import Spec, State
from moac.weighting import Rule
from moac_studies.rates.problems import LinearLogits, Problem, walk

SCHEDULES: dict[str, tuple[float, float]] = {
    "η = 1": (1.0, 0.0),
    "η = 1/√t": (1.0, 0.5),
    "η = 1/t": (1.0, 1.0),
    "η = 1/t²": (1.0, 2.0),
    "η = 0": (0.0, 0.0),
}
"""η_t = c t⁻ᵖ, as (c, p); with c = 0 the weights stay uniform."""
FIRST_BATCH = "first batch"
_CONTROLS = {FIRST_BATCH: (1.0, 200.0)}
"""η_1 = 1 and then 0, as near as any float can tell: the weights of the first batch for ever."""
COLOURS = {label: index for index, label in enumerate((*SCHEDULES, FIRST_BATCH))}
"""One colour for each schedule, in all figures."""


def rule() -> Rule:
    """Min-norm weights with momentum, the schedule a part of the state, so that one program serves all of them.

    λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t from λ_0 uniform, as `weighting.with_momentum`; the state is (λ, c, p).
    """
    inner = weighting.min_norm()

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        lam, c, p = state
        eta = (c * jnp.asarray(t, K.dtype) ** -p).astype(K.dtype)
        mixed = (1 - eta) * lam.astype(K.dtype) + eta * inner.update((), K, t)[1]
        lam = jnp.where(eta > 0, mixed / jnp.sum(mixed), lam)  # weights that do not move keep their bits
        return (lam, c, p), lam

    return Rule(lambda M: (jnp.full(M, 1 / M), jnp.ones(()), jnp.ones(())), update)


def exponents(labels: tuple[str, ...]) -> tuple[Any, Any]:
    """c [E] and p [E] of schedules by label."""
    c, p = zip(*((SCHEDULES | _CONTROLS)[label] for label in labels), strict=True)
    return jnp.asarray(c, float), jnp.asarray(p, float)


def config(p: Mapping[str, Any], setting: Setting, actor_step_size: float, num_evaluations: int, **more: Any) -> Config:
    """The sizes that a table of a study gives, as a configuration."""
    return Config(
        setting=setting,
        num_iterations=p["iterations"],
        num_critic_steps=p["critic_steps"],
        critic_batch_size=p["critic_batch"],
        actor_batch_size=p["actor_batch"],
        actor_step_size=actor_step_size,
        critic_step_size=p["critic_step"],
        num_evaluations=num_evaluations,
        **more,
    )


def learned(
    problems: Problem, config: Config, labels: tuple[str, ...], trials: tuple[int, int]
) -> tuple[Int[np.ndarray, " L"], Float[np.ndarray, "E n K L p"]]:
    """Algorithm 2 with its own critic and samples.

    Args:
        problems: stacked along [n].
        config: all fields known but the policy's; `num_evaluations` says how many evenly spread iterates are kept.
        labels: the schedules, E of them.
        trials: K and the seed; trial k has the same randomness under every schedule.

    Returns:
        The iterations t [L] from 1 to T + 1, and θ_t.
    """
    keys = jax.random.split(jax.random.key(trials[1]), (len(problems.theta), trials[0]))
    T = config.num_iterations or 1
    pace = max(1, T // config.num_evaluations)
    theta = _run(config, pace, problems, keys, exponents(labels))
    return np.arange(0, T + 1, pace) + 1, np.asarray(theta)


@partial(jax.jit, static_argnums=(0, 1))
def _run(config: Config, pace: int, problems: Problem, keys: Any, schedules: Any) -> Any:
    """θ_t of all schedules, problems and trials, every `pace` iterations."""
    S, A, _, M = problems.reward.shape[-4:]
    spec = Spec("problem", tuple(map(str, range(M))), S, A, 0, 1.0, "")
    resolved = settings.resolve(config, spec)
    sizes = settings.sampling(resolved, spec)
    critic = LinearCritic(features.OneHot(S), M)

    def one(own: Problem, key: Any, schedule: Any) -> Any:
        init, update = algorithm.build(resolved, spec, LinearLogits(own), critic, rule())

        def iteration(_: Any, carry: tuple[State, Any]) -> tuple[State, Any]:
            state, place = carry
            key, key_walk = jax.random.split(state.key)
            place, critic_batches, actor_batch = walk(own, place, state.theta, key_walk, sizes)
            return update(replace(state, key=key), critic_batches, actor_batch)[0], place

        def stretch(carry: Any, _: Any) -> tuple[Any, Any]:
            carry = lax.fori_loop(0, pace, iteration, carry)
            return carry, carry[0].theta

        key_state, key_start = jax.random.split(key)
        first = init(key_state)
        first = replace(first, rule=(first.rule[0], *schedule))
        place = jax.random.categorical(key_start, jnp.log(own.initial)).astype(jnp.int32)
        _, later = lax.scan(stretch, (first, place), None, resolved.num_iterations // pace)
        return jnp.concatenate([first.theta[None], later])

    E, (n, K) = len(schedules[0]), keys.shape[:2]
    e, i, k = (index.reshape(-1) for index in np.indices((E, n, K)))
    theta = jax.vmap(one)(jax.tree.map(lambda x: jnp.asarray(x)[i], problems), keys[i, k], [x[e] for x in schedules])
    return theta.reshape(E, n, K, *theta.shape[1:])
