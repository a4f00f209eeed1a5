"""History and policies of a finished run: arrays by name, checked when read."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from jaxtyping import Int

from moac import files
from moac.files import Arrays
from moac.policies import SoftmaxLinear
from moac.training import result
from moac.training.history import History
from moac.training.trained import Scales
from moac.types import Params, Policy


def history(path: Path, size: tuple[int, int]) -> History:
    """The history in a file, with arrays of the shapes that K trials and M objectives ask for."""
    arrays, about = files.read_arrays(path)
    with files.interpreting(path):
        stored = History.of_arrays(arrays, str(about["kind"]))
    (K, M), L = size, len(np.atleast_1d(stored.iteration))
    cubes = ("returns", "weights", "min_norm_weights")
    for name, array in stored.arrays().items():
        wanted = (L,) if name == "iteration" else (K, L, M) if name in cubes else (K, L)
        if array.shape != wanted or L == 0 or array.dtype.kind not in "fiu":
            told = f"`{name}` has shape {array.shape} and type {array.dtype}"
            raise files.DamagedError(path, f"{told} in place of {wanted} and numbers")
    return stored


def policy_arrays(outcome: result.Result) -> Arrays:
    """The parameters of all policies, and what else it takes to let them act."""
    stored: Arrays = {"random_iteration": outcome.random_iteration, "stopped": outcome.stopped}
    for name, trained in (("theta", outcome.policy), ("theta_random", outcome.random_iterate_policy)):
        leaves = jax.tree.leaves(trained.theta)
        stored |= dict(zip(_names(name, len(leaves)), map(np.asarray, leaves), strict=True))
    if isinstance(outcome.policy.policy, SoftmaxLinear):
        stored["features"] = outcome.policy.policy.features.table()
    if outcome.policy.observations is not None:
        stored["observations"] = outcome.policy.observations
    return stored | {f"observation_{name}": array for name, array in (outcome.policy.scales or {}).items()}


def parameters(stored: Arrays, name: str, policy: Policy) -> Params:
    """The parameters of that name as the policy has them, leading axis K; ValueError for other shapes."""
    expected, structure = jax.tree.flatten(jax.eval_shape(policy.init, jax.random.key(0)))
    names = _names(name, len(expected))
    for leaf, one in zip(names, expected, strict=True):
        wanted, array = (*stored[names[0]].shape[:1], *one.shape), stored[leaf]
        if array.shape != wanted or array.dtype.kind != np.dtype(one.dtype).kind:
            raise ValueError(f"`{leaf}` has shape {array.shape} and type {array.dtype}, not {wanted} and {one.dtype}")
    return jax.tree.unflatten(structure, [stored[leaf] for leaf in names])


def scales(stored: Arrays) -> Scales | None:
    """Shift and gain of vectors; None for states."""
    known = {name: stored.get(f"observation_{name}") for name in ("shift", "gain")}
    return {name: array for name, array in known.items() if array is not None} or None


def per_trial(stored: Arrays, name: str, trials: int) -> Int[np.ndarray, " K"]:
    """An array with one whole number for each trial."""
    array = stored[name]
    if array.shape != (trials,) or array.dtype.kind not in "iu":
        raise ValueError(f"`{name}` has shape {array.shape} and type {array.dtype}")
    return array


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]
