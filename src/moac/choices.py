"""The names that a configuration may say: policies, features, weighting rules, momentum schedules.

Imports neither JAX nor NumPy, so that the command line starts at once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

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
    "learner": ("paper", "ppo"),
    "units": ("return", "raw", "advantage"),
    "whitening": ("rollout", "none"),
    "schedule": ("linear", "constant"),
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
    "observation_scale": ("bounds", "running", "standard"),
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
WITH_PREFERENCES = tuple(name for name, rule in WEIGHTINGS.items() if rule.preferences)
"""Rules that a preference vector of each trial tilts."""


def takes_preferences(weighting: str) -> bool:
    """Whether a preference of each trial tilts the rule, with its number or without."""
    return weighting.partition(":")[0] in WITH_PREFERENCES


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is nearest, or nothing."""
    bare = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), list(bare), n=1)
    return f" Did you mean {bare[near[0]]}?" if near else ""
