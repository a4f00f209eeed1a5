"""Trained policies as arrays by name, and back."""

from __future__ import annotations

import jax
import numpy as np

from moac import result
from moac.experiments.files import Arrays
from moac.features import Table
from moac.policy import SoftmaxLinear, SoftmaxTable
from moac.types import Params, Policy


def arrays(outcome: result.Result) -> Arrays:
    """All that `named` and `tree` need, and what belongs to it."""
    stored: Arrays = {"random_iteration": outcome.random_iteration, "stopped": outcome.stopped}
    for name, trained in (("theta", outcome.policy), ("theta_random", outcome.random_iterate_policy)):
        leaves = jax.tree.leaves(trained.theta)
        stored |= dict(zip(_names(name, len(leaves)), map(np.asarray, leaves), strict=True))
    if isinstance(outcome.policy.policy, SoftmaxLinear):
        stored["features"] = outcome.policy.policy.features.table()
    if outcome.policy.observations is not None:
        stored["observations"] = outcome.policy.observations
    return stored


def named(stored: Arrays) -> Policy:
    """The policy that a configuration named, without the problem it was trained on."""
    theta = stored["theta"]
    if "features" in stored:
        return SoftmaxLinear(Table(stored["features"]), theta.shape[2])
    return SoftmaxTable(theta.shape[1], theta.shape[2])


def tree(stored: Arrays, name: str, policy: Policy) -> Params:
    """The parameters of that name as the policy has them, leading axis K."""
    structure = jax.tree.structure(jax.eval_shape(policy.init, jax.random.key(0)))
    return jax.tree.unflatten(structure, [stored[leaf] for leaf in _names(name, structure.num_leaves)])


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]
