"""Algorithm 2: the multi-objective actor-critic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import actor, beyond
from moac.actor import Gradients
from moac.critic import TD
from moac.settings import Settings
from moac.types import Batch, Critic, Key, Metrics, Params, Policy, Spec, State
from moac.weighting import Rule, Seen

Init = Callable[..., State]
Update = Callable[[State, Batch, Batch], tuple[State, Metrics]]
Values = Callable[[], tuple[Float[Array, " M"], Float[Array, "B M"]]]


def build(settings: Settings, spec: Spec, policy: Policy, critic: Critic, rule: Rule) -> tuple[Init, Update]:
    """The two pure functions of the algorithm.

    Returns:
        `init(key, preference=None) -> State` and `update(state, critic_batches, actor_batch) -> (State, Metrics)`,
        where the batches were sampled under `state.theta`.
    """
    M = spec.num_objectives
    td = TD(critic, settings, settings.setting.discounts(M))
    half = actor.first_half(settings.actor_batch_size, spec.num_chains) if rule.needs.cross else None
    with_ratios = partial(beyond.with_ratios, policy, settings.importance_cap)
    advantages = partial(beyond.advantages, settings, td.gamma, spec.num_chains)
    regularised = partial(beyond.regularised, settings, policy)
    actor_steps = beyond.steps(settings.optimiser, settings.actor_step_size, settings.gradient_clip)

    def init(key: Key, preference: Any = None) -> State:
        key_policy, key_critic, key = jax.random.split(key, 3)
        theta, w, zero = policy.init(key_policy), critic.init(key_critic), jnp.zeros((), jnp.int32)
        return State(
            t=zero,
            theta=theta,
            w=w,
            mu=jnp.zeros(M),
            rule=first_rule_state(rule, theta, M, preference),
            actor_optimiser=actor_steps.init(theta),
            critic_optimiser=td.steps.init(w),
            theta_random=theta,
            random_iteration=zero,
            key=key,
        )

    def update(state: State, critic_batches: Batch, actor_batch: Batch) -> tuple[State, Metrics]:
        """One iteration of Algorithm 2."""
        key, key_random = jax.random.split(state.key)
        t, theta = state.t + 1, state.theta

        critic_batches, actor_batch = with_ratios(theta, critic_batches), with_ratios(theta, actor_batch)  # if logged
        w = state.w if settings.critic_start == "warm" else jax.tree.map(jnp.zeros_like, state.w)
        w, mu, critic_optimiser = td.learn(w, state.mu, state.critic_optimiser, critic_batches)  # Algorithm 1

        delta, mu = td.errors(w, mu, actor_batch)
        delta = advantages(delta, actor_batch)
        g = actor.gradients(policy, theta, actor_batch, delta, settings.normalise, half)  # gⁱ = (1/B) Σ δⁱψ

        values = partial(td.level_and_rewards, w, mu, actor_batch)  # for rules that look at values
        rule_state, lam, g = rule_step(rule, state.rule, g, t, values)  # λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t
        ascent = regularised(theta, actor_batch, g.direction(lam))
        step, actor_optimiser = actor_steps.update(ascent, state.actor_optimiser)
        state = with_random_iterate(state, t, key_random)  # T̂ uniform on {1 … t}
        state = replace(state, theta=jax.tree.map(jnp.add, theta, step), w=w, mu=mu)  # θ_{t+1} = θ_t + α Σ λⁱ gⁱ
        optimisers = {"actor_optimiser": actor_optimiser, "critic_optimiser": critic_optimiser}
        return replace(state, t=t, rule=rule_state, key=key, **optimisers), Metrics(g.gram, lam)

    return init, update


def rule_step(
    rule: Rule, state: Any, g: Gradients, t: Any, values: Values
) -> tuple[Any, Float[Array, " M"], Gradients]:
    """The rule's next state, λ_t, and the gradients that λ_t weighs.

    A rule sees K alone unless it needs more; `values` is called where it needs level and rewards. The state of a rule
    that tracks gradients is (Y, its own).
    """
    needs = rule.needs
    if needs.tracking is not None:
        Y = tracked(state[0], g, needs.tracking)
        untracked = replace(rule, needs=replace(needs, tracking=None))
        rule_state, lam, g = rule_step(untracked, state[1], actor.of_rows(Y), t, values)
        return (Y, rule_state), lam, g
    if not (needs.cross or needs.values):
        return *rule.update(state, g.gram, t), g
    level, rewards = values() if needs.values else (None, None)
    return *rule.update(state, Seen(g.gram, g.cross, level, rewards), t), g


def tracked(Y: tuple[Params, ...], g: Gradients, beta: float) -> tuple[Params, ...]:
    """Y ← Y − β (Y − G), one row per objective, each a pytree like θ."""
    ones = jnp.eye(len(Y), dtype=g.gram.dtype)
    G = [g.direction(one) for one in ones]
    return tuple(jax.tree.map(lambda y, row: y - beta * (y - row), *pair) for pair in zip(Y, G, strict=True))


def first_rule_state(rule: Rule, theta: Params, M: int, preference: Any = None) -> Any:
    """The state of a rule at θ_1, with the preference of a trial if it has one; tracked gradients start at 0."""
    state = rule.init(M) if preference is None else rule.init(M, preference)
    if rule.needs.tracking is None:
        return state
    return tuple(jax.tree.map(jnp.zeros_like, theta) for _ in range(M)), state


def with_random_iterate(state: State, t: Any, key: Key) -> State:
    """Replace θ_T̂ by θ_t with probability 1/t: reservoir sampling, so that T̂ is uniform whenever a run stops."""
    taken = jax.random.uniform(key) * t < 1
    theta_random = jax.tree.map(lambda new, old: jnp.where(taken, new, old), state.theta, state.theta_random)
    return replace(state, theta_random=theta_random, random_iteration=jnp.where(taken, t, state.random_iteration))
