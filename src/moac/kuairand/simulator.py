"""Users whose every probability is known, and logs of them: an estimate can be held against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import expit, softmax

from moac.kuairand.schema import SIGNALS, WATCH_TIME_UNIT_MS

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

RATES = {"Click": 0.379, "Like": 0.0167, "Follow": 0.00107, "Comment": 0.00252, "Forward": 0.00087, "Dislike": 0.00048}
"""Shares of KuaiRand-27K's standard rows, which the logging policy reaches in expectation."""
TABS = (1, 0, 4, 6, 2)
"""The scenarios that occur, the most frequent first; in the two-column one, 0, what is not clicked is not played."""
TAB_SHARE = np.array([0.76, 0.09, 0.06, 0.05, 0.04])
NUM_KINDS, NUM_CLASSES = 7, 32
LEVELS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
LEVEL_SHARE = np.array([1, 4, 6, 4, 1]) / 16
"""A user's hidden level: mean 0, variance 1."""
SIGNS = np.array([signal.sign for signal in SIGNALS])
_GLANCE_MS, _VIEW_MS = 7_000, 22_000
"""What is not clicked is played for up to 7 s, and what is for 7 s and 22 s more on average, before all effects."""
_TAB_CLICK = np.array([0.0, -2.4, 0.3, -1.7, 0.0])
_HIDDEN = np.array([0.8, 0.9, 0.9, 0.9, 0.9, 0.9])
"""How much a level moves the log-odds of each signal."""
_BLOCK_ROWS = 1 << 18
"""About how many rows are in memory at a time."""
_ROWS_PER_USER = 10
DAY_MS, FIRST_MS = 86_400_000, 1_649_347_200_000
"""8 April 2022, 0:00 in Beijing."""
SECOND_MS, LAST_MS = FIRST_MS + 14 * DAY_MS, FIRST_MS + 31 * DAY_MS
"""22 April, and the end of 8 May."""
_BY_HOUR = np.array([8, 5, 3, 2, 2, 2, 3, 5, 7, 8, 9, 10, 12, 12, 11, 11, 11, 12, 12, 11, 11, 12, 13, 13], np.float64)
"""How busy each hour of a day is."""


@dataclass(frozen=True, eq=False)
class Users:
    """People drawn from the population."""

    kind: Int[np.ndarray, " U"]  # [U] what the features tell of a user, 0 to 6
    level: Int[np.ndarray, " U"]  # [U] what they do not tell, shared by all rows of a user: index into `LEVELS`
    share: Float[np.ndarray, " U"]  # [U] of all rows, in expectation


