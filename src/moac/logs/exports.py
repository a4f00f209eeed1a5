"""A logged dataset in the forms that d3rlpy and Minari read; neither package is needed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from moac.logs.dataset import LoggedDataset

_BLOCK = 8192
"""Rows whose features are assembled at a time."""


def mdp_arrays(dataset: LoggedDataset, weights: Sequence[float]) -> dict[str, Any]:
    """Arrays by the names that `d3rlpy.dataset.MDPDataset` takes, with one reward w·r per row; N·F·4 bytes.

    An episode ends where `terminals` (the successor is worth 0) or `timeouts` (the log ends) is 1, and never by both.
    """
    w = _checked(dataset, weights)
    return {
        "observations": _features(dataset, np.arange(dataset.num_rows), following=False),
        "actions": dataset.action.astype(np.int32),
        "rewards": dataset.reward @ w,
        "terminals": dataset.terminated.astype(np.float32),
        "timeouts": dataset.truncated.astype(np.float32),
        "action_size": dataset.num_actions,
    }


def episodes(dataset: LoggedDataset, weights: Sequence[float]) -> Iterator[dict[str, Any]]:
    """One after the other, as `minari.data_collector.EpisodeBuffer` takes them: T steps, T + 1 observations.

    The last observation is what is known after the last row. `infos["reward_vector"]` has T + 1 rows as well: the
    first, which belongs to no step, is zero.
    """
    w = _checked(dataset, weights)
    ends = np.flatnonzero(dataset.terminated | dataset.truncated) + 1
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        rows = np.arange(begin, end)
        reward = dataset.reward[rows]
        yield {
            "observations": np.concatenate([_features(dataset, rows, False), _features(dataset, rows[-1:], True)]),
            "actions": dataset.action[rows].astype(np.int64),
            "rewards": reward @ w,
            "terminations": dataset.terminated[rows],
            "truncations": dataset.truncated[rows],
            "infos": {"reward_vector": np.concatenate([np.zeros_like(reward[:1]), reward])},
        }


def _checked(dataset: LoggedDataset, weights: Sequence[float]) -> Float[np.ndarray, " M"]:
    w = np.asarray(weights, dtype=np.float32)
    if w.shape != (dataset.num_signals,) or not np.isfinite(w).all():
        names = ", ".join(dataset.signal_names)
        raise ValueError(f"`weights` must be {dataset.num_signals} numbers, one for each of {names}, got {weights}.")
    return w


def _features(dataset: LoggedDataset, rows: Int[np.ndarray, " n"], following: bool) -> Float[np.ndarray, "n F"]:
    """Features of the rows, or of what is known after them."""
    blocks = [np.zeros((0, dataset.num_features), np.float32)]
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        padded = np.resize(block, 1 << (len(block) - 1).bit_length())  # few shapes, so few compilations
        observation = (dataset.next_observation if following else dataset.observation)(padded)
        blocks.append(np.asarray(dataset.features(observation))[: len(block)])
    return np.concatenate(blocks)
