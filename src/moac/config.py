"""What shapes a run, as plain data. Imports neither JAX nor NumPy, so that the command line starts at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, TypeGuard, final

from moac.choices import CHOICES, WEIGHTINGS, WITH_PREFERENCES, schedule_names, schedule_of, takes_preferences


@final
@dataclass(frozen=True)
class Average:
    """Average-reward setting: Jⁱ is the reward per step, lim (1/T) E Σ rⁱ."""

    def discounts(self, num_objectives: int) -> tuple[float, ...]:
        """The factor on the successor's value in the TD error: 1 for every objective."""
        return (1.0,) * num_objectives


@final
@dataclass(frozen=True)
class Discounted:
    """Discounted setting: Jⁱ = E Σ_{t≥0} (γⁱ)ᵗ rⁱ_t from the start distribution.

    Args:
        discount: γ, one value for all objectives or one value per objective, each in (0, 1).
    """

    discount: float | tuple[float, ...] = 0.9

    def __post_init__(self) -> None:
        values: tuple[Any, ...] = _several(self.discount)
        if not values:
            raise ValueError("`discount` must hold at least one value, got none.")
        for value in values:
            if not (_is_number(value) and 0.0 < value < 1.0):
                raise ValueError(f"`discount` must be in (0, 1), got {shown(value)}.")
        floats = tuple(float(value) for value in values)
        object.__setattr__(self, "discount", floats[0] if len(floats) == 1 else floats)

    def discounts(self, num_objectives: int) -> tuple[float, ...]:
        """One γ per objective; a single value serves them all."""
        if isinstance(self.discount, int | float):
            return (self.discount,) * num_objectives
        if len(self.discount) != num_objectives:
            raise ValueError(
                f"`discount` must be one value or one per objective ({num_objectives}), got {len(self.discount)}."
            )
        return self.discount


Setting = Average | Discounted


