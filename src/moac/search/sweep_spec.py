"""A sweep as TOML: what is common to all runs, and what varies, on a grid, at random or by method. Imports no JAX."""

from __future__ import annotations

import itertools
import math
import random
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, get_type_hints

from moac.choices import COUNT, shown
from moac.config import Config, check_trials
from moac.files import DamagedError, checked, read_bytes

METHOD = "method"
MOST = 100_000
"""Tasks of one sweep."""
_KEYS = ("env", "trials", "seed", "config", "grid", "random", "methods", "stepping")
_TABLES = _KEYS[3:]
_STEPPING = ("blackbox", "num_envs", "workers", "evaluation_episodes", "step_timeout")
"""How environments are stepped, by the names of `moac train`; `moac.envs.make` checks the values."""
_FIELDS = tuple(field.name for field in fields(Config))
_AXES = ("env", "seed", *_FIELDS)
"""What may vary, beside the method."""
_HINTS = {"seed": int} | get_type_hints(Config)
_AXIS = "a range [low, high] or {low = …, high = …, log = true}, a list of texts, or {choices = […]}"
Axis = Callable[[float], Any]
"""The value at a share in [0, 1) of a range or a list."""


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    values: Mapping[str, Any]  # what was varied, by name
    env: str  # the environment
    seed: int  # of the run
    config: Config  # what differs from the defaults

    @property
    def label(self) -> str:
        """What was varied, as a person reads it."""
        return ", ".join(f"{name} = {readable(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class Sweep:
    """A sweep, as data."""

    name: str  # of its file
    trials: int  # K, of each run
    seed: int  # of the random draws, and of every run unless that varies
    axes: tuple[str, ...]  # the names of what varies, in the order of the columns
    cells: tuple[Cell, ...]  # all runs
    common: Mapping[str, Any]  # the settings that all runs share
    stepping: tuple[tuple[str, Any], ...]  # how environments are stepped


def load(spec: str | Path | Mapping[str, Any]) -> Sweep:
    """The sweep of a TOML file, whose mistakes are ValueErrors that name it, or of the same as a dictionary."""
    if isinstance(spec, Mapping):
        try:
            return of(str(spec.get("name", "sweep")), {key: value for key, value in spec.items() if key != "name"})
        except ValueError as error:
            raise ValueError(f"`spec`: {error}") from None
    path = Path(spec)
    try:
        return parse(path.stem, read_bytes(path).decode())
    except DamagedError:
        raise
    except OSError as error:
        raise ValueError(f"`spec` must be a TOML file that can be read, got {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: it must be a TOML text in UTF-8.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse(name: str, text: str) -> Sweep:
    """A sweep from its TOML."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return of(name, data)


def of(name: str, data: Mapping[str, Any]) -> Sweep:
    """A sweep from its tables; an unknown key is an error."""
    _check_keys(checked(data))
    trials, seed = data.get("trials", 1), data.get("seed", 0)
    check_trials(trials, seed)
    grid, methods = _grid(data.get("grid", {})), data.get("methods", {})
    count, axes = _random(data.get("random"))
    _check_apart(data, grid, axes, methods)
    cells = tuple(_cell(data, values) for values in _values(methods, grid, _draws(count, axes, seed)))
    varied = (*([METHOD] if methods else []), *grid, *axes)
    stepping = tuple(sorted(data.get("stepping", {}).items()))
    return Sweep(name, trials, seed, varied, cells, data.get("config", {}), stepping)


def readable(value: Any) -> str:
    """A setting as a person reads it: numbers to four digits, what has parts by its parts.

    >>> readable(0.123456), readable((64, 64)), readable({"name": "discounted", "discount": 0.9})
    ('0.1235', '[64, 64]', 'discounted 0.9')
    """
    if isinstance(value, Mapping):
        return " ".join(map(readable, value.values()))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(readable, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_keys(data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if key not in _KEYS:
            raise ValueError(f"`{key}` is not a key of a sweep; known are {', '.join(_KEYS)}.")
        if key in _TABLES and not isinstance(value, dict):
            raise ValueError(f"`{key}` must be a table, [{key}], got {shown(value)}.")
    if "grid" not in data and "random" not in data and "methods" not in data:
        raise ValueError("a sweep must have a table of what varies: [grid], [random] or [methods].")
    _check_tables(data)


def _check_tables(data: Mapping[str, Any]) -> None:
    for key, value in data.get("stepping", {}).items():
        if key not in _STEPPING or not isinstance(value, bool | int | float):
            raise ValueError(f"`stepping` must hold numbers for {', '.join(_STEPPING)}, got {key} = {shown(value)}.")
    for key, value in data.get("methods", {}).items():
        if not isinstance(value, dict):
            raise ValueError(f"`methods.{key}` must be a table of fields, got {shown(value)}.")


def _check_apart(data: Mapping[str, Any], grid: Mapping[str, Any], axes: Mapping[str, Any], methods: Any) -> None:
    """Each field is places in one place: a method may change what is common, an axis nothing."""
    places = {"[config]": set(data.get("config", {})), "[grid]": set(grid), "[random]": set(axes)}
    places["[methods]"] = {key for method in methods.values() for key in method}
    places["the top"] = {key for key in ("env", "seed") if key in data} - ({"seed"} if "seed" in grid else set())
    for one, other in itertools.combinations(places, 2):
        both = sorted(places[one] & places[other])
        if both and {one, other} != {"[config]", "[methods]"}:
            raise ValueError(f"`{both[0]}` must be in one place, got it in {one} and in {other}.")
    if "env" not in places["the top"] | places["[grid]"] | places["[random]"]:
        raise ValueError("`env` must be given, at the top or in [grid].")
    if not isinstance(data.get("env", ""), str):
        raise ValueError(f"`env` must be the id of an environment, got {shown(data['env'])}; several go into [grid].")


def _check_tasks(count: int) -> None:
    """Refuse a sweep of more tasks than there may be, before they are drawn."""
    if count > MOST:
        raise ValueError(f"a sweep must have at most {MOST} tasks, got {count}.")


def _check_axes(table: str, names: Iterable[str]) -> None:
    for name in names:
        if name not in _AXES:
            raise ValueError(f"`{table}.{name}` is neither env nor seed nor a field; known are {', '.join(_AXES)}.")


def _grid(data: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    _check_axes("grid", data)
    for key, values in data.items():
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"`grid.{key}` must be a list of values, got {shown(values)}.")
    return dict(data)


def _random(data: Mapping[str, Any] | None) -> tuple[int, dict[str, Axis]]:
    """The table `[random]`: how many draws, and from what; None is one draw of nothing."""
    if data is None:
        return 1, {}
    count = COUNT.checked("random.count", data.get("count"))
    _check_tasks(count)
    axes = {key: value for key, value in data.items() if key != "count"}
    if not axes:
        raise ValueError("`random` must have a field and its range.")
    _check_axes("random", axes)
    return count, {key: _axis(key, value) for key, value in axes.items()}


def _axis(name: str, value: Any) -> Axis:
    match value:
        case [low, high] if is_number(low) and is_number(high):
            return _range(name, low, high, False)
        case [str(), *_] if all(isinstance(one, str) for one in value):
            return partial(_choice, value)
        case {"choices": [_, *_] as choices, **rest} if not rest:
            return partial(_choice, choices)
        case {"low": low, "high": high, "log": bool(log)} if is_number(low) and is_number(high) and len(value) == 3:
            return _range(name, low, high, log)
        case {"low": low, "high": high, **rest} if is_number(low) and is_number(high) and not rest:
            return _range(name, low, high, False)
        case _:
            raise ValueError(f"`random.{name}` must be {_AXIS}, got {shown(value)}.")


def _choice(values: Sequence[Any], share: float) -> Any:
    return values[int(share * len(values))]


def _range(name: str, low: float, high: float, log: bool) -> Axis:
    """Numbers from low to high; whole ones where the field is, evenly spread in their logarithm where asked."""
    kind = str(_HINTS.get(name))
    if "tuple" in kind or not ("int" in kind or "float" in kind):
        raise ValueError(f"`random.{name}` must be a list of texts or {{choices = […]}}: it is not a number.")
    whole, right = "int" in kind, "from low to a larger high"
    if whole and not (low == low // 1 and high == high // 1):
        right = "of whole numbers"
    elif log and not (low > 0 and math.isfinite(high / low)):
        right = "whose low is positive, with log = true"
    elif math.isfinite(high - low) and low < high:
        right = ""
    if right:
        raise ValueError(f"`random.{name}` must be a range {right}, got {shown([low, high])}.")
    if not whole:
        return partial(_between, low, high, log)
    return lambda share: min(int(_between(low, high + 1, log, share)), int(high))


def _between(low: float, high: float, log: bool, share: float) -> float:
    return low * (high / low) ** share if log else low + (high - low) * share


def _draws(count: int, axes: Mapping[str, Axis], seed: int) -> list[dict[str, Any]]:
    """The draws of a seed. Each name has its own stream: more draws, or names, leave the others as they are."""
    streams = {name: random.Random(f"{seed} {name}") for name in axes}  # noqa: S311 - no secret
    return [{name: axis(streams[name].random()) for name, axis in axes.items()} for _ in range(count)]


def _values(
    methods: Mapping[str, Any], grid: Mapping[str, Sequence[Any]], draws: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Every combination of method, grid and draw."""
    axes = ({METHOD: list(methods)} if methods else {}) | dict(grid)
    _check_tasks(len(draws) * math.prod(map(len, axes.values())))
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return [cell | dict(draw) for cell in cells for draw in draws]


def _cell(data: Mapping[str, Any], values: Mapping[str, Any]) -> Cell:
    chosen = {key: value for key, value in values.items() if key in _FIELDS}
    method = data.get("methods", {}).get(values.get(METHOD), {})
    env, seed = values.get("env", data.get("env")), values.get("seed", data.get("seed", 0))
    cell = Cell(values, env, seed, Config())
    try:
        check_trials(1, seed)
        if not isinstance(env, str):
            raise ValueError(f"`env` must be the id of an environment, got {shown(env)}.")
        return Cell(values, env, seed, Config.from_json({**data.get("config", {}), **method, **chosen}))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{cell.label}: {error}") from None
