"""From names in the settings to the objects that meet in the algorithm: policy, critic, rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from moac import weighting
from moac.choices import shown
from moac.critic import LinearCritic, MLPCritic
from moac.kept import with_owner
from moac.policies import GaussianMLP, ItemsPolicy, SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable, features
from moac.policies.features import Features
from moac.policies.gaussian import Squash
from moac.policies.networks import Digits, Inputs, Network, Plain, States, Vectors, WithPreference
from moac.policies.observations import LogSpec
from moac.settings import Settings
from moac.types import Critic, Key, Policy, Request, Spec
from moac.weighting import Rule, Seen

_MAX_ONE_HOT = 512  # whole numbers with more values than this in all are seen as vectors, not as ones and zeros
_SOME = 7  # observations that a critic's shapes are checked with


class Parts(NamedTuple):
    """The objects that meet in the algorithm."""

    policy: Policy
    critic: Critic
    rule: Rule


def check(given: Mapping[str, Any]) -> None:
    """Refuse a part that no program can be kept by."""
    for name, part in given.items():
        if type(part).__hash__ is None:
            raise ValueError(f"`{name}` must be hashable, such as a frozen dataclass, got {shown(part)}.")


def check_shapes(parts: Parts, given: Iterable[str], spec: Spec, preference: Any) -> None:
    """Refuse parts of the caller that return other shapes than the algorithm takes; nothing is computed."""
    checks: dict[str, Callable[[Key], None]] = {
        "policy": partial(_check_policy, parts.policy, spec),
        "critic": partial(_check_critic, parts.critic, spec),
        "rule": lambda key: _check_rule(parts.rule, spec.num_objectives, preference),
    }
    for name in given:
        try:
            jax.eval_shape(checks[name], jax.random.key(0))
        except TypeError as error:
            told = " ".join(str(error).split())
            raise ValueError(f"`{name}` must take what {spec.name} gives it, and fails: {told}") from error


def _check_policy(policy: Policy, spec: Spec, key: Key) -> None:
    theta, seen, right = policy.init(key), _observation(spec, ()), (spec.action_size,) if spec.action_box else ()
    _check_shape("`policy.sample` must return an action", policy.sample(theta, seen, key), right)
    action = jnp.zeros(right, float if spec.action_box else int)
    _check_shape("`policy.log_prob` must return a number", policy.log_prob(theta, seen, action), ())


def _check_critic(critic: Critic, spec: Spec, key: Key) -> None:
    values = critic.values(critic.init(key), _observation(spec, (_SOME,)))
    _check_shape(f"`critic.values` of {_SOME} observations must return values", values, (_SOME, spec.num_objectives))


def _check_rule(rule: Rule, M: int, preference: Any) -> None:
    state, K = rule.init(M) if preference is None else rule.init(M, preference), jnp.eye(M)
    seen = Seen(K, K, jnp.zeros(M), jnp.zeros((_SOME, M))) if rule.needs.cross or rule.needs.values else K
    right = (jax.tree.map(jnp.shape, state), (M,))
    _check_shape("`rule.update` must return its state and the weights", rule.update(state, seen, jnp.ones(())), right)


def _check_shape(must: str, result: Any, right: Any) -> None:
    shape = jax.tree.map(jnp.shape, result)
    if shape != right:
        raise ValueError(f"{must} of shape {right}, got {shape}.")


def _observation(spec: Spec, shape: tuple[int, ...]) -> Any:
    """One observation as policies see it, or several."""
    if spec.num_states is not None:
        return jnp.zeros(shape, jnp.int32)
    x = jnp.zeros((*shape, spec.observation_size))
    listed = isinstance(spec.observations, LogSpec) and spec.observations.with_candidates
    return Request(x, jnp.zeros((*shape, spec.num_actions), jnp.int32)) if listed else x


def build(settings: Settings, spec: Spec, seed: int) -> Parts:
    """The policy, critic and rule that the settings name; the same objects for the same names."""
    return _build(spec, settings.static, seed if settings.features.startswith("random:") else 0)


@with_owner
def _build(spec: Spec, settings: Settings, seed: int) -> Parts:
    key = run_key(seed) if settings.features.startswith("random:") else None  # its small programs take a while
    phi = features.by_name(settings.features, spec, key)
    rule = _rule(settings.weighting, settings.weights, settings.momentum)
    critic: Critic = LinearCritic(phi, spec.num_objectives)
    if settings.critic != "linear":
        critic = MLPCritic(Network(_inputs(settings, spec), settings.hidden, spec.num_objectives))
    return Parts(policy(settings, spec, phi), critic, rule)


@lru_cache(maxsize=64)
def _rule(name: str, weights: tuple[float, ...] | None, momentum: str) -> Rule:
    """The rule of these names, one object for each, so that problems of the same shapes have equal parts."""
    return weighting.by_name(name, weights, momentum)


def policy(settings: Settings, spec: Spec, phi: Features) -> Policy:
    """The policy that the settings name, on features φ where it is linear."""
    if settings.policy == "mlp":
        return SoftmaxMLP(_inputs(settings, spec), settings.hidden, spec.num_actions)
    if settings.policy == "items" and isinstance(spec.observations, LogSpec):
        items = spec.observations.known_catalogue.described
        return ItemsPolicy(_inputs(settings, spec), settings.hidden, items, settings.item_embedding)
    if settings.policy == "gaussian":
        bounds = Squash((), ()) if spec.action_box is None else Squash(spec.action_box.low, spec.action_box.high)
        by_state = settings.action_scale == "state"
        return GaussianMLP(_inputs(settings, spec), settings.hidden, bounds, by_state, settings.action_spread)
    if spec.num_states is None:
        return SoftmaxBasis(phi, spec.num_actions)
    if settings.policy == "table":
        return SoftmaxTable(spec.num_states, spec.num_actions)
    return SoftmaxLinear(cast(Any, phi), spec.num_actions)


def _inputs(settings: Settings, spec: Spec) -> Inputs:
    """What networks see of an observation, and of the preference behind it."""
    encoder = spec.observations.encoder
    if settings.learner == "ppo" and (radix := _whole_numbers(spec)):
        inputs = Digits(sum(radix), radix)
    elif spec.num_states is not None:
        return States(spec.num_states)
    elif isinstance(spec.observations, LogSpec) or encoder is None:
        return Plain(spec.observation_size)
    else:
        inputs = Vectors(encoder.bare.size, 10.0 if settings.observation_scale == "standard" else 1.0)
    return WithPreference.after(inputs, spec.num_objectives) if settings.conditioned else inputs


def _whole_numbers(spec: Spec) -> tuple[int, ...]:
    """How many values each number of an observation has, where all are whole and there are few; else nothing."""
    encoder = spec.observations.encoder
    if encoder is None or not encoder.bare.whole:
        return ()
    radix = (encoder.bare.high - encoder.bare.low + 1).astype(int).tolist()
    return tuple(radix) if sum(radix) <= _MAX_ONE_HOT else ()


def run_key(seed: int) -> Key:
    """The key of what belongs to a run as a whole, such as random features: apart from every trial's."""
    return jax.random.fold_in(jax.random.key(seed), np.uint32(2**32 - 1))
