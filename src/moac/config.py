"""What shapes a run, as plain data. Imports neither JAX nor NumPy, so that the command line starts at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar, final

from moac import schedules

T = TypeVar("T")


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
        values = (self.discount,) if isinstance(self.discount, int | float) else tuple(self.discount)
        if not values:
            raise ValueError("`discount` must hold at least one value, got none.")
        for value in values:
            if not (math.isfinite(value) and 0.0 < value < 1.0):
                raise ValueError(f"`discount` must be in (0, 1), got {value!r}.")
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

_CHOICES: dict[str, tuple[str, ...]] = {
    "policy": ("table", "linear"),
    "critic": ("linear",),
    "features": ("one-hot", "one-hot-reference", "random:<d>"),
    "weighting": ("min-norm", "fixed", "uniform", "first-batch"),
    "visitation": ("stationary", "discounted"),
    "normalise": ("none", "l2"),
    "mu": ("batch", "paper"),
    "critic_start": ("warm", "cold"),
}
_COUNTS = ("num_iterations", "num_critic_steps", "critic_batch_size", "actor_batch_size", "num_evaluations")
_STEPS = ("actor_step_size", "critic_step_size")


@final
@dataclass(frozen=True)
class Config:
    """All that shapes a run. What is None is filled by `moac.defaults(problem)`.

    Attributes:
        setting: `Discounted` or `Average`.
        num_iterations: T, updates of the policy.
        num_critic_steps: N, TD steps before each of them.
        critic_batch_size: D, transitions per TD step.
        actor_batch_size: B, transitions per policy gradient.
        actor_step_size: α.
        critic_step_size: β.
        visitation: which states the policy gradient weighs: `stationary` is the paper; `discounted` follows the true
            gradient of the discounted return.
        policy: `table` (one logit per state and action) or `linear` (logits linear in the features).
        critic: `linear`, the paper's.
        features: `one-hot`, `one-hot-reference` (without the most visited state), `random:<d>`.
        weighting: the rule that gives λ̂.
        weights: λ for `fixed`; λ_0 of the momentum otherwise. None is uniform.
        momentum: η_t, a schedule by name: `1/t`, `1/sqrt(t)`, `1/t^2`, `0`, `1`, `const:<value>`.
        normalise: `none` is the paper; `l2` divides each objective's gradient by its norm, outside the theory.
        mu: average setting: `batch` moves μ after each batch; `paper` follows the paper's recursion.
        average_step_size: step of μ with `mu="batch"`.
        critic_start: `warm` keeps w between iterations; `cold` starts each from zero.
        num_evaluations: how many evenly spread iterations are evaluated and logged.
    """

    setting: Average | Discounted | None = None
    num_iterations: int | None = None
    num_critic_steps: int | None = None
    critic_batch_size: int | None = None
    actor_batch_size: int | None = None
    actor_step_size: float | None = None
    critic_step_size: float | None = None
    visitation: str = "stationary"
    policy: str = "table"
    critic: str = "linear"
    features: str = "one-hot"
    weighting: str = "min-norm"
    weights: tuple[float, ...] | None = None
    momentum: str = "1/t"
    normalise: str = "none"
    mu: str = "batch"
    average_step_size: float = 0.05
    critic_start: str = "warm"
    num_evaluations: int = 50

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known and not _random_features(name, getattr(self, name)):
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        for name in _COUNTS:
            _check_count(name, getattr(self, name))
        for name in _STEPS:
            _check_step(name, getattr(self, name))
        if not 0.0 < self.average_step_size <= 1.0:
            raise ValueError(f"`average_step_size` must be in (0, 1], got {self.average_step_size!r}.")
        schedules.parse(self.momentum)
        _check_weights(self.weighting, self.weights)
        if self.visitation == "discounted" and isinstance(self.setting, Average):
            raise ValueError("`visitation` must be stationary in the average setting, got 'discounted'.")

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


def known(value: T | None) -> T:
    """A field that resolving has filled."""
    if value is None:
        raise ValueError("the configuration must be resolved first: a field is None.")
    return value


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


def _random_features(name: str, value: Any) -> bool:
    return name == "features" and str(value).startswith("random:") and str(value)[7:].isdecimal() and int(value[7:]) > 0


def _check_count(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}.")


def _check_step(name: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")


def _check_weights(weighting: str, weights: tuple[float, ...] | None) -> None:
    if weights is None:
        if weighting == "fixed":
            raise ValueError("`weights` must be given with weighting='fixed', one per objective, got None.")
        return
    if any(not (math.isfinite(w) and w >= 0.0) for w in weights) or abs(sum(weights) - 1.0) > 1e-6:
        raise ValueError(f"`weights` must be non-negative and sum to 1, got {list(weights)}.")
