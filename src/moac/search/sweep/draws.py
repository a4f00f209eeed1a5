"""Random search: a seeded draw from a range or a list for each field, the same on every machine."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, final, get_type_hints

from moac.config import Config, shown

MOST = 100_000
"""Tasks of one sweep."""
_HINTS = {"seed": int} | get_type_hints(Config)
_RIGHT = "a range [low, high] or {low = …, high = …, log = true}, a list of texts, or {choices = […]}"


@final
@dataclass(frozen=True)
class Range:
    """Numbers from low to high; whole ones where the field is, evenly spread in their logarithm where asked."""

    low: float
    high: float
    log: bool
    whole: bool

    def at(self, share: float) -> float | int:
        """The number at a share in [0, 1) of the range."""
        low, high = (self.low, self.high + 1) if self.whole else (self.low, self.high)
        value = low * (high / low) ** share if self.log else low + (high - low) * share
        return min(int(value), int(self.high)) if self.whole else value


@final
@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: Sequence[Any]

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the list."""
        return self.values[int(share * len(self.values))]


@final
@dataclass(frozen=True)
class Draws:
    """How many draws, and from what.

    Attributes:
        count: of draws.
        axes: a range or choices for each name.
    """

    count: int
    axes: Mapping[str, Range | Choices]

    @property
    def names(self) -> tuple[str, ...]:
        """What is drawn."""
        return tuple(self.axes)

    def drawn(self, seed: int) -> list[dict[str, Any]]:
        """The draws of a seed. Each name has its own stream: more draws, or names, leave the others as they are."""
        streams = {name: random.Random(f"{seed} {name}") for name in self.axes}  # noqa: S311 - no secret
        return [{name: axis.at(streams[name].random()) for name, axis in self.axes.items()} for _ in range(self.count)]


def check_tasks(count: int) -> None:
    """Refuse a sweep of more tasks than there may be, before they are drawn."""
    if count > MOST:
        raise ValueError(f"a sweep must have at most {MOST} tasks, got {count}.")


def parse(data: Mapping[str, Any] | None, known: Sequence[str]) -> Draws:
    """The table `[random]`; None is one draw of nothing."""
    if data is None:
        return Draws(1, {})
    count = data.get("count")
    if type(count) is not int or count < 1:
        raise ValueError(f"`random.count` must be a whole number of at least 1, got {shown(count)}.")
    check_tasks(count)
    axes = {key: value for key, value in data.items() if key != "count"}
    if not axes:
        raise ValueError("`random` must draw something: give a field and its range.")
    for key in axes:
        if key not in known:
            raise ValueError(f"`random.{key}` is neither count, env, seed nor a field; known are {', '.join(known)}.")
    return Draws(count, {key: _axis(key, value) for key, value in axes.items()})


def _axis(name: str, value: Any) -> Range | Choices:
    match value:
        case [low, high] if _is_number(low) and _is_number(high):
            return _range(name, low, high, False)
        case [str(), *_] if all(isinstance(one, str) for one in value):
            return Choices(value)
        case {"choices": [_, *_] as choices, **rest} if not rest:
            return Choices(choices)
        case {"low": low, "high": high, **rest} if set(rest) <= {"log"} and _is_number(low) and _is_number(high):
            return _range(name, low, high, rest.get("log", False))
        case _:
            raise ValueError(f"`random.{name}` must be {_RIGHT}, got {shown(value)}.")


def _range(name: str, low: float, high: float, log: Any) -> Range:
    kind = str(_HINTS.get(name))
    if "tuple" in kind or not ("int" in kind or "float" in kind):
        raise ValueError(f"`random.{name}` must be a list of texts or {{choices = […]}}: it is not a number.")
    whole = "int" in kind
    if not isinstance(log, bool):
        raise ValueError(f"`random.{name}.log` must be true or false, got {shown(log)}.")
    if not (math.isfinite(high - low) and low < high):
        raise ValueError(f"`random.{name}` must be a range from low to a larger high, got {shown([low, high])}.")
    if log and low <= 0:
        raise ValueError(f"`random.{name}.low` must be positive with log = true, got {shown(low)}.")
    if log and not math.isfinite(high / low):
        raise ValueError(f"`random.{name}` must be a range with a finite ratio, got {shown([low, high])}.")
    if whole and (low != int(low) or high != int(high)):
        raise ValueError(f"`random.{name}` must be a range of whole numbers, got {shown([low, high])}.")
    return Range(low, high, log, whole)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
