"""What shapes a run, as plain data. Imports neither JAX nor NumPy, so that the command line starts at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, TypeGuard, final


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

Schedule = Callable[[Any], Any]
"""t = 1, 2, … ↦ η_t in [0, 1]; plain arithmetic, so that it serves traced code as well."""

_SCHEDULES: dict[str, Schedule] = {
    "1/t": lambda t: 1.0 / t,
    "1/sqrt(t)": lambda t: t**-0.5,
    "1/t^2": lambda t: 1.0 / (t * t),
    "0": lambda t: 0.0 * t,
    "1": lambda t: 0.0 * t + 1.0,
}
_CONSTANT = "const:"


@final
@dataclass(frozen=True)
class Weighting:
    """What the configuration knows of a rule; the function of its name is in `moac.weighting`.

    Attributes:
        number: the argument that a number behind the name's colon gives, if any.
        takes: what `Config.weights` are to it: its `weights`, its `initial` λ_0, or λ_0 of the `momentum` around it.
        preferences: whether a preference vector of each trial tilts it.
        covered: whether it is the paper's rule or an ablation beside it.
    """

    number: str | None = None
    takes: str | None = "momentum"
    preferences: bool = False
    covered: bool = False


WEIGHTINGS: dict[str, Weighting] = {
    "min-norm": Weighting(covered=True),
    "preferred": Weighting(preferences=True, covered=True),
    "fixed": Weighting(takes="weights", preferences=True, covered=True),
    "uniform": Weighting(takes=None, covered=True),
    "first-batch": Weighting(takes=None, covered=True),
    "capped": Weighting(number="cap"),
    "cagrad": Weighting(number="c"),
    "pcgrad": Weighting(),
    "imtl-g": Weighting(),
    "nash-mtl": Weighting(),
    "upgrad": Weighting(),
    "fairgrad": Weighting(number="alpha"),
    "moco": Weighting(takes="initial"),
    "modo": Weighting(takes="initial"),
    "sdmgrad": Weighting(takes="initial", preferences=True),
    "chebyshev": Weighting(number="urgency", preferences=True),
}
"""All rules by the names that `Config.weighting` takes."""

CHOICES: dict[str, tuple[str, ...]] = {
    "policy": ("table", "linear", "mlp", "gaussian"),
    "critic": ("linear", "mlp"),
    "optimiser": ("constant", "adam"),
    "critic_optimiser": ("constant", "adam"),
    "action_scale": ("shared", "state"),
    "features": (
        "one-hot",
        "one-hot-reference",
        "random:<d>",
        "tile",
        "tile:<n>",
        "fourier:<order>",
        "rbf:<n>",
        "raw",
        "plain",
    ),
    "observation_scale": ("bounds", "running"),
    "weighting": tuple(
        choice
        for name, rule in WEIGHTINGS.items()
        for choice in ((name, f"{name}:<{rule.number}>") if rule.number else (name,))
    ),
    "visitation": ("stationary", "discounted"),
    "normalise": ("none", "l2"),
    "start": ("random", "behaviour"),
    "mu": ("batch", "paper"),
    "critic_start": ("warm", "cold"),
}
"""What the fields that name a part may say."""
_COUNTS = ("num_iterations", "num_critic_steps", "critic_batch_size", "actor_batch_size", "num_evaluations")
_STEPS = ("actor_step_size", "critic_step_size", "average_step_size", "gradient_clip", "importance_cap")
_BY_PROBLEM = ("policy", "features", "observation_scale", "optimiser", "critic_optimiser", "normalise", "start")
_SHARES = {"entropy": math.inf, "gae": 1.0, "behaviour_pull": math.inf}
WITH_PREFERENCES = tuple(name for name, rule in WEIGHTINGS.items() if rule.preferences)
"""Rules that a preference vector of each trial tilts."""
_OPTIONAL = {*_COUNTS, *_STEPS, "hidden", "behaviour_pull"} - {"num_evaluations", "average_step_size", "importance_cap"}


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
        policy: `table` (one logit per state and action), `linear` (logits linear in the features), `mlp` (logits from a
            network), `gaussian` (continuous actions; mean from a network).
        critic: `linear`, the paper's; `mlp` is a network with one output per objective, outside the theory.
        hidden: widths of the hidden layers of networks.
        action_scale: of a Gaussian policy: `shared` by all states, or from the network for each `state`.
        optimiser: of the actor: `constant` is the paper's step; `adam` is outside the theory.
        critic_optimiser: of the critic, likewise.
        gradient_clip: the actor's direction and the critic's are cut to this norm; None leaves them as they are.
        entropy: weight of an entropy bonus, added to the direction after the weighting; 0 is the paper.
        gae: λ of generalised advantage estimation per objective; 0 is the paper's one-step TD error.
        features: of states `one-hot`, `one-hot-reference` (without the most visited state), `random:<d>`; of vectors
            `tile`, `tile:<tiles per input>`, `fourier:<order>`, `rbf:<centres>`, `raw`; of a log's vectors `plain`.
        observation_scale: how vectors come into [0, 1]: by the `bounds` of their space, or by a `running` mean and
            spread, saved with the policy.
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
    num_iterations: int | None = None
    num_critic_steps: int | None = None
    critic_batch_size: int | None = None
    actor_batch_size: int | None = None
    actor_step_size: float | None = None
    critic_step_size: float | None = None
    visitation: str = "stationary"
    policy: str | None = None
    critic: str = "linear"
    hidden: tuple[int, ...] | None = None
    action_scale: str = "shared"
    optimiser: str | None = None
    critic_optimiser: str | None = None
    gradient_clip: float | None = None
    entropy: float = 0.0
    gae: float = 0.0
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
        for names, checked in ((_COUNTS, _count), (_STEPS, _step), (_SHARES, _share), (("hidden",), _widths)):
            for name in names:
                if getattr(self, name) is not None or name not in _OPTIONAL:
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


def schedule_names() -> tuple[str, ...]:
    """The momentum schedules that `schedule_of` knows."""
    return (*_SCHEDULES, f"{_CONSTANT}<value in [0, 1]>")


def schedule_of(momentum: str | Schedule) -> Schedule:
    """The schedule of that name; a function is checked at a few t and returned.

    Raises:
        ValueError: for an unknown name, or a value outside [0, 1].
    """
    if not isinstance(momentum, str):
        return _checked_schedule(momentum)
    if momentum in _SCHEDULES:
        return _SCHEDULES[momentum]
    if momentum.startswith(_CONSTANT):
        return _constant_schedule(momentum)
    raise ValueError(f"`momentum` must be one of {', '.join(schedule_names())}, got {momentum!r}.")


def _constant_schedule(text: str) -> Schedule:
    try:
        value = float(text.removeprefix(_CONSTANT))
    except ValueError:
        raise ValueError(f"`momentum` must be {_CONSTANT}<value in [0, 1]>, got {text!r}.") from None
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"`momentum` must be in [0, 1], got {value:g}.")
    return lambda t: 0.0 * t + value


def _checked_schedule(schedule: Schedule) -> Schedule:
    for t in (1.0, 2.0, 10.0, 1e3, 1e6):
        value = float(schedule(t))
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise ValueError(f"`momentum` must be in [0, 1], got {value:g} at t = {t:g}.")
    return schedule


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


def takes_preferences(weighting: str) -> bool:
    """Whether a preference of each trial tilts the rule, with its number or without."""
    return weighting.partition(":")[0] in WITH_PREFERENCES


def is_choice(name: str, value: Any) -> bool:
    """Whether a value is one of `CHOICES`, or one of them with its number; None where the problem decides."""
    known = CHOICES[name]
    if value is None:
        return name in _BY_PROBLEM
    kind, colon, size = str(value).partition(":")
    sized = any(choice.startswith(f"{kind}:<") for choice in known)
    if colon and sized and size.replace(".", "", name == "weighting").isdecimal():  # rules take numbers, features sizes
        return float(size) > 0 and value == f"{kind}:{size}"
    return value in known and "<" not in str(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1, got {shown(value)}.")
    return int(value)


def _step(name: str, value: Any) -> float:
    if not (_is_number(value) and 0.0 < value < math.inf):
        raise ValueError(f"`{name}` must be positive and finite, got {shown(value)}.")
    return float(value)


def _share(name: str, value: Any) -> float:
    largest = _SHARES[name]
    if not (_is_number(value) and 0.0 <= value <= largest and math.isfinite(value)):
        right = "at least 0 and finite" if math.isinf(largest) else f"in [0, {largest:g}]"
        raise ValueError(f"`{name}` must be {right}, got {shown(value)}.")
    return float(value)


def _widths(name: str, value: Any) -> tuple[int, ...]:
    return tuple(_count(name, width) for width in _several(value))


def _check_together(config: Config) -> None:
    """What fields must not say beside each other."""
    if not 0.0 < config.average_step_size <= 1.0:
        raise ValueError(f"`average_step_size` must be in (0, 1], got {config.average_step_size!r}.")
    if config.visitation == "discounted" and isinstance(config.setting, Average):
        raise ValueError("`visitation` must be stationary in the average setting, got 'discounted'.")
    if config.critic == "mlp" and config.critic_start == "cold":
        raise ValueError("`critic_start` must be warm with an mlp critic, since zeros cannot learn, got 'cold'.")


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
    found = tuple(_on_simplex("preferences", each) for each in _several(preferences))
    if not found or len({len(each) for each in found}) != 1:
        raise ValueError("`preferences` must hold at least one vector, all with one number per objective.")
    return found


def _on_simplex(name: str, values: Any) -> tuple[float, ...]:
    found: tuple[Any, ...] = _several(values)
    if any(not (_is_number(w) and 0.0 <= w < math.inf) for w in found) or abs(sum(found) - 1.0) > 1e-6:
        raise ValueError(f"`{name}` must be non-negative and sum to 1, got {shown(values)}.")
    return tuple(float(w) for w in found)


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _is_number(value: Any) -> TypeGuard[float]:
    return not isinstance(value, bool) and isinstance(value, Real)


def shown(value: Any) -> str:
    """A value as messages show it: NumPy's scalars and tuples as a person would write them."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value.item()) if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else repr(value)
