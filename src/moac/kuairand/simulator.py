"""Logs drawn from a population, in blocks of whole users: each block has its own random stream, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.kuairand.population import GLANCE_MS, NUM_KINDS, SIGNS, TAB_SHARE, TABS, UserModel, Users
from moac.kuairand.schema import SIGNALS, WATCH_TIME_UNIT_MS

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

_BLOCK_ROWS = 1 << 18
"""About how many rows are in memory at a time."""
_ROWS_PER_USER = 10
DAY_MS, FIRST_MS = 86_400_000, 1_649_347_200_000
"""8 April 2022, 0:00 in Beijing."""
SECOND_MS, LAST_MS = FIRST_MS + 14 * DAY_MS, FIRST_MS + 31 * DAY_MS
"""22 April, and the end of 8 May."""
_BY_HOUR = np.array([8, 5, 3, 2, 2, 2, 3, 5, 7, 8, 9, 10, 12, 12, 11, 11, 11, 12, 12, 11, 11, 12, 13, 13], np.float64)
"""How busy each hour of a day is."""


@final
@dataclass(frozen=True, eq=False)
class Exposure:
    """How a log came about: what chose the videos [Z, C, V], when it begins, and its own stream of random numbers."""

    model: UserModel
    policy: Float[np.ndarray, "Z C V"]
    begin_ms: int = FIRST_MS
    stream: int = 2

    @staticmethod
    def uniform(model: UserModel) -> Exposure:
        """Videos chosen uniformly at random, from 22 April on."""
        return Exposure(model, np.full_like(model.behaviour, 1 / model.num_videos), SECOND_MS, 3)


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Rows of some users, ordered by user and time.

    Attributes:
        user: [n] index of the user.
        time_ms: [n] since 1970.
        tab: [n] index into `TABS`.
        video: [n] id.
        flags: [n, 6] 0 or 1: click, like, follow, comment, forward, hate.
        play_ms: [n].
        rng: the block's stream, for what else a file holds.
    """

    user: Int[np.ndarray, " n"]
    time_ms: Int[np.ndarray, " n"]
    tab: Int[np.ndarray, " n"]
    video: Int[np.ndarray, " n"]
    flags: Int[np.ndarray, "n 6"]
    play_ms: Int[np.ndarray, " n"]
    rng: np.random.Generator


