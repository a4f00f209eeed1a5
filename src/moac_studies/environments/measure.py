"""Training runs of the study, each kept as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from moac import api, momdp
from moac.config import Config
from moac.files import Arrays
from moac.momdp import library
from moac.search import values
from moac.settings import Settings
from moac_studies import playing
from moac_studies.playing import Table
from moac_studies.studies import Workspace


def agreement(table: Table, seed: int, work: Workspace) -> Arrays:
    """Exact returns of policies trained on the real environment without its time limit, and on its model."""

    def measure() -> Arrays:
        trained = playing.train(table, _config(table), seed, time_limit=False)
        model = library.for_environment(table["env"])
        assert model is not None  # noqa: S101 - the study's file names an environment of the library
        policies = [trained.policy.of_trial(k) for k in range(table["trials"])]
        compiled = api.train(model, _config(table), trials=table["model_trials"], seed=seed)
        return {"environment": _exact(model, policies, trained.config), "model": compiled.returns}

    return work.arrays("agreement", {"seed": seed, **table}, measure)


def exact_ends(table: Table, seed: int, work: Workspace) -> Arrays:
    """Exact returns of policies trained on the real environment, beside the exact front."""

    def measure() -> Arrays:
        trained, model = playing.train(table, _config(table), seed), library.for_environment(table["env"])
        assert model is not None  # noqa: S101 - as above
        policies = [trained.policy.of_trial(k) for k in range(table["trials"])]
        front = momdp.pareto_front(model, trained.run.settings.setting).points
        return {"environment": _exact(model, policies, trained.config), "front": front}

    return work.arrays("ends", {"seed": seed, **table}, measure)


def against_random(table: Table, seed: int, work: Workspace) -> Arrays:
    """Discounted and plain returns of trained policies and of the untrained one, in episodes with the same seeds."""

    def measure() -> Arrays:
        trained = playing.train(table, _config(table), seed)
        environment: Any = trained.run.source
        found: Arrays = {}
        for name, policies in (("trained", trained.policy), ("random", playing.untrained(trained.policy, seed))):
            rows = playing.played(environment, policies, table["episodes"])
            found |= {f"{name}_{part}": array for part, array in rows.items()}
        return found

    return work.arrays(str(table["env"]), {"seed": seed, **table}, measure)


def _config(table: Table) -> Config:
    return Config.from_json({"num_evaluations": 1, **table["config"]})


def _exact(model: Any, policies: list[Any], config: Config) -> Any:
    found = values.exact(model, policies, Settings.of(config).setting)
    return np.full((len(policies), model.num_objectives), np.nan) if found is None else found
