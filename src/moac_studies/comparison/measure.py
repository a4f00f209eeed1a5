"""All methods of the comparison, each with the same number of settings, trained on one log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import jax
import numpy as np

from moac import api
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.logs.dataset import LoggedDataset
from moac.offline.baselines import pdpg, tscac
from moac.offline.evaluation import Method
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac_studies.studies import Workspace

Table = Mapping[str, Any]
_OTHERS = {"pdpg": pdpg, "tscac": tscac}
LEARNERS = ("moac", *_OTHERS)


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """One setting of one method.

    Attributes:
        method: name of the method.
        setting: what was searched over.
        policy: the network.
        theta: weights of the training seeds, leading axis K.
        steps: [L] at which λ was noted.
        weights: [K, L, M] λ, or what the method has in its place.
    """

    method: str
    setting: Table
    policy: SoftmaxMLP
    theta: Any
    steps: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]

    @property
    def name(self) -> str:
        """Tells it from the other settings."""
        return f"{self.method}, {', '.join(f'{key} {value:g}' for key, value in self.setting.items())}"

    @property
    def judged_as(self) -> Method:
        """What an estimate needs."""
        return self.policy, self.theta


def trained(dataset: LoggedDataset, name: str, table: Table, setting: Table, common: Table, work: Workspace) -> Trained:
    """From the file of an earlier call, or trained now.

    Args:
        dataset: with propensities.
        name: of the method.
        table: its `learner`, and what it sets beside the search.
        setting: one of the search.
        common: `trials`, `iterations`, `num_evaluations`, `seed` and `start`.
        work: keeps what has been trained.
    """
    if table["learner"] not in LEARNERS:
        raise ValueError(f"`learner` must be one of {', '.join(LEARNERS)}, got {table['learner']!r}.")
    own = {key: value for key, value in table.items() if key not in ("learner", "search")} | dict(setting)
    learn = _moac if table["learner"] == "moac" else _other
    identity = {"data": dataset.fingerprint, "learner": table["learner"], **own, **common}
    found = work.arrays(_slug(name, setting, common), identity, lambda: learn(dataset, table["learner"], own, common))
    layers = tuple(found[key] for key in sorted(found) if key.startswith("theta."))
    hidden = tuple(layer.shape[2] for layer in layers[:-1])
    policy = SoftmaxMLP(Plain(dataset.num_features), hidden, dataset.num_actions)
    return Trained(name, setting, policy, layers, found["steps"], found["weights"])


def _moac(dataset: LoggedDataset, learner: str, own: Table, common: Table) -> Arrays:
    del learner
    values = {key: value for key, value in own.items() if key != "discount"}
    setting = Discounted(own["discount"]) if "discount" in own else None
    chosen = {"num_iterations": common["iterations"], **_both(common)}
    config = Config(setting=setting, **chosen, **values)
    outcome = api.train(dataset, config, common["trials"], common["seed"])
    return _arrays(outcome.policy.theta, outcome.history.iteration, outcome.history.weights)


def _other(dataset: LoggedDataset, learner: str, own: Table, common: Table) -> Arrays:
    module = _OTHERS[learner]
    known = {field.name for field in fields(module.Options)}
    for key in (key for key in own if key not in known):
        raise ValueError(f"`{key}` is not an option of {learner}; known are {', '.join(sorted(known))}.")
    options = module.Options(steps=common["iterations"], **_both(common), **own)
    found = module.train(dataset, options, common["trials"], common["seed"])
    return _arrays(found.theta, found.steps, found.weights_history)


def _both(common: Table) -> dict[str, Any]:
    """What all learners call alike."""
    return {name: common[name] for name in ("start", "num_evaluations")}


def _arrays(theta: Any, steps: Any, weights: Any) -> Arrays:
    layers = {f"theta.{k}": np.asarray(layer) for k, layer in enumerate(jax.tree.leaves(theta))}
    return layers | {"steps": np.asarray(steps), "weights": np.asarray(weights)}


def _slug(name: str, setting: Table, common: Table) -> str:
    words = [name, *(f"{key} {value:g}" for key, value in setting.items()), f"from {common['start']}"]
    return "-".join("".join(c if c.isalnum() else "-" for c in word.lower()) for word in words)
