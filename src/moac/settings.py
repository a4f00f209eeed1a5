"""Settings: a configuration completed for a problem and checked against it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any

import jax

from moac import default_config
from moac.choices import WEIGHTINGS, shown
from moac.config import Average, Config, Discounted, Setting
from moac.default_config import NETWORKS
from moac.kept import with_owner
from moac.policies.observations import LogSpec, of_encoder
from moac.types import Sampling, Spec

_OFF_AT_ZERO = ("entropy", "behaviour_pull")
"""Terms whose coefficient of 0 is None in the settings: no part of the compiled program."""
_DEVIATIONS = {"running": 3.0, "standard": 10.0}
"""How far from their running mean vectors are told apart, in standard deviations."""
_TRACED = {"traced": True}
"""Of numbers that a compiled program takes as arguments, so that one program serves all their values."""


@dataclass(frozen=True)
class Settings:
    """What an iteration is made of: the fields of `Config`, where None now means that something is off.

    A pytree: its leaves are the fields declared `_TRACED`, all else is static. `preferences` are missing, since they
    are of single trials, and enter the state with which a trial begins.
    """

    setting: Setting
    learner: str
    num_iterations: int = field(metadata=_TRACED)
    num_critic_steps: int
    critic_batch_size: int
    actor_batch_size: int
    actor_step_size: float = field(metadata=_TRACED)
    critic_step_size: float = field(metadata=_TRACED)
    epochs: int
    minibatch_size: int
    ratio_clip: float = field(metadata=_TRACED)
    units: str
    whitening: str
    schedule: str
    visitation: str
    policy: str
    critic: str
    hidden: tuple[int, ...]
    item_embedding: bool
    action_scale: str
    action_spread: float
    optimiser: str
    critic_optimiser: str
    gradient_clip: float | None
    entropy: float | None = field(metadata=_TRACED)
    gae: float
    features: str
    observation_scale: str
    weighting: str
    weights: tuple[float, ...] | None
    conditioned: bool
    preference_draw: str
    momentum: str
    normalise: str
    start: str
    importance_cap: float
    behaviour_pull: float | None = field(metadata=_TRACED)
    mu: str
    average_step_size: float
    critic_start: str
    num_evaluations: int = field(metadata=_TRACED)

    @classmethod
    def of(cls, config: Config) -> Settings:
        """The settings that a complete configuration says."""
        values: dict[str, Any] = {each.name: getattr(config, each.name) for each in fields(cls)}
        for name, value in values.items():
            if value is None and name not in ("gradient_clip", "weights"):
                raise ValueError(f"`{name}` must be given before anything is trained, got None.")
        values.update({name: values[name] or None for name in _OFF_AT_ZERO})
        return cls(**values)

    @property
    def samples_per_iteration(self) -> int:
        """N·D + B."""
        return self.num_critic_steps * self.critic_batch_size + self.actor_batch_size

    @property
    def has_network(self) -> bool:
        """Whether policy or critic is a network, whose arrays are large beside those of tables."""
        return self.policy in NETWORKS or self.critic == "mlp"

    @property
    def static(self) -> Settings:
        """The settings without the traced numbers: a key for what does not depend on them."""
        return jax.tree.map(lambda _: None, self)


jax.tree_util.register_dataclass(
    Settings,
    data_fields=[each.name for each in fields(Settings) if "traced" in each.metadata],
    meta_fields=[each.name for each in fields(Settings) if "traced" not in each.metadata],
)


def resolve(config: Config, spec: Spec) -> Settings:
    """The settings of a configuration for a problem: what is None filled in, and all checked against the problem."""
    return Settings.of(complete(config, spec))


def beyond_theory(config: Config) -> tuple[str, ...]:
    """What of a configuration the theorems do not cover."""
    named = {
        "more than one epoch": (config.epochs or 1) > 1,
        "the ppo learner": config.learner == "ppo" and config.epochs == 1,
        "an mlp critic": config.critic == "mlp",
        "a network's policy": config.policy in NETWORKS,
        "Adam": "adam" in (config.optimiser, config.critic_optimiser),
        "clipped gradients": config.gradient_clip is not None,
        "an entropy bonus": bool(config.entropy),
        "GAE": bool(config.gae),
        "normalised gradients": config.normalise == "l2",
        "KL regularisation towards the behaviour policy": bool(config.behaviour_pull),
        f"{config.weighting} weights": not WEIGHTINGS[(config.weighting or "min-norm").partition(":")[0]].covered,
    }
    return tuple(name for name, present in named.items() if present)


def length_dependent(config: Config) -> tuple[str, ...]:
    """Fields of a configuration by which an iteration depends on `num_iterations`: such a run cannot be lengthened."""
    return ("schedule",) if config.schedule == "linear" else ()


def complete(config: Config, spec: Spec) -> Config:
    """`config` with what is None filled from the defaults, checked against the problem: what config.json holds."""
    spec = conditioned(spec) if config.conditioned else spec
    base = default_config.of_spec(spec, config)
    missing = {f.name: getattr(base, f.name) for f in fields(config) if getattr(config, f.name) is None}
    full = replace(config, **missing)
    M = spec.num_objectives
    if isinstance(full.setting, Discounted):
        full.setting.discounts(M)  # which checks
    elif spec.no_average:
        raise ValueError(f"`setting` must be discounted, got the average setting: {spec.no_average}")
    if full.weights is not None and len(full.weights) != M:
        raise ValueError(f"`weights` must hold one weight per objective ({M}), got {len(full.weights)}.")
    for each in (full.preferences or ())[:1]:
        if len(each) != M:
            raise ValueError(f"each of `preferences` must hold one number per objective ({M}), got {len(each)}.")
    _check_spaces(full, spec)
    return full


@with_owner
def conditioned(spec: Spec) -> Spec:
    """A problem whose observations are each followed by a preference; the same object for the same problem."""
    encoder = spec.observations.encoder
    if encoder is None:
        right = "an environment that is stepped; on a model, `preferences` trains a table for each"
        raise ValueError(f"`conditioned` needs {right}, got {spec.name}.")
    if spec.conditioned:
        return spec
    return replace(spec, observations=of_encoder(encoder.with_preference(spec.num_objectives)))


def for_steps(config: Config, spec: Spec, steps: int, trials: int = 1) -> Config:
    """`config` with as many iterations as fit into `steps` environment steps of so many trials together."""
    if config.num_iterations is not None:
        raise ValueError(
            f"`steps` and `num_iterations` must not both be given, got {steps} and {config.num_iterations}."
        )
    each = resolve(config, spec).samples_per_iteration * trials
    if isinstance(steps, bool) or not isinstance(steps, Integral) or int(steps) < each:
        raise ValueError(f"`steps` must be a whole number of at least {each:,} (one iteration), got {shown(steps)}.")
    return replace(config, num_iterations=int(steps) // each)


def _check_spaces(config: Config, spec: Spec) -> None:
    if isinstance(spec.observations, LogSpec):
        _check_log(config, spec.name, spec.observations)
    elif config.start == "behaviour" or config.behaviour_pull:
        raise ValueError(
            "`start` must be random and `behaviour_pull` 0 on what is not a log: it has no behaviour policy."
        )
    elif config.policy == "items":
        raise ValueError(f"`policy` must be items on logs only, whose actions have features; {spec.name} is not a log.")
    if spec.num_states is None and config.policy == "table":
        raise ValueError("`policy` must be linear or mlp where observations are vectors, got 'table'.")
    if (config.policy == "gaussian") != bool(spec.action_size):
        kind = "gaussian for continuous actions" if spec.action_size else "table, linear or mlp for discrete actions"
        raise ValueError(f"`policy` must be {kind}, got {shown(config.policy)}.")
    if not spec.observations.bounded and config.observation_scale == "bounds":
        raise ValueError("`observation_scale` must be running where a bound is infinite, got 'bounds'.")
    _check_batches(config, spec)


def _check_batches(config: Config, spec: Spec) -> None:
    if config.learner == "ppo" and isinstance(spec.observations, LogSpec):
        raise ValueError("`learner` must be paper on a log, whose actions another policy chose, got 'ppo'.")
    for name in ("actor_batch_size",) if config.learner == "ppo" else ("critic_batch_size", "actor_batch_size"):
        size = getattr(config, name)
        if size % spec.num_chains:
            raise ValueError(f"`{name}` must be a multiple of `num_envs` ({spec.num_chains}), got {size}.")


def _check_log(config: Config, name: str, log: LogSpec) -> None:
    """What rows drawn one by one, whose actions are given, do not allow."""
    if isinstance(config.setting, Average):
        raise ValueError("`setting` must be discounted on a log, got the average setting.")
    if config.gae:
        raise ValueError(f"`gae` must be 0 on a log, whose rows are sampled one by one, got {config.gae}.")
    if config.visitation != "stationary":
        raise ValueError("`visitation` must be stationary on a log: its rows cannot be restarted.")
    if config.features != "plain":
        raise ValueError(f"`features` must be plain on a log, got {shown(config.features)}.")
    if log.with_candidates and config.policy != "items":
        raise ValueError(
            f"`policy` must be items on {name}, whose requests have candidates, got {shown(config.policy)}."
        )
    if config.policy == "items" and log.catalogue is None:
        raise ValueError(f"`policy` must be mlp on {name}, which has no catalogue of items, got 'items'.")
    if config.start == "behaviour":
        _check_start(config, name, log)


def _check_start(config: Config, name: str, log: LogSpec) -> None:
    """A policy starts from a behaviour model of its own kind."""
    if log.behaviour_policy is None:
        raise ValueError(f"`start` must be random on {name}, which has no behaviour model, got 'behaviour'.")
    kind, widths, embedding = log.behaviour_policy
    same = (config.policy, config.hidden) == (kind, widths)
    if not same or (kind == "items" and config.item_embedding != embedding):
        more = f" and item_embedding={embedding}" if kind == "items" else ""
        right = f"{kind} with hidden={list(widths)}{more}"
        raise ValueError(f"`policy` must be {right}, as the behaviour model, to start from it.")


def sampling(settings: Settings, spec: Spec) -> Sampling:
    """How a source samples one iteration."""
    return Sampling(
        settings.num_critic_steps,
        settings.critic_batch_size,
        settings.actor_batch_size,
        average=isinstance(settings.setting, Average),
        survival=max(settings.setting.discounts(spec.num_objectives)) if settings.visitation == "discounted" else None,
        deviations=_DEVIATIONS.get(settings.observation_scale) if spec.num_states is None else None,
    )
