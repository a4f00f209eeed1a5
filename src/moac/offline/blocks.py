"""Rows of a log in blocks, so that no table of all rows and all actions is ever in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from moac.logs.dataset import LoggedDataset

BLOCK = 2048
"""Rows whose features and probabilities are computed at a time."""
_NUMBERS, _LEAST = 1 << 21, 128
"""Probabilities of a block, and its fewest rows, where `BLOCK` rows would have more."""


def in_blocks(function: Callable[[Any], Any], rows: Any, size: int = BLOCK) -> Iterator[tuple[slice, Any]]:
    """Positions in `rows`, and function(rows there); every block has one shape, so one compiled program serves all."""
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        result = function(np.resize(block, size).astype(np.int32))
        count = len(block)
        yield slice(begin, begin + count), jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], result)


def joined(function: Callable[[Any], Any], rows: Any, size: int = BLOCK) -> Any:
    """function(rows), computed in blocks."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *(block for _, block in in_blocks(function, rows, size)))


def places(dataset: LoggedDataset, rows: Any) -> Int[np.ndarray, " n"]:
    """Where the logged actions of some rows stand among what could be chosen: in their lists, or among all actions."""
    if dataset.lists is None:
        return dataset.action[rows]
    first, mine = np.asarray(dataset.lists.first, np.int64), np.asarray(dataset.candidates)[rows]
    K = dataset.num_actions
    ascending = np.repeat(np.arange(len(first) - 1) * K, np.diff(first)) + dataset.lists.actions
    return np.searchsorted(ascending, mine.astype(np.int64) * K + dataset.action[rows]) - first[mine]


def num_choices(dataset: LoggedDataset) -> int:
    """K, or the length of the longest list of candidates."""
    return dataset.num_actions if dataset.lists is None else dataset.lists.most


def block_size(dataset: LoggedDataset) -> int:
    """Rows whose probabilities of all actions are computed at a time."""
    return min(BLOCK, max(_LEAST, 1 << (_NUMBERS // dataset.num_actions).bit_length() - 1))


def lengths(dataset: LoggedDataset, rows: Any) -> Int[np.ndarray, " n"]:
    """How many actions could be chosen in each of some rows."""
    if dataset.lists is None:
        return np.full(len(rows), dataset.num_actions)
    return np.diff(dataset.lists.first)[np.asarray(dataset.candidates)[rows]]


def of_taken(log_p: Any, action: Any) -> Float[np.ndarray, " n"]:
    """Log-probabilities of the logged actions, in float64, so that sums over many rows stay exact enough."""
    return np.take_along_axis(log_p, np.asarray(action)[:, None], axis=1)[:, 0].astype(np.float64)