@dataclass(frozen=True, eq=False)
class UserModel:
    """Kinds of users, classes of videos, a logging policy and responses, all in closed form.

    A row: its user's kind z and hidden level e, a tab c, a video a of class g, then the signals. All tables are seeded:

        π_b(a|z,c) ∝ exp(popularity_a + taste[z,g] + place[c,g]),
        p(signal i | z,c,g,e) = σ(intercept_i + x_i[z,c,g] + h_i·e),   independent of each other,
        play time | click    = 7001 ms + ⌊Exp(scale[z,g,e])⌋,          mean 7001 + 1/(exp(1/scale) − 1),
        play time | no click ~ uniform on 0 … 7000 ms, or 0 in tab 0.

    The policy does not see e: given kind and tab the choice of the video is independent of it, so the propensities
    are right and no confounder is hidden. The intercepts solve E_{π_b}[signal i] = `RATES`.
    """

    kind_share: Float[np.ndarray, " Z"]  # [Z] of users
    activity: Float[np.ndarray, " Z"]  # [Z] rows of a user of that kind, relative to each other
    video_class: Int[np.ndarray, " V"]  # [V]
    behaviour: Float[np.ndarray, "Z C V"]  # [Z, C, V] π_b
    chance: Float[np.ndarray, "Z C G E 6"]  # [Z, C, G, E, 6] p(signal)
    scale_ms: Float[np.ndarray, "Z G E"]  # [Z, G, E] of what is played beyond 7 s

    @staticmethod
    def of(seed: int = 0, num_videos: int = 7583) -> UserModel:
        """The population of a seed."""
        rng = np.random.default_rng([seed, 0])
        kind_share = rng.dirichlet(np.full(NUM_KINDS, 20.0))
        activity = np.exp(0.5 * rng.standard_normal(NUM_KINDS))
        quality = rng.standard_normal((NUM_CLASSES, len(RATES)))
        taste = rng.standard_normal((NUM_KINDS, NUM_CLASSES, len(RATES) + 1))
        place = rng.standard_normal((len(TABS), NUM_CLASSES))
        video_class = np.arange(num_videos) % NUM_CLASSES
        popularity = 1.6 * rng.standard_normal(num_videos) + 0.5 * quality[video_class, 0]
        appeal = popularity + 0.6 * taste[:, None, video_class, 0] + 0.4 * place[:, video_class]
        behaviour = softmax(appeal, axis=2)
        rows = kind_share * activity / (kind_share @ activity)
        cells = rows[:, None, None] * TAB_SHARE[:, None] * _by_class(behaviour, video_class)
        chance = _calibrated(_log_odds(quality, taste), cells[..., None] * LEVEL_SHARE)
        scale = _VIEW_MS * np.exp(0.3 * taste[..., -1, None] + 0.25 * LEVELS)
        return UserModel(kind_share, activity, video_class, behaviour, chance, scale)

    @property
    def num_videos(self) -> int:
        """V."""
        return len(self.video_class)

    @property
    def row_share(self) -> Float[np.ndarray, " Z"]:
        """Of rows, by the kind of their user."""
        weight = self.kind_share * self.activity
        return weight / weight.sum()

    @cached_property
    def reward(self) -> Float[np.ndarray, "Z C G E M"]:
        """Mean reward in signal order: signs × signals, WatchTime in tens of seconds."""
        click = self.chance[..., 0]
        beyond = 1 / np.expm1(1 / self.scale_ms)[:, None]
        glanced = np.where(np.array(TABS) == 0, 0.0, _GLANCE_MS / 2)[:, None, None]
        watched = click * (_GLANCE_MS + 1 + beyond) + (1 - click) * glanced
        return np.concatenate([self.chance, watched[..., None] / WATCH_TIME_UNIT_MS], axis=-1) * SIGNS

    def logging_policy(self, videos: Any = None) -> Float[np.ndarray, "Z C K"]:
        """π_b over `videos` alone: what the rows on them were chosen with."""
        kept = self.behaviour[..., self._videos(videos)]
        return kept / kept.sum(axis=-1, keepdims=True)

    def true_values(self, policy: Any, videos: Any = None) -> Float[np.ndarray, " M"]:
        """E[reward] per row on which the log shows one of `videos`, had the policy chosen among them.

            V^i = Σ_{z,c} ω(z,c) Σ_a π(a|z,c) Σ_e p(e) r^i(z,c,g(a),e),    ω(z,c) ∝ p(z) p(c) π_b(videos|z,c)

        Args:
            policy: probabilities [Z, K] or [Z, C, K] over the videos.
            videos: ids; None is all of them.
        """
        chosen = self._videos(videos)
        by_class = _by_class(_checked(policy, len(chosen)), self.video_class[chosen])
        weight = self.row_share[:, None] * TAB_SHARE * self.behaviour[..., chosen].sum(axis=-1)
        joint = weight[..., None] * by_class
        return np.einsum("zcg,e,zcgem->m", joint, LEVEL_SHARE, self.reward, optimize=True) / weight.sum()

    def draw_users(self, count: int, seed: int) -> Users:
        """People of the population, independent of each other."""
        rng = np.random.default_rng([seed, 1])
        kind = rng.choice(NUM_KINDS, size=count, p=self.kind_share)
        level = rng.choice(len(LEVELS), size=count, p=LEVEL_SHARE)
        rows = self.activity[kind] * rng.gamma(2.0, 0.5, size=count)
        return Users(kind, level, rows / rows.sum())

    def _videos(self, videos: Any) -> Int[np.ndarray, " K"]:
        chosen = np.asarray(range(self.num_videos) if videos is None else videos)
        if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= self.num_videos:
            raise ValueError(f"`videos` must be ids from 0 to {self.num_videos - 1}, got {videos}.")
        return chosen


