"""Training runs of the study, each kept as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from moac import envs
from moac.config import Config
from moac.files import Arrays
from moac.training import result
from moac.training.trained import TrainedPolicy
from moac_studies import playing
from moac_studies.playing import Table
from moac_studies.studies import Workspace

MAIN, START = "MOAC", "untrained"
"""The method that the study is about, and the policies that training begins with."""
_MEASURED = ("env", "num_envs", "trials", "steps", "episodes", "evaluation_episodes")
"""What of an environment's table decides a measurement, beside the configuration."""


def unavailable(table: Table) -> str:
    """Why the environment cannot be trained on here; empty where it can."""
    try:
        envs.make(table["env"], table["num_envs"]).close()
    except ValueError as error:
        return str(error)
    return ""


def all_methods(table: Table, methods: Table, seed: int, work: Workspace) -> dict[str, Arrays]:
    """The untrained policies and every method, by name."""
    found = {START: untrained(table, seed, work)}
    return found | {name: trained(table, {name: changes}, seed, work) for name, changes in methods.items()}


def trained(table: Table, method: Table, seed: int, work: Workspace) -> Arrays:
    """Returns and weights λ over environment steps, and the final policies in episodes of their own.

    `method` is one name with what it changes in the configuration.
    """
    ((name, changes),) = method.items()

    def measure() -> Arrays:
        found = playing.train(table, config(table, changes), seed, evaluation_episodes=table["evaluation_episodes"])
        environment: Any = found.run.source
        per_iteration = found.run.env_steps_per_iteration // table["trials"]
        over_time = {
            "steps": found.history.iteration * per_iteration,
            "over_steps": found.history.returns,
            "weights": found.history.weights,
        }
        return over_time | playing.played(environment, found.policy, table["episodes"])

    label = "-".join((table["env"], *name.split()))
    return work.arrays(label, {**_identity(table, seed), "changes": changes}, measure)


def untrained(table: Table, seed: int, work: Workspace) -> Arrays:
    """The policies that training begins with, in the same episodes."""

    def measure() -> Arrays:
        environment = envs.make(table["env"], table["num_envs"])
        run = result.prepare(environment, config(table, {}), table["trials"], seed)
        some = np.zeros(table["trials"])
        policies = TrainedPolicy.of(run.parts.policy, some, environment.spec, None, run.config.setting)
        return playing.played(environment, playing.untrained(policies, seed), table["episodes"])

    return work.arrays(f"{table['env']}-untrained", _identity(table, seed), measure)


def config(table: Table, changes: Table) -> Config:
    """The configuration of a method: as many iterations as the steps allow."""
    settings = {**table["config"], **changes}
    per_iteration = settings["num_critic_steps"] * settings["critic_batch_size"] + settings["actor_batch_size"]
    return Config.from_json({**settings, "num_iterations": table["steps"] // per_iteration})


def _identity(table: Table, seed: int) -> dict[str, Any]:
    return {"seed": seed, "config": table["config"], **{key: table[key] for key in _MEASURED}}
