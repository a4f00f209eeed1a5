"""The k most probable actions for requests, or for every user of a log, a block at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from moac.logs import requests
from moac.logs.catalogue import Catalogue
from moac.logs.dataset import LoggedDataset
from moac.logs.requests import BLOCK, Block
from moac.policies import ItemsPolicy
from moac.training.trained import Ranked, Recommendation, TrainedPolicy, count_of, ranked
from moac.types import Request

_NUMBERS = 1 << 23
"""Scores that are in memory at once."""
UNKNOWN = ("users", "items", "contexts")
"""What of requests a run may not know."""
_RANKED = ("places", "probabilities", "counts")


@dataclass(frozen=True, eq=False)
class Recommendations:
    """Recommendations to n users, the most probable first."""

    user_ids: list[Any]  # as the log, or the request, names them
    ids: np.ndarray[Any, Any]  # [n, k] recommended actions, as the log names them
    probabilities: Float[np.ndarray, "n k"]  # of each
    counts: Int[np.ndarray, " n"]  # how many of the k there are; fewer where too many were left out
    unknown: dict[str, int] = field(default_factory=dict)  # how many users, items of histories, and contexts are

    def columns(self) -> dict[str, Any]:
        """One row for each recommendation; rank 1 is the most probable."""
        k = self.ids.shape[1]
        there = np.arange(k) < self.counts[:, None]
        users = np.array(self.user_ids, object if isinstance(self.user_ids[0], str) else None)
        ids = self.ids if self.ids.dtype.kind in "iu" else self.ids.astype(object)
        return {
            "user_id": np.repeat(users, self.counts),
            "rank": np.broadcast_to(np.arange(1, k + 1, dtype=np.int32), there.shape)[there],
            "item_id": ids[there],
            "probability": self.probabilities[there],
        }


def all_users(
    trained: TrainedPolicy, dataset: LoggedDataset, k: int | None = None, *, exclude_seen: bool = False
) -> Iterator[Recommendations]:
    """The k most probable actions for each user with rows, at the state after its last row, in blocks.

    That state is `dataset.next_observation` of the row: the history includes it, the context is its own. With
    `exclude_seen`, what the user has viewed, however long ago, is left out; probabilities are then among the others.
    """
    catalogue = Catalogue.of(dataset)
    if not isinstance(trained.catalogue, Catalogue) or not catalogue.same(trained.catalogue):
        raise ValueError(f"the policy was trained on other users, items or actions than those of {dataset.name}.")
    k = count_of(k, dataset.num_actions)
    last = requests.last_rows(dataset)
    last = last[last >= 0]
    blocks = (last[begin : begin + BLOCK] for begin in range(0, len(last), BLOCK))
    return answered(trained, (requests.of_dataset(dataset, rows, exclude_seen) for rows in blocks), k)


def known_user(  # noqa: PLR0913 - as `TrainedPolicy.recommend`
    trained: TrainedPolicy,
    dataset: LoggedDataset,
    user: Any,
    context: Any = None,
    *,
    k: int | None = None,
    exclude_seen: bool = False,
    eligible: Any = None,
) -> Recommendation:
    """As `TrainedPolicy.recommend`, with the history and responses that the dataset has of the user.

    Without a context it is that of the user's last row.
    """
    catalogue: Any = trained.catalogue
    (place,) = catalogue.users_at([user])
    rows = np.flatnonzero(dataset.user == place)[-1:]
    if not len(rows):
        return trained.recommend(user, context, (), k, eligible=eligible)
    block = requests.of_dataset(dataset, rows, exclude_seen)
    given = context is not None and len(context)
    codes = catalogue.codes(context)[None] if given else block.codes
    left_out, skipped = catalogue.not_eligible(eligible)
    if block.left_out is not None:
        left_out |= block.left_out[0]
    best = next(answered(trained, [replace(block, codes=codes, left_out=left_out[None])], k))
    count = best.counts[0]
    notes = [f"history: the last {(block.items >= 0).sum()} items that {dataset.name} has of user {user}"]
    notes += catalogue.unknown_context(context) if given else []
    return Recommendation.of(best.ids[0, :count], best.probabilities[0, :count], [*notes, *skipped])


def answered(trained: TrainedPolicy, blocks: Iterable[Block], k: int | None) -> Iterator[Recommendations]:
    """The k most probable actions for each request of some blocks."""
    catalogue: Any = trained.catalogue
    k = count_of(k, len(catalogue.action_ids))
    size = max(1, _NUMBERS // len(catalogue.action_ids))
    for block in blocks:
        parts = [_best(trained, block, slice(n, n + size), k) for n in range(0, max(len(block.users), 1), size)]
        places, p, counts = (np.concatenate([getattr(one, name) for one in parts]) for name in _RANKED)
        yield Recommendations(block.users, catalogue.action_ids[places], p, counts, block.unknown)


def _best(trained: TrainedPolicy, block: Block, rows: slice, k: int) -> Ranked:
    """The k most probable actions for some requests of a block."""
    responses, left_out = (None if array is None else array[rows] for array in (block.responses, block.left_out))
    x = trained.catalogue.features(block.user[rows], block.codes[rows], block.items[rows], responses)
    if left_out is None or not isinstance(trained.policy, ItemsPolicy):
        return ranked(trained.logits(x), k, left_out)
    listed = _lists(~left_out, k)  # far fewer than all actions, as a rule
    seen: Any = Request(x, listed)  # pyright: ignore[reportArgumentType] - NumPy's arrays serve as well
    best = ranked(trained.logits(seen), k, listed < 0)
    return replace(best, places=np.maximum(np.take_along_axis(listed, best.places, axis=1), 0))


def _lists(kept: Any, least: int) -> Int[np.ndarray, "n C"]:
    """The actions that are kept of each request, in order; −1 fills up, to at least so many."""
    counts = np.count_nonzero(kept, axis=1)
    listed = np.full((len(kept), max(least, int(counts.max(initial=0)))), -1, np.int32)
    row, action = np.nonzero(kept)
    listed[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = action
    return listed


def write(path: Path, blocks: Iterable[Recommendations]) -> dict[str, int]:
    """Write recommendations as Parquet or CSV, by the file's name, wholly or not at all; how many of what."""
    told = {"users": 0, "lines": 0, "without": 0} | {f"unknown_{what}": 0 for what in UNKNOWN}

    def columns() -> Iterator[dict[str, Any]]:
        for block in blocks:
            told["users"] += len(block.user_ids)
            told["lines"] += int(block.counts.sum())
            told["without"] += int((block.counts == 0).sum())
            for what in UNKNOWN:
                told[f"unknown_{what}"] += block.unknown.get(what, 0)
            yield block.columns()

    requests.write(path, columns())
    return told
