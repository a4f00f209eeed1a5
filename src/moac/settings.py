"""From a configuration to the parts it names: defaults, policy, critic, rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from moac import weighting
from moac.config import Average, Config, Discounted, known, outline
from moac.critic import LinearCritic, MLPCritic
from moac.policies import GaussianMLP, SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable, features
from moac.policies.features import Basis, Features
from moac.policies.networks import Inputs, Network, Plain, States, Vectors
from moac.policies.squash import Squash
from moac.types import Critic, Key, Policy, Sampling, Source, Spec
from moac.weighting import Rule

_VECTOR_STEP = 20.0
_ADAM_STEP = 1e-3
NETWORKS = ("mlp", "gaussian")
"""Policies that are networks."""
_COVERED = ("min-norm", "preferred", "fixed", "uniform", "first-batch")
"""Rules that are the paper's, or the ablations beside it."""
_TILED_INPUTS = 3
"""Up to so many inputs, eight tiles along each make a grid that needs no hashing."""


class Parts(NamedTuple):
    """What meets in the algorithm."""

    policy: Policy
    critic: Critic
    rule: Rule


def defaults(problem: Source, chosen: Config | None = None) -> Config:
    """The configuration that `problem` gets where nothing else is said; `reasons` says why.

    A table of logits has gradients of the size of a state's visitation, about 1/S, times that of the rewards: hence
    the actor's step. Features of vectors are shared by many states, so its step is smaller there; and what shows
    vectors tends to need many steps, so the discount is nearer to 1. Networks step by Adam, whatever the gradient's
    size, and see GAE and their own batch sizes only where `chosen` says so.

    Args:
        problem: the source.
        chosen: what is decided already; step sizes depend on the policy and the optimisers.
    """
    spec, chains = problem.spec, problem.spec.num_chains
    states, given = spec.num_states, Config() if chosen is None else chosen
    if spec.logged:
        return _of_log(spec, given)
    policy = given.policy or _policy_name(spec)
    optimiser = given.optimiser or ("adam" if policy in NETWORKS else "constant")
    critic_optimiser = given.critic_optimiser or ("adam" if given.critic == "mlp" else "constant")
    plain_step = (_VECTOR_STEP if states is None else min(2.0 * states, 200.0)) / spec.reward_bound
    return Config(
        setting=Discounted(0.9 if states is not None else 0.99),
        num_iterations=2000,
        num_critic_steps=5,
        critic_batch_size=-(-64 // chains) * chains,
        actor_batch_size=-(-128 // chains) * chains,
        actor_step_size=_ADAM_STEP if optimiser == "adam" else 0.1 if policy in NETWORKS else plain_step,
        critic_step_size=_ADAM_STEP if critic_optimiser == "adam" else 0.1 if given.critic == "mlp" else 0.5,
        policy=policy,
        optimiser=optimiser,
        critic_optimiser=critic_optimiser,
        features=_features(spec),
        observation_scale="bounds" if spec.encoder is None or spec.encoder.bounded else "running",
        hidden=(64, 64),
        normalise="none",
        start="random",
        behaviour_pull=0.0,
    )


def _of_log(spec: Spec, given: Config) -> Config:
    """Steps by Adam from the behaviour model, pulled back to it: what strays from the log cannot be judged by it."""
    adam = (given.optimiser or "adam") == "adam"
    return Config(
        setting=Discounted(0.5),
        num_iterations=1000,
        num_critic_steps=1,
        critic_batch_size=512,
        actor_batch_size=512,
        actor_step_size=1e-4 if adam else 0.1,
        critic_step_size=1e-3 if (given.critic_optimiser or "adam") == "adam" else 0.1,
        policy="mlp",
        optimiser="adam",
        critic_optimiser="adam",
        features="plain",
        observation_scale="bounds",
        hidden=spec.behaviour_hidden or (64,),
        normalise="l2",
        start="random" if spec.behaviour_hidden is None else "behaviour",
        behaviour_pull=0.1,
    )


def reasons(problem: Source, chosen: Config | None = None) -> str:
    """What `defaults` picks for a problem, and why, in a sentence or two."""
    spec, picked = problem.spec, defaults(problem, chosen)
    policy = f"{picked.policy} policy"
    if picked.policy in NETWORKS:
        why = " for continuous actions" if picked.policy == "gaussian" else ""
        policy += f"{why}, {'Adam' if picked.optimiser == 'adam' else 'constant'} steps"
    if spec.num_states is not None:
        kind = "a table of logits" if picked.policy == "table" else policy
        return f"{spec.num_states} states: {kind}, and a value for each."
    scale = "their bounds" if picked.observation_scale == "bounds" else "running moments, since a bound is infinite"
    why = "few inputs" if spec.observation_size <= _TILED_INPUTS else "too many inputs for a grid of tiles"
    return (
        f"observations of {spec.observation_size} numbers: {picked.features} features ({why}) for a linear critic, "
        f"{policy}, scaled by {scale}."
    )


def beyond_theory(config: Config) -> tuple[str, ...]:
    """What of a configuration the theorems do not cover."""
    named = {
        "an mlp critic": config.critic == "mlp",
        "a network's policy": config.policy in NETWORKS,
        "Adam": "adam" in (config.optimiser, config.critic_optimiser),
        "clipped gradients": config.gradient_clip is not None,
        "an entropy bonus": config.entropy > 0,
        "GAE": config.gae > 0,
        "normalised gradients": config.normalise == "l2",
        "a pull to the behaviour policy": bool(config.behaviour_pull),
        f"{config.weighting} weights": config.weighting not in _COVERED,
    }
    return tuple(name for name, present in named.items() if present)


def _policy_name(spec: Spec) -> str:
    if spec.action_size:
        return "gaussian"
    return "linear" if spec.num_states is None else "table"


def _features(spec: Spec) -> str:
    """Tiles where they form a grid; cosines of one and two inputs at a time where there are too many for that."""
    if spec.num_states is not None:
        return "one-hot"
    return "tile" if spec.observation_size <= _TILED_INPUTS else "fourier:3"


def resolved(config: Config, problem: Source) -> Config:
    """`config` with what is None filled from the defaults, checked against the problem."""
    base = defaults(problem, config)
    missing = {f.name: getattr(base, f.name) for f in fields(config) if getattr(config, f.name) is None}
    full = replace(config, **missing)
    spec = problem.spec
    discounts(full, spec)
    if full.weights is not None and len(full.weights) != spec.num_objectives:
        raise ValueError(
            f"`weights` must hold one weight per objective ({spec.num_objectives}), got {len(full.weights)}."
        )
    for each in (full.preferences or ())[:1]:
        if len(each) != spec.num_objectives:
            right = f"one number per objective ({spec.num_objectives})"
            raise ValueError(f"each of `preferences` must hold {right}, got {len(each)}.")
    _check_spaces(full, spec)
    return full


def _check_spaces(config: Config, spec: Spec) -> None:
    if spec.logged:
        _check_log(config, spec)
    elif config.start == "behaviour" or config.behaviour_pull:
        raise ValueError("`start` must be random and `behaviour_pull` 0 where no log is: there is no behaviour policy.")
    if spec.num_states is None and config.policy == "table":
        raise ValueError("`policy` must be linear or mlp where observations are vectors, got 'table'.")
    if (config.policy == "gaussian") != bool(spec.action_size):
        kind = "gaussian for continuous actions" if spec.action_size else "table, linear or mlp for discrete actions"
        raise ValueError(f"`policy` must be {kind}, got {config.policy!r}.")
    if spec.encoder is not None and not spec.encoder.bounded and config.observation_scale == "bounds":
        raise ValueError("`observation_scale` must be running where a bound is infinite, got 'bounds'.")
    for name in ("critic_batch_size", "actor_batch_size"):
        size = known(getattr(config, name))
        if size % spec.num_chains:
            raise ValueError(f"`{name}` must be a multiple of `num_envs` ({spec.num_chains}), got {size}.")


def _check_log(config: Config, spec: Spec) -> None:
    """What rows drawn one by one, whose actions are given, do not allow."""
    if isinstance(config.setting, Average):
        raise ValueError("`setting` must be discounted on a log, got the average setting.")
    if config.gae > 0:
        raise ValueError(f"`gae` must be 0 on a log, whose rows are drawn one by one, got {config.gae}.")
    if config.visitation != "stationary":
        raise ValueError("`visitation` must be stationary on a log: its rows cannot be restarted.")
    if config.features != "plain":
        raise ValueError(f"`features` must be plain on a log, got {config.features!r}.")
    if config.start == "behaviour":
        if spec.behaviour_hidden is None:
            raise ValueError(f"`start` must be random on {spec.name}, which has no behaviour model, got 'behaviour'.")
        if config.policy != "mlp" or config.hidden != spec.behaviour_hidden:
            widths = list(spec.behaviour_hidden)
            raise ValueError(f"`policy` must be mlp with hidden={widths}, as the behaviour model, to start from it.")


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
        running_scale=spec.num_states is None and config.observation_scale == "running",
    )


def parts(config: Config, spec: Spec, seed: int) -> Parts:
    """The policy, critic and rule that a resolved configuration names; the same objects for the same names."""
    return _parts(outline(config), spec, seed if known(config.features).startswith("random:") else 0)


@lru_cache(maxsize=16)
def _parts(config: Config, spec: Spec, seed: int) -> Parts:
    phi = features.by_name(known(config.features), spec, run_key(seed))
    return Parts(_policy(config, spec, phi), _critic(config, spec, phi), rule(config))


def _policy(config: Config, spec: Spec, phi: Features | Basis) -> Policy:
    if config.policy == "mlp":
        return SoftmaxMLP(_inputs(spec), known(config.hidden), spec.num_actions)
    if config.policy == "gaussian":
        bounds = Squash(known(spec.action_low), known(spec.action_high))
        return GaussianMLP(_inputs(spec), known(config.hidden), bounds, config.action_scale == "state")
    if spec.num_states is None:
        return SoftmaxBasis(phi, spec.num_actions)
    if config.policy == "table":
        return SoftmaxTable(spec.num_states, spec.num_actions)
    return SoftmaxLinear(cast(Features, phi), spec.num_actions)


def _critic(config: Config, spec: Spec, phi: Features | Basis) -> Critic:
    if config.critic == "linear":
        return LinearCritic(phi, spec.num_objectives)
    return MLPCritic(Network(_inputs(spec), known(config.hidden), spec.num_objectives))


def _inputs(spec: Spec) -> Inputs:
    if spec.num_states is not None:
        return States(spec.num_states)
    return Plain(spec.vector_size) if spec.logged else Vectors(spec.observation_size)


_ONE_BATCH: dict[str, Callable[..., Rule]] = {
    "min-norm": weighting.min_norm,
    "preferred": weighting.preferred,
    "capped": weighting.capped,
    "cagrad": weighting.cagrad,
    "pcgrad": weighting.pcgrad,
    "imtl-g": weighting.imtl_g,
    "nash-mtl": weighting.nash_mtl,
    "upgrad": weighting.upgrad,
    "fairgrad": weighting.fairgrad,
    "chebyshev": lambda *urgency: weighting.chebyshev(None, *urgency),
}
"""Rules of one batch: what they give is λ̂, which momentum smooths where it is on the simplex."""
_STEPPING: dict[str, Callable[..., Rule]] = {
    "moco": weighting.moco,
    "modo": weighting.modo,
    "sdmgrad": weighting.sdmgrad,
}
"""Rules whose λ takes steps of its own, from λ_0."""
_KEPT: dict[str, Callable[[Config], Rule]] = {
    "fixed": lambda config: weighting.fixed(config.weights),
    "uniform": lambda config: weighting.uniform(),
    "first-batch": lambda config: weighting.first_batch(),
}
"""Rules whose λ stays what it is."""


def rule(config: Config) -> Rule:
    """The weighting rule, with momentum where λ̂ moves on the simplex.

    Other weights have the scale of the gradients they were found for, and an average of them fits none.
    """
    name, _, number = config.weighting.partition(":")
    if name in _KEPT:
        return _KEPT[name](config)
    if name in _STEPPING:
        return _STEPPING[name](initial=config.weights)
    found = _ONE_BATCH[name](float(number)) if number else _ONE_BATCH[name]()
    return weighting.with_momentum(found, config.momentum, config.weights) if found.simplex else found


def run_key(seed: int) -> Key:
    """The key of what belongs to a run as a whole, such as random features: apart from every trial's."""
    return jax.random.fold_in(jax.random.key(seed), np.uint32(2**32 - 1))
