"""Environments: any of MO-Gymnasium's, or one's own, as a source of training. The only room that knows Gymnasium."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
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
    step_timeout: float | None = None,
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
        step_timeout: seconds after which a step or a reset that does not return ends its worker, and the run with it;
            None waits for ever. It needs `workers`: a step can only be ended together with its process.
        options: for the environment's constructor.
    """
    for name, value, least in (("num_envs", num_envs, 1), ("evaluation_episodes", evaluation_episodes, 1)):
        _check(name, value, least)
    _check("workers", workers, 0)
    if workers > num_envs:
        raise ValueError(f"`workers` must be at most `num_envs` ({num_envs}), got {workers}.")
    sizes = {"num_envs": int(num_envs), "workers": int(workers), "evaluation_episodes": int(evaluation_episodes)}
    return environment_of(env, sizes | _checked_timeout(step_timeout, workers), time_limit, options)


def _checked_timeout(seconds: Any, workers: int) -> dict[str, float]:
    """The time limit of a step, where there is one."""
    if seconds is None:
        return {}
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < float(seconds) < math.inf:
        raise ValueError(f"`step_timeout` must be a positive number of seconds, got {seconds!r}.")
    if not workers:
        raise ValueError("`step_timeout` needs `workers`: a step can only be ended together with its process.")
    return {"step_timeout": float(seconds)}


def _check(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