@final
@dataclass(frozen=True)
class Config:
    """All that shapes a run. What is None is filled by `moac.defaults(problem)`.

    Attributes:
        setting: `Discounted` or `Average`.
        learner: `paper` is Algorithm 2, which uses each sample once; `ppo` goes over each rollout several times, which
            is outside the theory.
        num_iterations: T, updates of the policy.
        num_critic_steps: N, TD steps before each of them; 0 with `ppo`, where one rollout serves actor and critic.
        critic_batch_size: D, transitions per TD step.
        actor_batch_size: B, transitions per policy gradient; with `ppo` the rollout, T steps of each of E copies.
        epochs: passes of `ppo` over a rollout.
        minibatch_size: transitions per step of `ppo`; it divides `actor_batch_size`.
        ratio_clip: ε of `ppo`: a step gains nothing from moving π/π_old out of [1 − ε, 1 + ε].
        units: of the advantages that `ppo` weighs: `raw` rewards, spreads of the discounted `return`, or spreads of the
            `advantage` itself.
        whitening: `rollout` centres the advantages of each objective and divides their weighted sum by its spread;
            `none` is the paper.
        schedule: step sizes and entropy of `ppo` stay `constant`, or fall in a `linear` way to 0.
        actor_step_size: α.
        critic_step_size: β.
        visitation: which states the policy gradient weighs: `stationary` is the paper; `discounted` follows the true
            gradient of the discounted return.
        policy: `table` (one logit per state and action), `linear` (logits linear in the features), `mlp` (logits from a
            network), `gaussian` (continuous actions; mean from a network).
        critic: `linear`, the paper's; `mlp` is a network with one output per objective, outside the theory.
        hidden: widths of the hidden layers of networks.
        action_spread: σ of a Gaussian policy at the start, before its actions are squashed into their bounds.
        action_scale: of a Gaussian policy: `shared` by all states, or from the network for each `state`.
        optimiser: of the actor: `constant` is the paper's step; `adam` is outside the theory.
        critic_optimiser: of the critic, likewise.
        gradient_clip: the actor's direction and the critic's are cut to this norm; None leaves them as they are.
        entropy: weight of an entropy bonus, added to the direction after the weighting; 0 is the paper.
        gae: λ of generalised advantage estimation per objective; 0 is the paper's one-step TD error.
        features: of states `one-hot`, `one-hot-reference` (without the most visited state), `random:<d>`; of vectors
            `tile`, `tile:<tiles per input>`, `fourier:<order>`, `rbf:<centres>`, `raw`; of a log's vectors `plain`.
        observation_scale: how vectors come into [0, 1]: by the `bounds` of their space, or by their running
            moments, saved with the policy: `running` up to 3 deviations, `standard` up to 10, which networks see as
            deviations.
        weighting: the rule that gives λ̂ (docs/rules.md); `capped:0.5`, `cagrad:0.4`, `fairgrad:2` and `chebyshev:0.1`
            with a number of their own. All but the first five are outside the theory.
        weights: λ for `fixed`; λ_0 of the momentum, or of a rule that takes steps, otherwise. None is uniform.
        preferences: p of each trial, in turn, for `preferred`, `chebyshev` and `sdmgrad`; for `fixed` its λ. None is
            one p for all, uniform.
        momentum: η_t, a schedule by name: `1/t`, `1/sqrt(t)`, `1/t^2`, `0`, `1`, `const:<value>`; for rules
            whose λ̂ is on the simplex and takes no steps of its own.
        normalise: `none` is the paper; `l2` divides each objective's gradient by its norm, outside the theory.
        start: θ_1: `random`, or on a log the `behaviour` model's weights.
        importance_cap: C of ρ = min{C, π/π_b}, which weighs a log's TD errors and gradients.
        behaviour_pull: weight of −∇KL(π_b ‖ π) on a log, added to the direction after the weighting.
        mu: average setting: `batch` moves μ after each batch; `paper` follows the paper's recursion.
        average_step_size: step of μ with `mu="batch"`.
        critic_start: `warm` keeps w between iterations; `cold` starts each from zero.
        num_evaluations: how many evenly spread iterations are evaluated and logged.
    """

    setting: Average | Discounted | None = None
    learner: str | None = None
    num_iterations: int | None = None
    num_critic_steps: int | None = None
    critic_batch_size: int | None = None
    actor_batch_size: int | None = None
    actor_step_size: float | None = None
    critic_step_size: float | None = None
    epochs: int | None = None
    minibatch_size: int | None = None
    ratio_clip: float | None = None
    units: str | None = None
    whitening: str | None = None
    schedule: str | None = None
    visitation: str = "stationary"
    policy: str | None = None
    critic: str | None = None
    hidden: tuple[int, ...] | None = None
    action_scale: str = "shared"
    action_spread: float = 0.6065306597126334  # log σ = −1/2
    optimiser: str | None = None
    critic_optimiser: str | None = None
    gradient_clip: float | None = None
    entropy: float | None = None
    gae: float | None = None
    features: str | None = None
    observation_scale: str | None = None
    weighting: str = "min-norm"
    weights: tuple[float, ...] | None = None
    preferences: tuple[tuple[float, ...], ...] | None = None
    momentum: str = "1/t"
    normalise: str | None = None
    start: str | None = None
    importance_cap: float = 10.0
    behaviour_pull: float | None = None
    mu: str = "batch"
    average_step_size: float = 0.05
    critic_start: str = "warm"
    num_evaluations: int = 50

    def __post_init__(self) -> None:
        _check_type("setting", self.setting, (Average, Discounted, type(None)), "Average() or Discounted(discount)")
        _check_type("momentum", self.momentum, (str,), f"one of {', '.join(schedule_names())}")
        for name, known in CHOICES.items():
            if not is_choice(name, getattr(self, name)):
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {shown(getattr(self, name))}.")
        for name, checked in _CHECKS.items():
            if not _left_open(name, getattr(self, name)):
                object.__setattr__(self, name, checked(name, getattr(self, name)))
        object.__setattr__(self, "weights", _weights(self))
        object.__setattr__(self, "preferences", _preferences(self.weighting, self.preferences))
        schedule_of(self.momentum)
        _check_together(self)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data; `from_json` reads it back."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.setting is not None:
            data["setting"] = {"name": type(self.setting).__name__.lower(), **vars(self.setting)}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        """A configuration from what `to_json` made; an unknown key is an error."""
        known = [field.name for field in fields(cls)]
        for key in data:
            if key not in known:
                raise ValueError(f"`{key}` is not a field of the configuration; known are {', '.join(known)}.")
        values: dict[str, Any] = {key: _tuple_if_list(value) for key, value in data.items()}
        if values.get("setting") is not None:
            values["setting"] = _setting(values["setting"])
        return cls(**values)


