"""Training runs of the study, each kept as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from moac import envs, momdp, result
from moac.config import Config, known
from moac.envs.evaluation import Player, play, seeds_of
from moac.experiments import judging
from moac.experiments.files import Arrays
from moac.experiments.studies import Workspace
from moac.momdp import library

Table = Mapping[str, Any]


def agreement(table: Table, seed: int, work: Workspace) -> Arrays:
    """Exact returns of policies trained on the real environment without its time limit, and on its model."""

    def measure() -> Arrays:
        trained = _train(table, seed, time_limit=False)
        model = library.for_environment(table["env"])
        assert model is not None  # noqa: S101 - the study's file names an environment of the library
        policies = [trained.policy.of_trial(k) for k in range(table["trials"])]
        compiled = result.train(model, _config(table), trials=table["model_trials"], seed=seed)
        return {"environment": _exact(model, policies, trained.config), "model": compiled.returns}

    return work.arrays("agreement", {"seed": seed, **table}, measure)


def exact_ends(table: Table, seed: int, work: Workspace) -> Arrays:
    """Exact returns of policies trained on the real environment, beside the exact front."""

    def measure() -> Arrays:
        trained, model = _train(table, seed), library.for_environment(table["env"])
        assert model is not None  # noqa: S101 - as above
        policies = [trained.policy.of_trial(k) for k in range(table["trials"])]
        front = momdp.pareto_front(model, known(trained.config.setting)).points
        return {"environment": _exact(model, policies, trained.config), "front": front}

    return work.arrays("ends", {"seed": seed, **table}, measure)


def against_random(table: Table, seed: int, work: Workspace) -> Arrays:
    """Discounted and plain returns of trained policies and of the untrained one, in episodes with the same seeds."""

    def measure() -> Arrays:
        trained = _train(table, seed)
        environment: Any = trained.run.source
        untrained = replace(trained.policy, theta=jax.tree.map(np.zeros_like, trained.policy.theta))
        found: Arrays = {}
        for name, policy in (("trained", trained.policy), ("random", untrained)):
            rows = [_played(environment, policy.of_trial(k), table["episodes"]) for k in range(table["trials"])]
            for part in ("discounted", "returns", "length", "ended"):
                found[f"{name}_{part}"] = np.array([row[part] for row in rows])
        return found

    return work.arrays(str(table["env"]), {"seed": seed, **table}, measure)


def _played(environment: Any, policy: Any, episodes: int) -> dict[str, Any]:
    gamma = policy.setting.discounts(environment.spec.num_objectives)
    seeds = seeds_of(2_000_000 + policy.trial, episodes)
    played = play(environment, Player.of(environment, policy), seeds, gamma)
    return {
        "discounted": played.discounted.mean(axis=0),
        "returns": played.returns.mean(axis=0),
        "length": played.lengths.mean(),
        "ended": 1 - played.truncated.mean(),
    }


def _train(table: Table, seed: int, **options: Any) -> result.Result:
    environment = envs.make(table["env"], table["num_envs"], evaluation_episodes=1, **options)
    return result.train(environment, _config(table), trials=table["trials"], seed=seed)


def _config(table: Table) -> Config:
    return Config.from_json({"num_evaluations": 1, **table["config"]})


def _exact(model: Any, policies: list[Any], config: Config) -> Any:
    found = judging.exact(model, policies, known(config.setting))
    return np.full((len(policies), model.num_objectives), np.nan) if found is None else found