def _checked(policy: Any, videos: int) -> Float[np.ndarray, "Z _ K"]:
    given = np.asarray(policy, dtype=np.float64)
    flat, by_tab = (NUM_KINDS, videos), (NUM_KINDS, len(TABS), videos)
    if given.shape not in (flat, by_tab):
        raise ValueError(f"`policy` must have shape {flat} or {by_tab}, got {given.shape}.")
    if not (np.allclose(given.sum(axis=-1), 1) and (given >= 0).all()):
        raise ValueError("`policy` must hold probabilities that sum to 1 over the videos.")
    return given[:, None] if given.shape == flat else given


def _log_odds(quality: Any, taste: Any) -> Float[np.ndarray, "Z C G E 6"]:
    """All but the intercepts."""
    by_class = 0.5 * quality + 0.4 * taste[..., :-1]
    by_tab = np.outer(_TAB_CLICK, np.eye(len(RATES))[0])
    return by_class[:, None, :, None] + by_tab[:, None, None] + LEVELS[:, None] * _HIDDEN


def _calibrated(odds: Any, cells: Any) -> Float[np.ndarray, "Z C G E 6"]:
    """σ(intercept_i + odds_i), each mean over the cells as in `RATES`."""
    intercepts = [
        brentq(lambda a, x=odds[..., i], rate=rate: float((cells * expit(a + x)).sum()) - rate, -30, 30, xtol=1e-13)
        for i, rate in enumerate(RATES.values())
    ]
    return expit(odds + np.array(intercepts))


def _by_class(probability: Any, video_class: Any) -> Float[np.ndarray, "n C G"]:
    """Probability of each class of videos, summed in the same order on every machine."""
    return np.stack([probability[..., video_class == g].sum(axis=-1) for g in range(NUM_CLASSES)], axis=-1)


class Block(NamedTuple):
    """Rows of some users by user and time: drawn columns (`tab` indexes `TABS`), and the stream for the others."""

    columns: dict[str, Any]
    rng: np.random.Generator