def check_trials(trials: Any, seed: Any) -> None:
    """Refuse a number of trials below one, or a seed that JAX cannot take."""
    _count("trials", trials)
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**32:
        raise ValueError(f"`seed` must be a whole number in [0, 2^32), got {shown(seed)}.")


def _tuple_if_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _setting(data: Any) -> Setting:
    match data:
        case {"name": "average", **rest} if not rest:
            return Average()
        case {"name": "discounted", "discount": discount, **rest} if not rest:
            return Discounted(_tuple_if_list(discount))
        case _:
            raise ValueError(f"`setting` must be average or discounted with its discount, got {data!r}.")


def _check_type(name: str, value: Any, kinds: tuple[type, ...], right: str) -> None:
    if not isinstance(value, kinds):
        raise ValueError(f"`{name}` must be {right}, got {shown(value)}.")


def is_choice(name: str, value: Any) -> bool:
    """Whether a value is one of `CHOICES`, or one of them with its number; None where the problem decides."""
    known = CHOICES[name]
    if value is None:
        return _left_open(name, value)
    kind, colon, size = str(value).partition(":")
    sized = any(choice.startswith(f"{kind}:<") for choice in known)
    if colon and sized and size.replace(".", "", name == "weighting").isdecimal():  # rules take numbers, features sizes
        return float(size) > 0 and value == f"{kind}:{size}"
    return value in known and "<" not in str(value)


def _left_open(name: str, value: Any) -> bool:
    """Whether a field is None and may be: where that is its default, the problem decides, or the option is off."""
    return value is None and Config.__dataclass_fields__[name].default is None


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1, got {shown(value)}.")
    return int(value)


def _count_or_zero(name: str, value: Any) -> int:
    return 0 if not isinstance(value, bool) and value == 0 else _count(name, value)


def _step(name: str, value: Any) -> float:
    if not (_is_number(value) and 0.0 < value < math.inf):
        raise ValueError(f"`{name}` must be positive and finite, got {shown(value)}.")
    return float(value)


def _not_negative(name: str, value: Any) -> float:
    if not (_is_number(value) and 0.0 <= value < math.inf):
        raise ValueError(f"`{name}` must be at least 0 and finite, got {shown(value)}.")
    return float(value)


def _spread(name: str, value: Any) -> float:
    if not (_is_number(value) and 0.01 <= value <= 2.5):  # log σ is kept in (−5, 1)
        raise ValueError(f"`{name}` must be in [0.01, 2.5], got {shown(value)}.")
    return float(value)


def _share(name: str, value: Any) -> float:
    if not (_is_number(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"`{name}` must be in [0, 1], got {shown(value)}.")
    return float(value)


def _widths(name: str, value: Any) -> tuple[int, ...]:
    return tuple(_count(name, width) for width in _several(value))


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "num_iterations": _count,
    "num_critic_steps": _count_or_zero,
    "critic_batch_size": _count,
    "actor_batch_size": _count,
    "num_evaluations": _count,
    "epochs": _count,
    "minibatch_size": _count,
    "ratio_clip": _step,
    "action_spread": _spread,
    "actor_step_size": _step,
    "critic_step_size": _step,
    "average_step_size": _step,
    "gradient_clip": _step,
    "importance_cap": _step,
    "entropy": _not_negative,
    "behaviour_pull": _not_negative,
    "gae": _share,
    "hidden": _widths,
}
"""How the numbers of a configuration are checked, and cleaned of NumPy's types."""


