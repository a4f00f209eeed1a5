"""Algorithm 2: the multi-objective actor-critic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from moac import actor, advantages, bonus, importance, steps, weighing
from moac.config import Config, Discounted, known
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
    advantage = advantages.build(config, td.gamma, spec.num_chains)
    weigh = importance.build(policy, config.importance_cap)
    first_weights, weigh_gradients = weighing.build(rule, M)
    first = actor.first_half(rule.batches, known(config.actor_batch_size), spec.num_chains)
    with_bonus = bonus.build(policy, config.entropy, config.behaviour_pull)
    actor_steps = steps.by_name(config.optimiser or "constant", known(config.actor_step_size), config.gradient_clip)

    def init(key: Key) -> State:
        key_policy, key_critic, key = jax.random.split(key, 3)
        theta, w, zero = policy.init(key_policy), critic.init(key_critic), jnp.zeros((), jnp.int32)
        optimisers = actor_steps.init(theta), td.steps.init(w)
        return State(zero, theta, w, jnp.zeros(M), first_weights(theta), *optimisers, theta, zero, key)

    def update(state: State, critic_batches: Batch, actor_batch: Batch) -> tuple[State, Metrics]:
        """One iteration of Algorithm 2."""
        key, key_random = jax.random.split(state.key)
        t, theta = state.t + 1, state.theta

        critic_batches, actor_batch = weigh(theta, critic_batches), weigh(theta, actor_batch)  # ρ, where logged
        w = state.w if config.critic_start == "warm" else jax.tree.map(jnp.zeros_like, state.w)
        w, mu, critic_optimiser = td.learn(w, state.mu, state.critic_optimiser, critic_batches)  # Algorithm 1

        delta, mu = td.errors(w, mu, actor_batch)
        delta = advantage(delta, actor_batch)
        g = actor.gradients(policy, theta, actor_batch, delta, config.normalise or "none", first)  # gⁱ = (1/B) Σ δⁱψ

        outlook = partial(td.outlook, w, mu, actor_batch)  # for rules that look at values
        rule_state, lam, g = weigh_gradients(state.rule, g, t, outlook)  # λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t
        ascent = with_bonus(theta, actor_batch, g.direction(lam))
        step, actor_optimiser = actor_steps.update(ascent, state.actor_optimiser)
        theta_next = jax.tree.map(jnp.add, theta, step)  # θ_{t+1} = θ_t + α Σ λⁱ gⁱ

        replace = jax.random.uniform(key_random) * t < 1  # T̂ uniform on {1 … t}
        theta_random = _where(replace, theta, state.theta_random)
        random_iteration = jnp.where(replace, t, state.random_iteration)
        optimisers = actor_optimiser, critic_optimiser
        state = State(t, theta_next, w, mu, rule_state, *optimisers, theta_random, random_iteration, key)
        return state, Metrics(g.gram, lam)

    return init, update


def _where(condition: Any, new: Params, old: Params) -> Params:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _setting(config: Config) -> Any:
    return config.setting if config.setting is not None else Discounted()
