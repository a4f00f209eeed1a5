"""Trained policies as arrays by name, and back."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Int

from moac.config import Config
from moac.files import Arrays
from moac.policies import GaussianMLP, SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable, features
from moac.policies.features import Table
from moac.policies.gaussian import Squash
from moac.policies.networks import Inputs, Plain, States, Vectors
from moac.settings import NETWORKS
from moac.training import result
from moac.training.trained import Scales
from moac.types import Params, Policy


def arrays(outcome: result.Result) -> Arrays:
    """All that `named` and `tree` need, and what belongs to it."""
    stored: Arrays = {"random_iteration": outcome.random_iteration, "stopped": outcome.stopped}
    for name, trained in (("theta", outcome.policy), ("theta_random", outcome.random_iterate_policy)):
        leaves = jax.tree.leaves(trained.theta)
        stored |= dict(zip(_names(name, len(leaves)), map(np.asarray, leaves), strict=True))
    if isinstance(outcome.policy.policy, SoftmaxLinear):
        stored["features"] = outcome.policy.policy.features.table()
    if isinstance(outcome.policy.policy, GaussianMLP):
        bounds = outcome.policy.policy.bounds
        stored |= {"action_low": np.array(bounds.low), "action_high": np.array(bounds.high)}
    if outcome.policy.observations is not None:
        stored["observations"] = outcome.policy.observations
    return stored | {f"observation_{name}": array for name, array in (outcome.policy.scales or {}).items()}


def scales(stored: Arrays) -> Scales | None:
    """Shift and gain of vectors; None for states."""
    found = {name: stored.get(f"observation_{name}") for name in ("shift", "gain")}
    return {name: array for name, array in found.items() if array is not None} or None


def named(stored: Arrays, config: Config) -> Policy:
    """The policy that a configuration named, without the problem it was trained on; ValueError for wrong shapes."""
    if config.policy in NETWORKS:
        return _network(stored, config)
    _, rows, actions = _sizes(stored, "theta", 3)
    if "observation_shift" in stored or config.features == "plain":
        size = _sizes(stored, "observation_shift", 2)[1] if "observation_shift" in stored else rows - 1
        return SoftmaxBasis(features.of_vectors(str(config.features), size), actions)
    if "features" in stored:
        _sizes(stored, "features", 2)
        return SoftmaxLinear(Table(stored["features"]), actions)
    return SoftmaxTable(rows, actions)


def _network(stored: Arrays, config: Config) -> Policy:
    first, *_, last = [_sizes(stored, name, 3) for name in sorted(stored, key=_place) if _place(name) >= 0]
    hidden = config.hidden or ()
    inputs = _inputs(stored, first[1], str(config.features))
    if config.policy == "mlp":
        return SoftmaxMLP(inputs, hidden, last[2])
    low, high = (tuple(stored[name].astype(float).tolist()) for name in ("action_low", "action_high"))
    return GaussianMLP(inputs, hidden, Squash(low, high), config.action_scale == "state")


def _inputs(stored: Arrays, rows: int, features: str) -> Inputs:
    """Of a network whose first matrix has so many rows."""
    if features == "plain":
        return Plain(rows - 1)
    return Vectors(_sizes(stored, "observation_shift", 2)[1]) if "observation_shift" in stored else States(rows)


def _sizes(stored: Arrays, name: str, axes: int) -> tuple[int, ...]:
    """The shape of an array that must have so many axes."""
    array = stored[name]
    if array.ndim != axes or not array.size or array.dtype.kind != "f":
        raise ValueError(f"`{name}` has shape {array.shape} and type {array.dtype}")
    return array.shape


def _place(name: str) -> int:
    """Which leaf of θ an array is; −1 for what is none."""
    kind, _, number = name.partition(".")
    return (int(number) if number.isdecimal() else 0) if kind == "theta" else -1


def tree(stored: Arrays, name: str, policy: Policy) -> Params:
    """The parameters of that name as the policy has them, leading axis K; ValueError for other shapes."""
    expected, structure = jax.tree.flatten(jax.eval_shape(policy.init, jax.random.key(0)))
    names = _names(name, len(expected))
    for leaf, one in zip(names, expected, strict=True):
        wanted, array = (*stored[names[0]].shape[:1], *one.shape), stored[leaf]
        if array.shape != wanted or array.dtype.kind != np.dtype(one.dtype).kind:
            raise ValueError(f"`{leaf}` has shape {array.shape} and type {array.dtype}, not {wanted} and {one.dtype}")
    return jax.tree.unflatten(structure, [stored[leaf] for leaf in names])


def of_each_trial(stored: Arrays, name: str, trials: int) -> Int[np.ndarray, " K"]:
    """An array with one whole number for each trial."""
    array = stored[name]
    if array.shape != (trials,) or array.dtype.kind not in "iu":
        raise ValueError(f"`{name}` has shape {array.shape} and type {array.dtype}")
    return array


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]
