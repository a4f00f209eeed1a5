"""From an environment's id to the problem it names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from moac import files
from moac.cli.config_options import Stepping
from moac.cli.mistakes import did_you_mean
from moac.momdp import FiniteMOMDP, library
from moac.types import Source


@lru_cache(maxsize=4)
def model_of(env: str) -> FiniteMOMDP:
    """The exact model of an environment; an unknown one is refused with the known ones."""
    model = library.for_environment(env)
    if model is not None:
        return model
    known = library.known_environments()
    raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{did_you_mean(env, known)}")


def problem_of(env: str, stepping: Stepping) -> Source:
    """The exact model where the library holds it and nothing else is asked for; else the environment itself."""
    model = None if stepping.blackbox else library.for_environment(env)
    if model is None:
        return environment_of(env, stepping.given)
    for name in stepping.given:
        raise ValueError(f"`{name}` must be left out where the exact model is used, or given with --blackbox.")
    return model


@lru_cache(maxsize=8)
def problem_stepped(env: str, stepping: tuple[tuple[str, Any], ...]) -> Source:
    """The same by plain data, kept: the tasks of a sweep, in any process, ask for few problems many times."""
    return problem_of(env, Stepping(**dict(stepping)))


def problem_of_run(path: Path, problem: Mapping[str, Any], trust: bool = False) -> Source:
    """The problem of a run directory, by what its config.json says; `trust` as in `environment_of_run`."""
    if "log" in problem:
        from moac.runs import log_files

        return log_files.dataset_of(path)
    if problem["env"] is None:
        raise ValueError(f"{path} was saved from Python: resume it with moac.resume({str(path)!r}, problem).")
    if problem.get("encoder") is None:
        return model_of(problem["env"])
    return environment_of_run(path, problem, trust)


def environment_of_run(path: Path, problem: Mapping[str, Any], trust: bool = False) -> Source:
    """The environment that config.json names, with the options that it was trained with.

    Args:
        path: of the run directory.
        problem: what its config.json says.
        trust: whether a module that it names may be imported, which runs the code in it.
    """
    env, options = problem["env"], problem.get("options") or {}
    if env is None:
        raise ValueError(f"{path} was saved from Python: its environment has no id to make it by.")
    if not isinstance(options, dict):
        raise files.DamagedError(path / "config.json", "`problem.options` is not a table of options")
    if ":" in env and not trust:
        told = f"{path} names the environment {env!r}, which would import the module {env.partition(':')[0]!r}"
        raise ValueError(f"{told}: give --trust if you trust the code in it.")
    return environment_of(env, options)


def environment_of(env: str, options: Mapping[str, Any]) -> Source:
    """The environment of that id."""
    from moac import envs

    namespaced = ":" in env
    if not namespaced and env not in envs.known_ids():
        known = (*library.known_environments(), *(i for i in envs.known_ids() if not library.for_environment(i)))
        raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{did_you_mean(env, known)}")
    return envs.make(env, **options)
