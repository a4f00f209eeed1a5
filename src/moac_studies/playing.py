"""Training on real environments and playing what was trained: what the studies of environments share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from moac import api, envs
from moac.config import Config, Discounted
from moac.envs.evaluation import play, seeds_of
from moac.envs.making import OBJECTIVES
from moac.files import Arrays
from moac.momdp import indicators
from moac.training import result
from moac.training.trained import TrainedPolicy

Table = Mapping[str, Any]
"""Of a study's file: `env`, `num_envs` and `trials` among others."""
_STREAM = 2_000_000
"""Sets the seeds of these episodes apart from those of training and of its evaluations."""


def train(table: Table, config: Config, seed: int, **options: Any) -> result.Result:
    """The trials of a table; options go to the environment."""
    given: dict[str, Any] = {"evaluation_episodes": 1, **options}
    environment = envs.make(table["env"], table["num_envs"], **given)
    return api.train(environment, config, trials=table["trials"], seed=seed)


def untrained(policies: TrainedPolicy, seed: int) -> TrainedPolicy:
    """Policies of the same kind as training begins with, one per trial."""
    keys = jax.random.split(jax.random.key(seed), policies.num_trials)
    return replace(policies, theta=jax.vmap(policies.policy.init)(keys))


def played(environment: envs.Environment, policies: TrainedPolicy, episodes: int) -> Arrays:
    """Means over whole episodes of every trial, whose seeds depend on the trial alone.

    `discounted` and `returns` [K, M], `length` and the share that `ended` before the time limit [K].
    """
    rows = [_of_trial(environment, policies.of_trial(k), episodes) for k in range(policies.num_trials)]
    return {part: np.array([row[part] for row in rows]) for part in rows[0]}


def episode_seeds(trial: int, episodes: int) -> list[int]:
    """Of the episodes in which `played` lets a trial play."""
    return seeds_of(_STREAM + trial, episodes)


def volumes(points: Float[np.ndarray, "*N M"], reference: list[float]) -> Float[np.ndarray, "*N"]:
    """The hypervolume of each point by itself; 0 where it is not above the reference."""
    flat = [indicators.hypervolume(point[None], reference) for point in points.reshape(-1, points.shape[-1])]
    return np.array(flat).reshape(points.shape[:-1])


def objectives(env: str, count: int) -> tuple[str, ...]:
    """What an environment's objectives are called."""
    names = OBJECTIVES.get(env.rpartition("-v")[0], ())
    return names if len(names) == count else tuple(f"objective {i + 1}" for i in range(count))


def _of_trial(environment: envs.Environment, policy: TrainedPolicy, episodes: int) -> dict[str, Any]:
    gamma = (policy.setting or Discounted()).discounts(environment.spec.num_objectives)
    found = play(environment, policy, episode_seeds(policy.trial, episodes), gamma)
    return {
        "discounted": found.discounted.mean(axis=0),
        "returns": found.returns.mean(axis=0),
        "length": found.lengths.mean(),
        "ended": 1 - found.truncated.mean(),
    }
