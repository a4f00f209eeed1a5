"""Problems by name: of an environment's id, and of a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from moac import files
from moac.choices import did_you_mean
from moac.momdp import FiniteMOMDP, library
from moac.runs.directory import RunDirectory
from moac.types import Source


def model_of(env: str) -> FiniteMOMDP:
    """The exact model of an environment; an unknown one is refused with the known ones."""
    model = library.for_environment(env)
    if model is not None:
        return model
    known = library.known_environments()
    raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{did_you_mean(env, known)}")


def problem_of(env: str, *, blackbox: bool = False, **options: Any) -> Source:
    """The exact model of an environment where the library holds it, else the environment itself.

    Args:
        env: a MO-Gymnasium id, also as `package.module:Id-v0`.
        blackbox: step the real environment, also where its exact model is known.
        options: of `moac.envs.make`; only where the real environment is stepped.
    """
    model = None if blackbox else library.for_environment(env)
    if model is None:
        return _environment_of(env, options)
    for name in options:
        raise ValueError(f"`{name}` must be left out where the exact model is used, or given with --blackbox.")
    return model


def id_of(source: Source) -> str | None:
    """The id by which a problem can be made again; None where only a program has it."""
    model = library.for_environment(source.spec.name)
    if model is not None and model.spec.fingerprint == source.spec.fingerprint:
        return source.spec.name
    maker: Any = getattr(getattr(source, "interface", None), "make", None)
    env = getattr(maker, "env", None)
    return env if isinstance(env, str) else None


@lru_cache(maxsize=8)
def problem_of_task(env: str, options: tuple[tuple[str, Any], ...]) -> Source:
    """The same by plain data, kept: the tasks of a sweep, in any process, ask for few problems many times."""
    return problem_of(env, **dict(options))


def problem_of_run(directory: Path, trust: bool = False) -> Source:
    """The problem of a run, by what its config.json says; `trust` as in `environment_of_run`."""
    problem = RunDirectory(directory).description["problem"]
    if "log" in problem:
        from moac.runs import log_files

        return log_files.dataset_of(directory)
    if problem["env"] is None:
        raise ValueError(f"{directory} was saved from Python: resume it with moac.resume({str(directory)!r}, problem).")
    return model_of(problem["env"]) if problem.get("encoder") is None else environment_of_run(directory, trust)


def environment_of_run(directory: Path, trust: bool = False) -> Source:
    """The environment that a run's config.json names, with the options that it was trained with.

    Args:
        directory: of the run.
        trust: whether a module that it names may be imported, which runs the code in it.
    """
    problem = RunDirectory(directory).description["problem"]
    env, options = problem["env"], problem.get("options") or {}
    if env is None:
        raise ValueError(f"{directory} was saved from Python: its environment has no id to make it by.")
    if not isinstance(options, dict):
        raise files.DamagedError(directory / "config.json", "`problem.options` is not a table of options")
    if ":" in env and not trust:
        told = f"{directory} names the environment {env!r}, which would import the module {env.partition(':')[0]!r}"
        raise ValueError(f"{told}: give --trust if you trust the code in it.")
    return _environment_of(env, options)


def _environment_of(env: str, options: Mapping[str, Any]) -> Source:
    from moac import envs

    if ":" not in env and env not in (known := envs.known_ids()):
        raise ValueError(f"`ENV` must be an id that moac envs lists, got {env!r}.{did_you_mean(env, known)}")
    return envs.make(env, **options)