def blocks(model: UserModel, policy: Any, users: Users, rows: int, seed: int, random: bool = False) -> Iterator[Block]:
    """`rows` rows in blocks of whole users, each block with its own random stream, whoever asks for it.

    The policy [Z, C, V] chooses the videos, uniformly where it is None; a log of random exposure begins on 22 April.
    """
    policy = np.full_like(model.behaviour, 1 / model.num_videos) if policy is None else policy
    begin_ms, stream = (SECOND_MS, 3) if random else (FIRST_MS, 2)
    per_user = np.random.default_rng([seed, stream]).multinomial(rows, users.share)
    starts = np.cumsum(per_user) - per_user
    cuts = np.flatnonzero(np.diff(starts // _BLOCK_ROWS, prepend=-1))
    # Videos are drawn by one search: the cumulative probabilities of cell k (a kind and a tab) lie in (k, k + 1].
    cumulative = (np.cumsum(policy, axis=-1) / policy.sum(axis=-1, keepdims=True)).reshape(-1, model.num_videos)
    cumulative += np.arange(len(cumulative))[:, None]
    for index, (begin, end) in enumerate(zip(cuts, [*cuts[1:], len(per_user)], strict=True)):
        rng = np.random.Generator(np.random.SFC64([seed, stream, index]))
        user = np.repeat(np.arange(begin, end, dtype=np.int32), per_user[begin:end])
        if len(user):
            position = np.arange(len(user)) - (starts[begin:end] - starts[begin])[user - begin]
            phase = (position + rng.random(len(user))) / per_user[user]
            yield _drawn(model, cumulative.ravel(), users, (user, _times(begin_ms, phase)), rng)


def _drawn(model: UserModel, cumulative: Any, users: Users, who: Any, rng: np.random.Generator) -> Block:
    """Tab, video and responses of each row, in this order."""
    user, time_ms = who
    kind = users.kind[user]
    tab = np.searchsorted(np.cumsum(TAB_SHARE)[:-1], rng.random(len(user)), side="right")
    cell = kind * len(TABS) + tab
    place = np.searchsorted(cumulative, cell + rng.random(len(user)), side="right") - cell * model.num_videos
    video = np.clip(place, 0, model.num_videos - 1).astype(np.int32)
    group, level = model.video_class[video], users.level[user]
    flags = (rng.random((len(user), 6)) < model.chance[kind, tab, group, level]).astype(np.int8)
    beyond = _GLANCE_MS + 1 + np.floor(rng.standard_exponential(len(user)) * model.scale_ms[kind, group, level])
    glance = rng.integers(0, _GLANCE_MS + 1, len(user)) * (np.array(TABS) != 0)[tab]
    play_ms = np.where(flags[:, 0] == 1, beyond, glance).astype(np.int32)
    columns = {"user_id": user, "video_id": video, "time_ms": time_ms, "tab": tab.astype(np.int8)}
    signals = (*np.ascontiguousarray(flags.T), play_ms)
    return Block(columns | {signal.column: x for signal, x in zip(SIGNALS, signals, strict=True)}, rng)


def _times(begin_ms: int, phase: Any) -> Int[np.ndarray, " n"]:
    """From shares of the log's time, ascending, to milliseconds, ascending: hours as busy as `_BY_HOUR`."""
    days, within = np.divmod(phase * ((LAST_MS - begin_ms) // DAY_MS), 1)
    busy = np.concatenate([[0], np.cumsum(_BY_HOUR)]) / _BY_HOUR.sum()
    return begin_ms + ((days + np.interp(within, busy, np.arange(25) / 24)) * DAY_MS).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Log:
    """Rows with known propensities, ordered by user and time; the files of the same seed hold the same rows."""

    model: UserModel  # that made it
    users: Users  # the people; `users.level` is hidden from any policy
    user: Int[np.ndarray, " N"]  # [N] index into them
    tab: Int[np.ndarray, " N"]  # [N] index into `TABS`
    action: Int[np.ndarray, " N"]  # [N] video
    reward: Float[np.ndarray, "N M"]  # [N, M] signs × signals, in signal order
    propensity: Float[np.ndarray, " N"]  # [N] probability with which the video was chosen
    time_ms: Int[np.ndarray, " N"]  # [N]

    @property
    def kind(self) -> Int[np.ndarray, " N"]:
        """Of each row's user: all that a policy may know of them."""
        return self.users.kind[self.user]

    def dataset(self, known: bool = True, history_responses: bool = False) -> LoggedDataset:
        """As a source of training: kinds as user features, tabs as context; `known` keeps the propensities.

        The policy that made the log does not know past responses; `history_responses` has them in states all the same.
        """
        from moac.logs import About, LoggedDataset, Rows

        kinds = np.eye(NUM_KINDS, dtype=np.float32)[self.users.kind[np.unique(self.user)]]
        names = tuple(signal.name for signal in SIGNALS)
        context, propensity = self.tab[:, None].astype(np.int64), self.propensity if known else None
        rows = Rows(self.user, self.action, self.reward * SIGNS, self.time_ms, context, propensity)
        about = About("generated", names, SIGNS.tolist(), users=kinds, history_responses=history_responses)
        return LoggedDataset.from_numpy(rows, about)


def log(
    rows: int, seed: int = 0, *, model: UserModel | None = None, num_users: int | None = None, policy: Any = None
) -> Log:
    """A log of `rows` rows of people whom `seed` draws, one per ten rows where `num_users` is None.

    The population is `model`, or that of the seed; videos are chosen by `policy` [Z, V] or [Z, C, V], or as logged.
    """
    if rows < 1 or (num_users is not None and num_users < 1):
        raise ValueError(f"`rows` and `num_users` must be at least 1, got {rows} and {num_users}.")
    model = model or UserModel.of(seed)
    users = model.draw_users(max(1, rows // _ROWS_PER_USER) if num_users is None else num_users, seed)
    table = model.behaviour if policy is None else np.asarray(policy, np.float64)
    table = np.broadcast_to(table[:, None] if table.ndim == 2 else table, model.behaviour.shape)
    drawn = [block.columns for block in blocks(model, table, users, rows, seed)]
    columns = {name: np.concatenate([block[name] for block in drawn]) for name in drawn[0]}
    user, tab, video = (columns[name] for name in ("user_id", "tab", "video_id"))
    reward = np.column_stack([columns[signal.column] / signal.unit for signal in SIGNALS]) * SIGNS
    return Log(model, users, user, tab, video, reward, table[users.kind[user], tab, video], columns["time_ms"])
