"""Momentum schedules η_t by name. Plain arithmetic on t, so that they serve the configuration and traced code alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Schedule = Callable[[Any], Any]
"""t = 1, 2, … ↦ η_t in [0, 1]."""

_NAMED: dict[str, Schedule] = {
    "1/t": lambda t: 1.0 / t,
    "1/sqrt(t)": lambda t: t**-0.5,
    "1/t^2": lambda t: 1.0 / (t * t),
    "0": lambda t: 0.0 * t,
    "1": lambda t: 0.0 * t + 1.0,
}
_CONSTANT = "const:"


def names() -> tuple[str, ...]:
    """The schedules that `parse` knows."""
    return (*_NAMED, f"{_CONSTANT}<value in [0, 1]>")


def parse(momentum: str | Schedule) -> Schedule:
    """The schedule of that name; a function is checked at a few t and returned.

    Raises:
        ValueError: for an unknown name, or a value outside [0, 1].
    """
    if not isinstance(momentum, str):
        return _checked(momentum)
    if momentum in _NAMED:
        return _NAMED[momentum]
    if momentum.startswith(_CONSTANT):
        return _constant(momentum)
    raise ValueError(f"`momentum` must be one of {', '.join(names())}, got {momentum!r}.")


def _constant(text: str) -> Schedule:
    try:
        value = float(text.removeprefix(_CONSTANT))
    except ValueError:
        raise ValueError(f"`momentum` must be {_CONSTANT}<value in [0, 1]>, got {text!r}.") from None
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"`momentum` must be in [0, 1], got {value:g}.")
    return lambda t: 0.0 * t + value


def _checked(schedule: Schedule) -> Schedule:
    for t in (1.0, 2.0, 10.0, 1e3, 1e6):
        value = float(schedule(t))
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise ValueError(f"`momentum` must be in [0, 1], got {value:g} at t = {t:g}.")
    return schedule
