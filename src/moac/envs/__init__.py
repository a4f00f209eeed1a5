"""Environments: any of MO-Gymnasium's, or one's own, as a source of training. The only room that knows Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

from moac.envs.environment import Environment
from moac.envs.making import environment_of, known_ids

__all__ = ["Environment", "known_ids", "make"]


def make(
    env: str | Callable[..., Any],
    num_envs: int = 16,
    *,
    workers: int = 0,
    time_limit: bool = True,
    evaluation_episodes: int = 10,
    **options: Any,
) -> Environment:
    """Copies of an environment to train on.

    Args:
        env: an id of MO-Gymnasium, also in Gymnasium's form `package.module:Id-v0`; or a function that returns a new
            environment, whose `step` returns a vector of rewards.
        num_envs: copies per trial, stepped side by side; it must divide the batch sizes.
        workers: processes that step them; 0 steps them here. Only slow environments gain.
        time_limit: False lifts the time limit of the registration.
        evaluation_episodes: episodes that an evaluation while training averages over.
        options: for the environment's constructor.
    """
    for name, value, least in (("num_envs", num_envs, 1), ("evaluation_episodes", evaluation_episodes, 1)):
        _check(name, value, least)
    _check("workers", workers, 0)
    if workers > num_envs:
        raise ValueError(f"`workers` must be at most `num_envs` ({num_envs}), got {workers}.")
    sizes = {"num_envs": int(num_envs), "workers": int(workers), "evaluation_episodes": int(evaluation_episodes)}
    return environment_of(env, sizes, time_limit, options)


def _check(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
