"""Experiments as TOML: one file per figure, which says only what differs from the defaults."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, final

from moac.config import Config
from moac.runs.runner import Task

_KEYS = ("title", "env", "trials", "seed", "main", "summary", "why", "config", "methods", "sensitivity", "quick")
_STUDY_KEYS = ("title", "study", "seed", "summary", "why", "parameters", "quick")


@final
@dataclass(frozen=True)
class Experiment:
    """A figure of the paper, as data.

    Attributes:
        name: of its file.
        title: of its report.
        env: the environment.
        trials: per method.
        seed: of every method, so that all see the same randomness.
        main: the method that the paper's figure shows.
        summary: what is shown.
        why: how the settings were chosen.
        methods: tasks by label, in the order of the figures.
        sensitivity: cells of the grid.
        quick: whether this is the reduced run.
    """

    name: str
    title: str
    env: str
    trials: int
    seed: int
    main: str
    summary: str
    why: str
    methods: tuple[Task, ...]
    sensitivity: tuple[Task, ...]
    quick: bool


@final
@dataclass(frozen=True)
class Study:
    """A measurement of the theory, as data.

    Attributes:
        name: of its file.
        title: of its report.
        study: which study it is; `experiments.rates` knows them.
        seed: of all randomness.
        summary: what is shown.
        why: how the parameters were chosen.
        parameters: tables by the name of the measurement, each with its own keys.
        quick: whether this is the reduced run.
    """

    name: str
    title: str
    study: str
    seed: int
    summary: str
    why: str
    parameters: Mapping[str, Mapping[str, Any]]
    quick: bool


Methods = tuple[Task, ...]
Facts = Mapping[str, Any]


def names() -> tuple[str, ...]:
    """The experiments that come with the package."""
    files = resources.files("moac_studies") / "specs"
    return tuple(sorted(path.name.removesuffix(".toml") for path in files.iterdir() if path.name.endswith(".toml")))


def load(name: str, quick: bool = False) -> Experiment | Study:
    """The experiment of that name; `quick` is its reduced version."""
    if name not in names():
        raise ValueError(f"`NAME` must be one of {', '.join((*names(), 'all'))}, got {name!r}.")
    return parse(name, (resources.files("moac_studies") / "specs" / f"{name}.toml").read_text(), quick)


def parse(name: str, text: str, quick: bool = False) -> Experiment | Study:
    """An experiment or a study from its TOML; an unknown or missing key is an error."""
    try:
        return _parsed(name, tomllib.loads(text), quick)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}.toml is not TOML: {error}.") from None
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name}.toml is wrong: {error}.") from None


def _parsed(name: str, data: Mapping[str, Any], quick: bool) -> Experiment | Study:
    keys = _STUDY_KEYS if "study" in data else _KEYS
    for key in (*(key for key in data if key not in keys), *(key for key in keys if key not in data)):
        raise ValueError(f"{name}.toml must have the keys {', '.join(keys)}; {key!r} is unknown or missing.")
    return _study(name, data, quick) if "study" in data else _experiment(name, data, quick)


def _study(name: str, data: Mapping[str, Any], quick: bool) -> Study:
    """`[quick]` holds the tables of `[parameters]` again, with what the reduced run changes in them."""
    parameters: dict[str, Mapping[str, Any]] = data["parameters"]
    reduced: dict[str, Mapping[str, Any]] = data["quick"] if quick else {}
    for table in (table for table in data["quick"] if table not in parameters):
        raise ValueError(f"{name}.toml: [quick.{table}] must name one of {', '.join(parameters)}.")
    tables = {table: {**values, **reduced.get(table, {})} for table, values in parameters.items()}
    return Study(
        name,
        data["title"],
        data["study"],
        int(data["seed"]),
        _text(data["summary"], _tables(tables)),
        _why(data["why"], _tables(parameters), quick),
        tables,
        quick,
    )


def _experiment(name: str, data: Mapping[str, Any], quick: bool) -> Experiment:
    reduced: dict[str, Any] = data["quick"] if quick else {}
    trials = int(reduced.get("trials", data["trials"]))
    base: dict[str, Any] = data["config"] | {k: v for k, v in reduced.items() if k not in ("trials", "methods")}
    methods = _methods(base, data["methods"], reduced.get("methods", data["methods"]), trials)
    full = _methods(data["config"], data["methods"], data["methods"], int(data["trials"]))
    return Experiment(
        name,
        data["title"],
        data["env"],
        trials,
        int(data["seed"]),
        data["main"],
        _text(data["summary"], _facts(data["main"], trials, methods)),
        _why(data["why"], _facts(data["main"], int(data["trials"]), full), quick),
        methods,
        () if quick else _grid(base, data["methods"], data["sensitivity"]),
        quick,
    )


def _methods(base: Mapping[str, Any], methods: Mapping[str, Any], chosen: Iterable[str], trials: int) -> Methods:
    return tuple(Task(label, Config.from_json({**base, **methods[label]}), trials) for label in chosen)


def _facts(main: str, trials: int, methods: Methods) -> Facts:
    """What the texts of an experiment's file may name."""
    names = "; ".join(task.label for task in methods)
    return {"main": main, "trials": trials, "methods": names, "iterations": methods[0].config.num_iterations}


def _tables(parameters: Mapping[str, Mapping[str, Any]]) -> Facts:
    """What the texts of a study's file may name, as `{table[key]}`."""
    return {
        table: {key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in values.items()}
        for table, values in parameters.items()
    }


def _text(text: str, facts: Facts) -> str:
    """A text in one line, the names in braces replaced by what is run."""
    return " ".join(text.split()).format_map(facts)


def _why(text: str, facts: Facts, quick: bool) -> str:
    """How the settings were chosen: those of the full run."""
    return f"Of the full run: {_text(text, facts)}" if quick else _text(text, facts)


def _grid(base: Mapping[str, Any], methods: Mapping[str, Any], grid: Mapping[str, Any]) -> tuple[Task, ...]:
    """One task for each combination of the listed values, of the named method."""
    axes = {key: values for key, values in grid.items() if key not in ("of", "trials")}
    changes = methods[grid["of"]]
    tasks: list[Task] = []
    for values in itertools.product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        label = ", ".join(f"{key} = {value:g}" for key, value in cell.items())
        tasks.append(Task(label, Config.from_json({**base, **changes, **cell}), int(grid["trials"])))
    return tuple(tasks)
