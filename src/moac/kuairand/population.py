"""A population of users whose every probability is known, so that an estimate can be held against the truth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import expit, softmax

from moac.kuairand.schema import SIGNALS, WATCH_TIME_UNIT_MS

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
GLANCE_MS, _VIEW_MS = 7_000, 22_000
"""What is not clicked is played for up to 7 s, and what is for 7 s and 22 s more on average, before all effects."""
_TAB_CLICK = np.array([0.0, -2.4, 0.3, -1.7, 0.0])
_HIDDEN = np.array([0.8, 0.9, 0.9, 0.9, 0.9, 0.9])
"""How much a level moves the log-odds of each signal."""


@final
@dataclass(frozen=True, eq=False)
class Users:
    """People drawn from the population.

    Attributes:
        kind: [U] what the features tell of a user, 0 to 6.
        level: [U] what they do not tell: index into `LEVELS`. All rows of a user share it, and are correlated by it.
        share: [U] of all rows, in expectation.
    """

    kind: Int[np.ndarray, " U"]
    level: Int[np.ndarray, " U"]
    share: Float[np.ndarray, " U"]


@final
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

    Attributes:
        kind_share: [Z] of users.
        activity: [Z] rows of a user of that kind, relative to each other.
        video_class: [V].
        behaviour: [Z, C, V] π_b.
        chance: [Z, C, G, E, 6] p(signal).
        scale_ms: [Z, G, E] of what is played beyond 7 s.
    """

    kind_share: Float[np.ndarray, " Z"]
    activity: Float[np.ndarray, " Z"]
    video_class: Int[np.ndarray, " V"]
    behaviour: Float[np.ndarray, "Z C V"]
    chance: Float[np.ndarray, "Z C G E 6"]
    scale_ms: Float[np.ndarray, "Z G E"]

    @staticmethod
    def of(seed: int = 0, num_videos: int = 7583) -> UserModel:
        """The population of a seed."""
        if num_videos < 1:
            raise ValueError(f"`num_videos` must be at least 1, got {num_videos}.")
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
        glanced = np.where(np.array(TABS) == 0, 0.0, GLANCE_MS / 2)[:, None, None]
        watched = click * (GLANCE_MS + 1 + beyond) + (1 - click) * glanced
        return np.concatenate([self.chance, watched[..., None] / WATCH_TIME_UNIT_MS], axis=-1) * SIGNS

    def logging_policy(self, videos: Any = None) -> Float[np.ndarray, "Z C K"]:
        """π_b over `videos` alone: what the rows on them were chosen with."""
        kept = self.behaviour[..., self._videos(videos)]
        return kept / kept.sum(axis=-1, keepdims=True)

    def true_values(self, policy: Any, videos: Any = None, users: Users | None = None) -> Float[np.ndarray, " M"]:
        """E[reward] per row on which the log shows one of `videos`, had the policy chosen among them.

            V^i = Σ_{z,c} ω(z,c) Σ_a π(a|z,c) Σ_e p(e) r^i(z,c,g(a),e),    ω(z,c) ∝ p(z) p(c) π_b(videos|z,c)

        Args:
            policy: probabilities [Z, K] or [Z, C, K] over the videos, one row per kind, or one per user of `users`.
            videos: ids; None is all of them.
            users: None is the whole population, what intervals over users should cover; else these people with their
                own hidden levels.
        """
        kind, share, levels = np.arange(NUM_KINDS), self.row_share, np.tile(LEVEL_SHARE, (NUM_KINDS, 1))
        if users is not None:
            kind, share, levels = users.kind, users.share, np.eye(len(LEVELS))[users.level]
        chosen = self._videos(videos)
        by_class = _by_class(_checked(policy, len(kind), len(chosen)), self.video_class[chosen])
        weight = share[:, None] * TAB_SHARE * self.behaviour[..., chosen].sum(axis=-1)[kind]
        joint = weight[..., None] * by_class
        total = [
            np.einsum("ncg,ne,cgem->m", joint[kind == k], levels[kind == k], self.reward[k], optimize=True)
            for k in range(NUM_KINDS)
        ]
        return np.sum(total, axis=0) / weight.sum()

    def draw_users(self, count: int, seed: int) -> Users:
        """People of the population, independent of each other."""
        if count < 1:
            raise ValueError(f"`num_users` must be at least 1, got {count}.")
        rng = np.random.default_rng([seed, 1])
        kind = rng.choice(NUM_KINDS, size=count, p=self.kind_share)
        level = rng.choice(len(LEVELS), size=count, p=LEVEL_SHARE)
        rows = self.activity[kind] * rng.gamma(2.0, 0.5, size=count)
        return Users(kind, level, rows / rows.sum())

    def _videos(self, videos: Any) -> Int[np.ndarray, " K"]:
        chosen = np.arange(self.num_videos) if videos is None else np.asarray(videos)
        if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= self.num_videos:
            raise ValueError(f"`videos` must be ids from 0 to {self.num_videos - 1}, got {videos}.")
        return chosen


def _checked(policy: Any, people: int, videos: int) -> Float[np.ndarray, "n _ K"]:
    given = np.asarray(policy, dtype=np.float64)
    flat, by_tab = (people, videos), (people, len(TABS), videos)
    if given.shape not in (flat, by_tab):
        raise ValueError(f"`policy` must have shape {flat} or {by_tab}, got {given.shape}.")
    if not (np.allclose(given.sum(axis=-1), 1) and (given >= 0).all()):
        raise ValueError("`policy` must hold probabilities that sum to 1 over the videos.")
    return given[:, None] if given.shape == flat else given


def _log_odds(quality: Any, taste: Any) -> Float[np.ndarray, "Z C G E 6"]:
    """All but the intercepts."""
    by_class = 0.5 * quality + 0.4 * taste[..., :-1]
    by_tab = np.zeros((len(TABS), len(RATES)))
    by_tab[:, 0] = _TAB_CLICK
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
