"""A sweep as TOML: what is common to all runs, and what varies. Imports no JAX."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

from moac.config import Config, check_trials, shown
from moac.files import DamagedError, checked, read_bytes
from moac.report.numbers import plain
from moac.search.sweep import draws

_KEYS = ("env", "trials", "seed", "config", "grid", "random", "methods", "stepping")
_TABLES = _KEYS[3:]
STEPPING = {"blackbox": bool, "num_envs": int, "workers": int, "evaluation_episodes": int, "step_timeout": float}
"""How environments are stepped, by the names of `moac train`."""
_RIGHT: dict[type, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: type(value) is bool),
    int: ("a whole number of at least 1", lambda value: type(value) is int and value >= 1),
    float: ("a positive number", lambda value: type(value) in (int, float) and 0 < value < math.inf),
}
_FIELDS = tuple(field.name for field in fields(Config))
AXES = ("env", "seed", *_FIELDS)
"""What may vary, beside the method."""
METHOD = "method"


@final
@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        values: what was varied, by name.
        env: the environment.
        seed: of the run.
        config: what differs from the defaults.
    """

    values: Mapping[str, Any]
    env: str
    seed: int
    config: Config

    @property
    def label(self) -> str:
        """What was varied, as a person reads it."""
        return ", ".join(f"{name} = {plain(value)}" for name, value in self.values.items())


@final
@dataclass(frozen=True)
class Sweep:
    """A sweep, as data.

    Attributes:
        name: of its file.
        trials: K, of each run.
        seed: of the random draws, and of every run unless that varies.
        axes: the names of what varies, in the order of the columns.
        cells: all runs.
        common: the settings that all runs share.
        stepping: how environments are stepped.
    """

    name: str
    trials: int
    seed: int
    axes: tuple[str, ...]
    cells: tuple[Cell, ...]
    common: Mapping[str, Any]
    stepping: tuple[tuple[str, Any], ...]


def load(path: Path) -> Sweep:
    """The sweep of a file; a mistake in it is a ValueError that names the file."""
    try:
        return parse(path.stem, read_bytes(path).decode())
    except DamagedError:
        raise
    except UnicodeDecodeError:
        raise ValueError(f"{path}: it must be a TOML text in UTF-8.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse(name: str, text: str) -> Sweep:
    """A sweep from its TOML; an unknown key is an error."""
    data = _toml(text)
    _check_keys(data)
    trials, seed = data.get("trials", 1), data.get("seed", 0)
    check_trials(trials, seed)
    grid, random = _grid(data.get("grid", {})), draws.parse(data.get("random"), AXES)
    methods: Mapping[str, Any] = data.get("methods", {})
    _check_apart(data, grid, random, methods)
    axes = (*([METHOD] if methods else []), *grid, *random.names)
    cells = tuple(_cell(data, values) for values in _values(methods, grid, random.drawn(seed)))
    stepping = tuple(sorted(data.get("stepping", {}).items()))
    return Sweep(name, trials, seed, axes, cells, data.get("config", {}), stepping)


def _toml(text: str) -> dict[str, Any]:
    try:
        return checked(tomllib.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _check_keys(data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if key not in _KEYS:
            raise ValueError(f"`{key}` is not a key of a sweep; known are {', '.join(_KEYS)}.")
        if key in _TABLES and not isinstance(value, dict):
            raise ValueError(f"`{key}` must be a table, [{key}], got {shown(value)}.")
    if "grid" not in data and "random" not in data and "methods" not in data:
        raise ValueError("a sweep must say what varies: [grid], [random] or [methods] is missing.")
    _check_stepping(data.get("stepping", {}))
    for key, value in data.get("methods", {}).items():
        if not isinstance(value, dict):
            raise ValueError(f"`methods.{key}` must be a table of fields, got {shown(value)}.")


def _check_stepping(data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if key not in STEPPING:
            raise ValueError(f"`stepping.{key}` is not known; known are {', '.join(STEPPING)}.")
        right, fits = _RIGHT[STEPPING[key]]
        if not fits(value):
            raise ValueError(f"`stepping.{key}` must be {right}, got {shown(value)}.")


def _grid(data: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    for key, values in data.items():
        if key not in AXES:
            raise ValueError(f"`grid.{key}` is neither env nor seed nor a field; known are {', '.join(AXES)}.")
        if not isinstance(values, list) or not values:
            raise ValueError(f"`grid.{key}` must be a list of values, got {shown(values)}.")
    return dict(data)


def _check_apart(
    data: Mapping[str, Any], grid: Mapping[str, Any], random: draws.Draws, methods: Mapping[str, Any]
) -> None:
    """Each field is said in one place: a method may change what is common, an axis nothing."""
    said = {"[config]": set(data.get("config", {})), "[grid]": set(grid), "[random]": set(random.names)}
    said["[methods]"] = {key for method in methods.values() for key in method}
    said["the top"] = {key for key in ("env", "seed") if key in data} - ({"seed"} if "seed" in grid else set())
    for one, other in itertools.combinations(said, 2):
        both = sorted(said[one] & said[other])
        if both and {one, other} != {"[config]", "[methods]"}:
            raise ValueError(f"`{both[0]}` must be in one place, got it in {one} and in {other}.")
    if "env" not in said["the top"] | said["[grid]"] | said["[random]"]:
        raise ValueError("`env` must be given, at the top or in [grid].")
    if not isinstance(data.get("env", ""), str):
        raise ValueError(f"`env` must be the id of an environment, got {shown(data['env'])}; several go into [grid].")


def _values(
    methods: Mapping[str, Any], grid: Mapping[str, Sequence[Any]], drawn: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Every combination of method, grid and draw."""
    axes = ({METHOD: list(methods)} if methods else {}) | dict(grid)
    count = len(drawn)
    for values in axes.values():
        count *= len(values)
    draws.check_tasks(count)
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return [cell | dict(own) for cell in cells for own in drawn]


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
