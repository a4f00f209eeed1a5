"""The published states, 24 + 6 K + 20·6 numbers (1044 with K = 150), built batch by batch from indices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from moac.logs.dataset import LoggedDataset
from moac.logs.states import STEPS, WINDOW

TRAIN_SHARE = 450_000 / 480_385
USER_COLUMNS = (
    "user_active_degree", "is_live_streamer", "is_video_author", "follow_user_num_range", "fans_user_num_range",
    "register_days_range", *(f"onehot_feat{k}" for k in range(18)),
)  # fmt: skip
VIDEO_COLUMNS = ("duration", "music_type", "tag", "play_user_num", "play_duration", "like_cnt")
_BLOCK = 4096


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Buffer:
    """Rows of one part, train or test, and what a state of theirs is made of.

    Attributes:
        user, rank, reward, place: of all N rows; `rank` is the action, `place` counts a user's rows from 0.
        rows: [n] the part's.
        users, videos: tables of numbers, a video's by rank.
        mean, spread: that states of the part are standardised by.
    """

    user: Int[Array, " N"]
    rank: Int[Array, " N"]
    reward: Float[Array, "N M"]
    place: Int[Array, " N"]
    rows: Int[Array, " n"]
    users: Float[Array, "U d"]
    videos: Float[Array, "K e"]
    mean: Any = 0.0
    spread: Any = 1.0

    def states(self, rows: Int[Array, " B"]) -> Float[Array, "B F"]:
        """(user, all videos, ring), standardised; the ring's slot `place mod 20` holds the row's own video."""
        age = (self.place[rows][:, None] - jnp.arange(WINDOW)) % WINDOW
        ring = self.videos[self.rank[rows[:, None] - age]] * (age <= self.place[rows][:, None])[..., None]
        static = jnp.broadcast_to(self.videos.ravel(), (len(rows), self.videos.size))
        x = jnp.concatenate([self.users[self.user[rows]], static, ring.reshape(len(rows), -1)], axis=1)
        return (x - self.mean) / self.spread

    def following(self, rows: Int[Array, " B"]) -> tuple[Float[Array, "B F"], Float[Array, " B"]]:
        """The state of the part's next row, whosever it is, and whether the user goes on."""
        after = jnp.minimum(rows + 1, self.rows[-1])
        return self.states(after), (self.user[after] == self.user[rows]).astype(jnp.float32)


def of(dataset: LoggedDataset) -> tuple[Buffer, Buffer, tuple[str, ...]]:
    """The train part, the test part, and the raw columns that the dataset does not have."""
    count = np.bincount(dataset.action, minlength=dataset.num_actions)
    by_rank = np.argsort(-count, kind="stable")
    rank = np.argsort(by_rank)[dataset.action]
    reward = np.trunc(dataset.reward * np.array(dataset.signs)).astype(np.float32)  # of all rows, as integers
    changed = np.append(True, dataset.user[1:] != dataset.user[:-1])
    place = np.arange(len(rank)) - np.maximum.accumulate(np.where(changed, np.arange(len(rank)), 0))
    names = dataset.feature_names
    size = dataset.tables.items.shape[1]
    video_names = tuple(name.split(": ", 1)[1] for name in names[len(names) - size :]) if names else ()
    users, lacking = _columns(dataset.tables.users, names, USER_COLUMNS, np.bincount(dataset.user))
    items = np.asarray(dataset.tables.items)[dataset.action_items[by_rank]]
    videos, more = _columns(items, video_names, VIDEO_COLUMNS, np.ones(len(items)))
    split = int(len(rank) * TRAIN_SHARE)
    columns = (dataset.user, rank.astype(np.int32), reward, place.astype(np.int32))
    parts = (np.arange(split), np.arange(split, len(rank)))
    if not all(len(part) for part in parts):
        raise ValueError(f"{dataset.name} must have at least 16 rows for a train and a test part, got {len(rank)}.")
    train, test = (_standardised(Buffer(*columns, part.astype(np.int32), users, videos)) for part in parts)  # pyright: ignore[reportArgumentType]
    return train, test, (*lacking, *more)


def _columns(table: Any, names: tuple[str, ...], wanted: tuple[str, ...], count: Any) -> tuple[Any, tuple[str, ...]]:
    """Numbers of the wanted columns: as they are, or the rank by frequency of a category; 0 where nothing is left."""
    values = np.asarray(table, np.float32) / (STEPS if table.dtype == np.int8 else 1)
    found, lacking = np.zeros((len(values), len(wanted)), np.float32), []
    count = np.pad(count, (0, max(0, len(values) - len(count))))[: len(values)]
    for k, name in enumerate(wanted):
        codes = [j for j, own in enumerate(names) if own.startswith(f"{name}=")]
        same = [j for j, own in enumerate(names) if own in (name, f"{name}:0")]
        if codes:
            order = np.argsort(-(values[:, codes] * count[:, None]).sum(axis=0), kind="stable")
            found[:, k] = np.argsort(order)[values[:, codes].argmax(axis=1)]
        elif same:
            found[:, k] = values[:, same[0]]
        elif not names and k < values.shape[1]:
            found[:, k] = values[:, k]
        if not codes and name not in names:
            lacking.append(name)
    return found, tuple(lacking)


def _standardised(buffer: Buffer) -> Buffer:
    """With the moments of the part's own states."""
    device = jax.tree.map(jnp.asarray, buffer)
    states, rows = jax.jit(Buffer.states), np.asarray(buffer.rows)
    parts = [rows[k : k + _BLOCK] for k in range(0, len(rows), _BLOCK)]
    blocks = (np.asarray(states(device, np.resize(part, _BLOCK)), np.float64)[: len(part)] for part in parts)
    sums = [np.stack([x.sum(axis=0), (x**2).sum(axis=0)]) for x in blocks]
    mean, square = np.sum(sums, axis=0) / len(rows)
    spread = np.sqrt(np.maximum(square - mean**2, 0)) + 1e-3
    return replace(device, mean=jnp.float32(mean), spread=jnp.float32(spread))
