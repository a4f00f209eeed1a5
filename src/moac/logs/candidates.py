"""Lists of candidates: the actions that a request could be answered with, where a log says so. Needs no JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from moac.files import Arrays

FIRST, ACTIONS = "candidate_first", "candidate_actions"


def joined(index: Any, actions: Any) -> Arrays:
    """`candidate_first` [L + 1] and `candidate_actions` [T], from the list that each action belongs to."""
    order = np.lexsort((actions, index))
    first = np.append(0, np.cumsum(np.bincount(index)))
    return {FIRST: first.astype(np.int32), ACTIONS: np.asarray(actions)[order].astype(np.int32)}


def of_rows(lists: Sequence[Any], taken: Any, action_ids: Any) -> tuple[Any, Arrays]:
    """The list of each row [N], and the arrays of all that differ; each row's own action must be in its list.

    Args:
        lists: ids of each row's candidates.
        taken: [N] index of each row's action.
        action_ids: [K] in ascending order.
    """
    if len(lists) != len(taken):
        raise ValueError(f"`candidates` must hold a list for each of {len(taken)} rows, got {len(lists)}.")
    known: dict[bytes, int] = {}
    rows, parts = np.empty(len(lists), np.int32), list[Any]()
    for row, each in enumerate(lists):
        ids = np.unique(np.asarray(each))
        if not ids.size:
            raise ValueError(f"`candidates` must hold at least one action, got none in row {row}.")
        places = np.minimum(np.searchsorted(action_ids, ids), len(action_ids) - 1)
        for name in ids[action_ids[places] != ids][:1]:
            raise ValueError(f"`candidates` must hold actions of the log, got {name} in row {row}.")
        if taken[row] not in places:
            raise ValueError(
                f"`candidates` must hold the action that was shown, {action_ids[taken[row]]}, in row {row}."
            )
        rows[row] = known.setdefault(places.tobytes(), len(parts))
        if rows[row] == len(parts):
            parts.append(places)
    return rows, joined(np.repeat(np.arange(len(parts)), [len(part) for part in parts]), np.concatenate(parts))


def mapped(arrays: Arrays, place: Any) -> Arrays:
    """The same lists with `place` of each action in its stead; those of −1 are left out."""
    index = np.repeat(np.arange(len(arrays[FIRST]) - 1), np.diff(arrays[FIRST]))
    moved = place[arrays[ACTIONS]]
    kept = joined(index[moved >= 0], moved[moved >= 0])
    length = len(arrays[FIRST])  # the last lists may have lost all
    return kept | {FIRST: np.append(kept[FIRST], np.full(length - len(kept[FIRST]), kept[FIRST][-1], np.int32))}


def known_actions(taken: Any, num_actions: int) -> Bool[np.ndarray, " K"] | None:
    """Which actions some rows show; None where they show all."""
    known = np.bincount(taken, minlength=num_actions) > 0
    return None if known.all() else known