def _check_together(config: Config) -> None:
    """What fields must not say beside each other."""
    if not 0.0 < config.average_step_size <= 1.0:
        raise ValueError(f"`average_step_size` must be in (0, 1], got {config.average_step_size!r}.")
    if config.visitation == "discounted" and isinstance(config.setting, Average):
        raise ValueError("`visitation` must be stationary in the average setting, got 'discounted'.")
    for name, right in _OF_PAPER.items():
        if config.learner == "paper" and getattr(config, name) not in (None, right):
            raise ValueError(f"`{name}` must be {right} with learner='paper', got {shown(getattr(config, name))}.")
    if config.learner == "ppo":
        _check_ppo(config)
    elif config.num_critic_steps == 0:
        _count("num_critic_steps", 0)
    if config.critic == "mlp" and config.critic_start == "cold":
        raise ValueError("`critic_start` must be warm with an mlp critic, since zeros cannot learn, got 'cold'.")


_OF_PAPER = {"epochs": 1, "units": "raw", "whitening": "none", "schedule": "constant"}
"""What the paper's learner does of what `ppo` has a choice in."""


def _check_ppo(config: Config) -> None:
    """What reusing a rollout does not go together with."""
    if isinstance(config.setting, Average):
        raise ValueError("`learner` must be paper in the average setting, got 'ppo'.")
    if config.num_critic_steps:
        raise ValueError(f"`num_critic_steps` must be 0 with learner='ppo', got {config.num_critic_steps}.")
    B, b = config.actor_batch_size, config.minibatch_size
    if B is not None and b is not None and B % b:
        raise ValueError(f"`minibatch_size` must divide `actor_batch_size` ({B} = copies × steps of each), got {b}.")


def _weights(config: Config) -> tuple[float, ...] | None:
    weighting, weights = config.weighting, config.weights
    if weights is None:
        if weighting == "fixed" and config.preferences is None:
            raise ValueError("`weights` must be given with weighting='fixed', one per objective, got None.")
        return None
    if weighting in WEIGHTINGS and WEIGHTINGS[weighting].takes is None:
        raise ValueError(f"`weights` must be None with weighting={weighting!r}, got {shown(weights)}.")
    return _on_simplex("weights", weights)


def _preferences(weighting: str, preferences: Any) -> tuple[tuple[float, ...], ...] | None:
    if preferences is None:
        return None
    if not takes_preferences(weighting):
        raise ValueError(f"`preferences` must be None unless `weighting` is {' or '.join(WITH_PREFERENCES)}.")
    vectors = tuple(_on_simplex("preferences", each) for each in _several(preferences))
    if not vectors or len({len(each) for each in vectors}) != 1:
        raise ValueError("`preferences` must hold at least one vector, all with one number per objective.")
    return vectors


def _on_simplex(name: str, values: Any) -> tuple[float, ...]:
    weights: tuple[Any, ...] = _several(values)
    if any(not (_is_number(w) and 0.0 <= w < math.inf) for w in weights) or abs(sum(weights) - 1.0) > 1e-6:
        raise ValueError(f"`{name}` must be non-negative and sum to 1, got {shown(values)}.")
    return tuple(float(w) for w in weights)


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _is_number(value: Any) -> TypeGuard[float]:
    return not isinstance(value, bool) and isinstance(value, Real)


def shown(value: Any) -> str:
    """A value as messages show it: NumPy's scalars and tuples as a person would write them."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value.item()) if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else repr(value)
