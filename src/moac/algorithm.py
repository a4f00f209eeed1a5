"""Algorithm 2: the multi-objective actor-critic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from moac import actor
from moac.config import Config, Discounted
from moac.critic import TD
from moac.types import Batch, Critic, Key, Metrics, Params, Policy, Spec, State
from moac.weighting import Rule

Init = Callable[[Key], State]
Update = Callable[[State, Batch, Batch], tuple[State, Metrics]]


def build(config: Config, spec: Spec, policy: Policy, critic: Critic, rule: Rule) -> tuple[Init, Update]:
    """The two pure functions of the algorithm, for a resolved configuration.

    Returns:
        `init(key) -> State` and `update(state, critic_batches, actor_batch) -> (State, Metrics)`, where the batches
        were sampled under `state.theta`.
    """
    M = spec.num_objectives
    td = TD(critic, config, _setting(config).discounts(M))
    age_weight = _age_weight(config, td.gamma)

    def init(key: Key) -> State:
        key_policy, key_critic, key = jax.random.split(key, 3)
        theta, zero = policy.init(key_policy), jnp.zeros((), jnp.int32)
        return State(zero, theta, critic.init(key_critic), jnp.zeros(M), rule.init(M), theta, zero, key)

    def update(state: State, critic_batches: Batch, actor_batch: Batch) -> tuple[State, Metrics]:
        """One iteration of Algorithm 2."""
        key, key_random = jax.random.split(state.key)
        t, theta = state.t + 1, state.theta

        w = state.w if config.critic_start == "warm" else jax.tree.map(jnp.zeros_like, state.w)
        w, mu = td.learn(w, state.mu, critic_batches)  # Algorithm 1

        delta, mu = td.errors(w, mu, actor_batch)
        delta = age_weight(delta, actor_batch)
        g = actor.gradients(policy, theta, actor_batch, delta, config.normalise)  # gⁱ = (1/B) Σ δⁱψ

        rule_state, lam = rule.update(state.rule, g.gram, t)  # λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t
        ascent = g.direction(lam)
        theta_next = jax.tree.map(lambda x, d: x + config.actor_step_size * d, theta, ascent)

        replace = jax.random.uniform(key_random) * t < 1  # T̂ uniform on {1 … t}
        theta_random = _where(replace, theta, state.theta_random)
        random_iteration = jnp.where(replace, t, state.random_iteration)
        state = State(t, theta_next, w, mu, rule_state, theta_random, random_iteration, key)
        return state, Metrics(g.gram, lam)

    return init, update


def _age_weight(config: Config, gamma: tuple[float, ...]) -> Callable[[Any, Batch], Any]:
    """(γⁱ/c)^k δⁱ with c = max γ, where k is the age: what turns samples of the c-restarted chain into ∇Jⁱ."""
    if config.visitation == "stationary" or len(set(gamma)) == 1:
        return lambda delta, batch: delta

    log_ratio = [math.log(value / max(gamma)) for value in gamma]

    def weigh(delta: Any, batch: Batch) -> Any:
        age = jnp.asarray(batch.age, delta.dtype)
        return delta * jnp.exp(age[:, None] * jnp.asarray(log_ratio, delta.dtype))

    return weigh


def _where(condition: Any, new: Params, old: Params) -> Params:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _setting(config: Config) -> Any:
    return config.setting if config.setting is not None else Discounted()
