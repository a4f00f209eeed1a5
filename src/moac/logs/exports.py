"""A logged dataset in the forms that other libraries read; their packages are needed only to make their own objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from moac.logs import states
from moac.logs.dataset import LoggedDataset

_BLOCK = 8192
"""Rows whose features are assembled at a time."""


@final
@dataclass(frozen=True, eq=False)
class MDPArrays:
    """Rows in order; an episode ends where `terminals` or `timeouts` is set, and never by both.

    Attributes:
        observations: [N, F] features before each row.
        actions: [N] from 0 to K − 1.
        rewards: [N] w·r, signs included.
        terminals: [N] the successor is worth 0.
        timeouts: [N] the log ends, the user goes on.
        num_actions: K.
    """

    observations: Float[np.ndarray, "N F"]
    actions: Int[np.ndarray, " N"]
    rewards: Float[np.ndarray, " N"]
    terminals: Bool[np.ndarray, " N"]
    timeouts: Bool[np.ndarray, " N"]
    num_actions: int


def mdp_arrays(dataset: LoggedDataset, weights: Sequence[float]) -> MDPArrays:
    """The dense form, N·F·4 bytes, with one reward w·r per row; take a `subset` of a large log."""
    w = _checked(dataset, weights)
    return MDPArrays(
        _dense(dataset, np.arange(dataset.num_rows), following=False),
        dataset.action.astype(np.int32),
        dataset.reward @ w,
        dataset.terminated.copy(),
        dataset.truncated.copy(),
        dataset.num_actions,
    )


def episodes(dataset: LoggedDataset, weights: Sequence[float]) -> Iterator[dict[str, Any]]:
    """One after the other, as Minari keeps them: T steps, T + 1 observations, the reward vectors in `infos`.

    The last observation is what is known after the last row. `infos["reward_vector"]` has T + 1 rows as well: the
    first, which belongs to no step, is zero.
    """
    w = _checked(dataset, weights)
    ends = np.flatnonzero(dataset.terminated | dataset.truncated) + 1
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        rows = np.arange(begin, end)
        reward = dataset.reward[rows]
        yield {
            "observations": np.concatenate([_dense(dataset, rows, False), _dense(dataset, rows[-1:], True)]),
            "actions": dataset.action[rows].astype(np.int64),
            "rewards": reward @ w,
            "terminations": dataset.terminated[rows],
            "truncations": dataset.truncated[rows],
            "infos": {"reward_vector": np.concatenate([np.zeros_like(reward[:1]), reward])},
        }


def to_d3rlpy(dataset: LoggedDataset, weights: Sequence[float]) -> Any:
    """A `d3rlpy.dataset.MDPDataset` with discrete actions and the reward w·r."""
    d3rlpy = _package("d3rlpy")
    arrays = mdp_arrays(dataset, weights)
    return d3rlpy.dataset.MDPDataset(
        observations=arrays.observations,
        actions=arrays.actions,
        rewards=arrays.rewards,
        terminals=arrays.terminals.astype(np.float32),
        timeouts=arrays.timeouts.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=arrays.num_actions,
    )


def to_minari(dataset: LoggedDataset, weights: Sequence[float], dataset_id: str = "log/moac-v0") -> Any:
    """A `minari.MinariDataset` of that name on this machine; rewards are w·r, the vectors are in `infos`."""
    minari, spaces = _package("minari"), _package("gymnasium").spaces
    buffer = _package("minari.data_collector").EpisodeBuffer
    return minari.create_dataset_from_buffers(
        dataset_id=dataset_id,
        buffer=[buffer(id=k, **episode) for k, episode in enumerate(episodes(dataset, weights))],
        action_space=spaces.Discrete(dataset.num_actions),
        observation_space=spaces.Box(-np.inf, np.inf, (dataset.num_features,), np.float32),
    )


def _checked(dataset: LoggedDataset, weights: Sequence[float]) -> Float[np.ndarray, " M"]:
    w = np.asarray(weights, dtype=np.float32)
    if w.shape != (dataset.num_signals,) or not np.isfinite(w).all():
        names = ", ".join(dataset.signal_names)
        raise ValueError(f"`weights` must be {dataset.num_signals} numbers, one for each of {names}, got {weights}.")
    return w


def _dense(dataset: LoggedDataset, rows: Int[np.ndarray, " n"], following: bool) -> Float[np.ndarray, "n F"]:
    """Features of the rows, or of what is known after them."""
    found = np.empty((len(rows), dataset.num_features), np.float32)
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        padded = np.resize(block, 1 << (len(block) - 1).bit_length())  # few shapes, so few compilations
        seen = (dataset.next_observation if following else dataset.observation)(padded)
        found[begin : begin + len(block)] = _assemble(dataset.data.tables, seen)[: len(block)]
    return found


_assemble = jax.jit(states.features)


def _package(name: str) -> Any:
    """A package that moac does not depend on."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise ValueError(f"this export needs {package}, which is not installed: pip install {package}.") from None
