"""Rows drawn from a user model, in blocks of whole users: each block has its own random stream, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.kuairand.generate.model import GLANCE_MS, LEVEL_SHARE, LEVELS, NUM_KINDS, TAB_SHARE, TABS, UserModel, Users

BLOCK_ROWS = 1 << 18
"""About how many rows are in memory at a time."""
DAY_MS = 86_400_000
FIRST_MS = 1_649_347_200_000
"""8 April 2022, 0:00 in Beijing."""
SECOND_MS, LAST_MS = FIRST_MS + 14 * DAY_MS, FIRST_MS + 31 * DAY_MS
"""22 April, and the end of 8 May."""
_BY_HOUR = np.array([8, 5, 3, 2, 2, 2, 3, 5, 7, 8, 9, 10, 12, 12, 11, 11, 11, 12, 12, 11, 11, 12, 13, 13], np.float64)
"""How busy each hour of a day is."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
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


@final
@dataclass(frozen=True, eq=False)
class Exposure:
    """How a log came about.

    Attributes:
        model: of the users.
        policy: [Z, C, V] what chose the videos.
        begin_ms: of the log.
        stream: sets the random numbers of several logs of one seed apart.
    """

    model: UserModel
    policy: Float[np.ndarray, "Z C V"]
    begin_ms: int
    stream: int

    @staticmethod
    def standard(model: UserModel) -> Exposure:
        """What the logging policy chose, over the whole month."""
        return Exposure(model, model.behaviour, FIRST_MS, 2)

    @staticmethod
    def uniform(model: UserModel) -> Exposure:
        """Videos chosen uniformly at random, from 22 April on."""
        return Exposure(model, np.full_like(model.behaviour, 1 / model.num_videos), SECOND_MS, 3)


def draw_users(model: UserModel, count: int, seed: int) -> Users:
    """People of the population, independent of each other."""
    if count < 1:
        raise ValueError(f"`num_users` must be at least 1, got {count}.")
    rng = np.random.default_rng([seed, 1])
    kind = rng.choice(NUM_KINDS, size=count, p=model.kind_share)
    level = rng.choice(len(LEVELS), size=count, p=LEVEL_SHARE)
    rows = model.activity[kind] * rng.gamma(2.0, 0.5, size=count)
    return Users(kind, level, rows / rows.sum())


def blocks(exposure: Exposure, users: Users, rows: int, seed: int) -> Iterator[Rows]:
    """`rows` rows, spread over the users by their shares; each yield holds whole users, in order."""
    if rows < 1:
        raise ValueError(f"`rows` must be at least 1, got {rows}.")
    per_user = np.random.default_rng([seed, exposure.stream]).multinomial(rows, users.share)
    starts = np.cumsum(per_user) - per_user
    cuts = np.flatnonzero(np.diff(starts // BLOCK_ROWS, prepend=-1))
    cumulative = (np.cumsum(exposure.policy, axis=-1) / exposure.policy.sum(axis=-1, keepdims=True)).reshape(
        -1, exposure.model.num_videos
    )
    cumulative += np.arange(len(cumulative))[:, None]
    for index, (begin, end) in enumerate(zip(cuts, [*cuts[1:], len(per_user)], strict=True)):
        rng = np.random.Generator(np.random.SFC64([seed, exposure.stream, index]))
        user = np.repeat(np.arange(begin, end, dtype=np.int32), per_user[begin:end])
        if len(user):
            position = np.arange(len(user)) - (starts[begin:end] - starts[begin])[user - begin]
            phase = (position + rng.random(len(user))) / per_user[user]
            yield _drawn(exposure, cumulative.ravel(), users, (user, _times(exposure.begin_ms, phase)), rng)


def _drawn(exposure: Exposure, cumulative: Any, users: Users, who: Any, rng: np.random.Generator) -> Rows:
    """Tab, video and responses of each row, in this order."""
    (user, time_ms), model = who, exposure.model
    kind = users.kind[user]
    tab = np.searchsorted(np.cumsum(TAB_SHARE)[:-1], rng.random(len(user)), side="right")
    cell = kind * len(TABS) + tab
    found = np.searchsorted(cumulative, cell + rng.random(len(user)), side="right") - cell * model.num_videos
    video = np.clip(found, 0, model.num_videos - 1).astype(np.int32)
    group, level = model.video_class[video], users.level[user]
    flags = (rng.random((len(user), 6)) < model.chance[kind, tab, group, level]).astype(np.int8)
    beyond = GLANCE_MS + 1 + np.floor(rng.standard_exponential(len(user)) * model.scale_ms[kind, group, level])
    glance = rng.integers(0, GLANCE_MS + 1, len(user)) * (np.array(TABS) != 0)[tab]
    play_ms = np.where(flags[:, 0] == 1, beyond, glance).astype(np.int32)
    return Rows(user, time_ms, tab.astype(np.int8), video, flags, play_ms, rng)


def _times(begin_ms: int, phase: Any) -> Int[np.ndarray, " n"]:
    """From shares of the log's time, ascending, to milliseconds, ascending: hours as busy as `_BY_HOUR`."""
    days, within = np.divmod(phase * ((LAST_MS - begin_ms) // DAY_MS), 1)
    busy = np.concatenate([[0], np.cumsum(_BY_HOUR)]) / _BY_HOUR.sum()
    return begin_ms + ((days + np.interp(within, busy, np.arange(25) / 24)) * DAY_MS).astype(np.int64)
