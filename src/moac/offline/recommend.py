"""The k most probable actions for every user of a log, a block of users at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from moac import files
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Catalogue
from moac.training.trained import TrainedPolicy, check_count, ranked

BLOCK = 512
"""Users whose recommendations are computed at a time."""
HEADER = "user_id,rank,video_id,probability\n"


@final
@dataclass(frozen=True, eq=False)
class Recommendations:
    """Recommendations to n users, the most probable first."""

    user_ids: Int[np.ndarray, " n"]  # as the log names them
    ids: Int[np.ndarray, "n k"]  # recommended actions, as the log names them
    probabilities: Float[np.ndarray, "n k"]  # of each
    counts: Int[np.ndarray, " n"]  # how many of the k there are; fewer where too many were left out


def all_users(
    trained: TrainedPolicy, dataset: LoggedDataset, k: int = 10, *, exclude_seen: bool = False
) -> Iterator[Recommendations]:
    """The k most probable actions for each user with rows, at the state after its last row, in blocks.

    That state is `dataset.next_observation` of the row: the history includes it, the context is its own.

    Args:
        trained: on this dataset, or on another with the same users, items and actions.
        dataset: the log.
        k: how many.
        exclude_seen: leave out what the user has viewed, however long ago; probabilities are then among the others.
    """
    catalogue = Catalogue.of(dataset)
    if not isinstance(trained.catalogue, Catalogue) or not catalogue.same(trained.catalogue):
        raise ValueError(f"the policy was trained on other users, items or actions than those of {dataset.name}.")
    check_count(k, dataset.num_actions)
    return _blocks(trained, dataset, k, exclude_seen)


def _blocks(trained: TrainedPolicy, dataset: LoggedDataset, k: int, exclude_seen: bool) -> Iterator[Recommendations]:
    last = last_rows(dataset)
    for begin in range(0, len(last), BLOCK):
        rows = last[begin : begin + BLOCK]
        user, end = dataset.user[rows], dataset.end[rows] + 1
        x = np.asarray(dataset.features(dataset.next_observation(np.resize(rows, BLOCK))))[: len(rows)]
        best = ranked(trained.logits(x), k, _viewed(dataset, user, end) if exclude_seen else None)
        names = dataset.action_ids[best.places]
        yield Recommendations(np.asarray(dataset.user_ids[user]), names, best.probabilities, best.counts)


def write_csv(path: Path, blocks: Iterable[Recommendations]) -> tuple[int, int]:
    """Write recommendations as CSV, wholly or not at all; how many users, and how many lines.

    A line for each recommendation; rank 1 is the most probable. Nothing but the block at hand is in memory.
    """
    users = lines = 0
    with files.replacing(path) as file:
        file.write(HEADER.encode())
        for block in blocks:
            file.write("".join(_lines(block)).encode())
            users, lines = users + len(block.user_ids), lines + int(block.counts.sum())
    return users, lines


def _lines(block: Recommendations) -> Iterator[str]:
    columns = (block.user_ids, block.counts, block.ids, block.probabilities)
    for user, count, ids, probabilities in zip(*(column.tolist() for column in columns), strict=True):
        for place in range(count):
            yield f"{user},{place + 1},{ids[place]},{probabilities[place]:.9g}\n"


def last_rows(dataset: LoggedDataset) -> Int[np.ndarray, " n"]:
    """The last row of each user that has any."""
    user = np.asarray(dataset.user)
    return np.flatnonzero(np.append(user[1:] != user[:-1], True)[: len(user)])


def _viewed(dataset: LoggedDataset, user: Any, end: Any) -> Bool[np.ndarray, "n K"]:
    """Whether each user has viewed each action before `end`."""
    tables: Any = dataset.tables
    action = np.full(len(tables.items), -1)
    action[dataset.action_items] = np.arange(dataset.num_actions)
    first = tables.first[user].astype(np.int64)
    length = end - first
    row = np.repeat(np.arange(len(user)), length)
    seen = action[tables.history[np.arange(len(row)) + np.repeat(first - np.cumsum(length) + length, length)]]
    viewed = np.zeros((len(user), dataset.num_actions), dtype=bool)
    viewed[row[seen >= 0], seen[seen >= 0]] = True
    return viewed