def blocks(exposure: Exposure, users: Users, rows: int, seed: int) -> Iterator[Block]:
    """`rows` rows, spread over the users by their shares; each block holds whole users, and has its own stream."""
    if rows < 1:
        raise ValueError(f"`rows` must be at least 1, got {rows}.")
    per_user = np.random.default_rng([seed, exposure.stream]).multinomial(rows, users.share)
    starts = np.cumsum(per_user) - per_user
    cuts = np.flatnonzero(np.diff(starts // _BLOCK_ROWS, prepend=-1))
    # Videos are drawn by one search: the cumulative probabilities of cell k (a kind and a tab) lie in (k, k + 1].
    cumulative = np.cumsum(exposure.policy, axis=-1) / exposure.policy.sum(axis=-1, keepdims=True)
    cumulative = cumulative.reshape(-1, exposure.model.num_videos)
    cumulative += np.arange(len(cumulative))[:, None]
    for index, (begin, end) in enumerate(zip(cuts, [*cuts[1:], len(per_user)], strict=True)):
        rng = np.random.Generator(np.random.SFC64([seed, exposure.stream, index]))
        user = np.repeat(np.arange(begin, end, dtype=np.int32), per_user[begin:end])
        if len(user):
            position = np.arange(len(user)) - (starts[begin:end] - starts[begin])[user - begin]
            phase = (position + rng.random(len(user))) / per_user[user]
            yield _drawn(exposure, cumulative.ravel(), users, (user, _times(exposure.begin_ms, phase)), rng)


def _drawn(exposure: Exposure, cumulative: Any, users: Users, who: Any, rng: np.random.Generator) -> Block:
    """Tab, video and responses of each row, in this order."""
    (user, time_ms), model = who, exposure.model
    kind = users.kind[user]
    tab = np.searchsorted(np.cumsum(TAB_SHARE)[:-1], rng.random(len(user)), side="right")
    cell = kind * len(TABS) + tab
    place = np.searchsorted(cumulative, cell + rng.random(len(user)), side="right") - cell * model.num_videos
    video = np.clip(place, 0, model.num_videos - 1).astype(np.int32)
    group, level = model.video_class[video], users.level[user]
    flags = (rng.random((len(user), 6)) < model.chance[kind, tab, group, level]).astype(np.int8)
    beyond = GLANCE_MS + 1 + np.floor(rng.standard_exponential(len(user)) * model.scale_ms[kind, group, level])
    glance = rng.integers(0, GLANCE_MS + 1, len(user)) * (np.array(TABS) != 0)[tab]
    play_ms = np.where(flags[:, 0] == 1, beyond, glance).astype(np.int32)
    return Block(user, time_ms, tab.astype(np.int8), video, flags, play_ms, rng)


def _times(begin_ms: int, phase: Any) -> Int[np.ndarray, " n"]:
    """From shares of the log's time, ascending, to milliseconds, ascending: hours as busy as `_BY_HOUR`."""
    days, within = np.divmod(phase * ((LAST_MS - begin_ms) // DAY_MS), 1)
    busy = np.concatenate([[0], np.cumsum(_BY_HOUR)]) / _BY_HOUR.sum()
    return begin_ms + ((days + np.interp(within, busy, np.arange(25) / 24)) * DAY_MS).astype(np.int64)


@final
@dataclass(frozen=True, eq=False)
class Log:
    """Rows with known propensities, ordered by user and time; the files of the same seed hold the same rows.

    Attributes:
        model: that made it.
        users: the people; `users.level` is hidden from any policy.
        user: [N] index into them.
        tab: [N] index into `TABS`.
        action: [N] video.
        reward: [N, M] signs × signals, in signal order.
        propensity: [N] probability with which the video was chosen.
        time_ms: [N].
    """

    model: UserModel
    users: Users
    user: Int[np.ndarray, " N"]
    tab: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]
    reward: Float[np.ndarray, "N M"]
    propensity: Float[np.ndarray, " N"]
    time_ms: Int[np.ndarray, " N"]

    @property
    def kind(self) -> Int[np.ndarray, " N"]:
        """Of each row's user: all that a policy may know of them."""
        return self.users.kind[self.user]

    def dataset(self, known: bool = True) -> LoggedDataset:
        """As a source of training: kinds as user features, tabs as context; `known` keeps the propensities."""
        from moac.logs import About, LoggedDataset, Rows

        kinds = np.eye(NUM_KINDS, dtype=np.float32)[self.users.kind[np.unique(self.user)]]
        names = tuple(signal.name for signal in SIGNALS)
        context, propensity = self.tab[:, None].astype(np.int64), self.propensity if known else None
        rows = Rows(self.user, self.action, self.reward * SIGNS, self.time_ms, context, propensity)
        return LoggedDataset.from_numpy(rows, About("generated", names, SIGNS.tolist(), users=kinds))


def log(
    rows: int, seed: int = 0, *, model: UserModel | None = None, num_users: int | None = None, policy: Any = None
) -> Log:
    """A log of `rows` rows; a new seed draws new people of the same population when `model` is given.

    Args:
        rows: N.
        seed: of people and rows.
        model: the population; None is that of the seed.
        num_users: U; None is one per ten rows.
        policy: [Z, V] or [Z, C, V] what chooses the videos; None is the model's logging policy.
    """
    model = UserModel.of(seed) if model is None else model
    users = model.draw_users(max(1, rows // _ROWS_PER_USER) if num_users is None else num_users, seed)
    table = model.behaviour if policy is None else np.asarray(policy, np.float64)
    table = np.broadcast_to(table[:, None] if table.ndim == 2 else table, model.behaviour.shape)
    drawn = list(blocks(Exposure(model, table), users, rows, seed))
    names = ("user", "tab", "video", "flags", "play_ms", "time_ms")
    user, tab, video, flags, play_ms, time_ms = (
        np.concatenate([getattr(block, name) for block in drawn]) for name in names
    )
    reward = np.column_stack([flags, play_ms / WATCH_TIME_UNIT_MS]) * SIGNS
    return Log(model, users, user, tab, video, reward, table[users.kind[user], tab, video], time_ms)
