"""From a configuration to the parts it names: defaults, policy, critic, rule."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from moac import features, weighting
from moac.config import Average, Config, Discounted, known
from moac.critic import LinearCritic
from moac.policy import SoftmaxLinear, SoftmaxTable
from moac.types import Critic, Key, Policy, Sampling, Source, Spec
from moac.weighting import Rule


class Parts(NamedTuple):
    """What meets in the algorithm."""

    policy: Policy
    critic: Critic
    rule: Rule


def defaults(problem: Source) -> Config:
    """The configuration that `problem` gets where nothing else is said.

    A table of logits has gradients of the size of a state's visitation, about 1/S, times that of the rewards: hence
    the actor's step.
    """
    spec = problem.spec
    return Config(
        setting=Discounted(0.9),
        num_iterations=2000,
        num_critic_steps=5,
        critic_batch_size=64,
        actor_batch_size=128,
        actor_step_size=min(2.0 * spec.num_states, 200.0) / spec.reward_bound,
        critic_step_size=0.5,
    )


def resolved(config: Config, problem: Source) -> Config:
    """`config` with what is None filled from the defaults, checked against the problem."""
    base = defaults(problem)
    missing = {f.name: getattr(base, f.name) for f in fields(config) if getattr(config, f.name) is None}
    full = replace(config, **missing)
    spec = problem.spec
    discounts(full, spec)
    if full.weights is not None and len(full.weights) != spec.num_objectives:
        raise ValueError(
            f"`weights` must hold one weight per objective ({spec.num_objectives}), got {len(full.weights)}."
        )
    return full


def discounts(config: Config, spec: Spec) -> tuple[float, ...]:
    """γ of each objective; ones in the average setting."""
    setting: Any = config.setting if config.setting is not None else Average()
    return setting.discounts(spec.num_objectives)


def sampling(config: Config, spec: Spec) -> Sampling:
    """How a source samples one iteration of a resolved configuration."""
    return Sampling(
        known(config.num_critic_steps),
        known(config.critic_batch_size),
        known(config.actor_batch_size),
        average=isinstance(config.setting, Average),
        survival=max(discounts(config, spec)) if config.visitation == "discounted" else None,
    )


def parts(config: Config, spec: Spec, seed: int) -> Parts:
    """The policy, critic and rule that a resolved configuration names; the same objects for the same names."""
    return _parts(config, spec, seed if config.features.startswith("random:") else 0)


@lru_cache(maxsize=16)
def _parts(config: Config, spec: Spec, seed: int) -> Parts:
    phi = features.by_name(config.features, spec, run_key(seed))
    policy = (
        SoftmaxTable(spec.num_states, spec.num_actions)
        if config.policy == "table"
        else SoftmaxLinear(phi, spec.num_actions)
    )
    return Parts(policy, LinearCritic(phi, spec.num_objectives), rule(config))


def rule(config: Config) -> Rule:
    """The weighting rule, with momentum where λ̂ moves."""
    if config.weighting == "fixed":
        return weighting.fixed(config.weights)
    if config.weighting == "uniform":
        return weighting.uniform()
    if config.weighting == "first-batch":
        return weighting.first_batch()
    return weighting.with_momentum(weighting.min_norm(), config.momentum, config.weights)


def run_key(seed: int) -> Key:
    """The key of what belongs to a run as a whole, such as random features: apart from every trial's."""
    return jax.random.fold_in(jax.random.key(seed), np.uint32(2**32 - 1))
