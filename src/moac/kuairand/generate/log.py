"""A generated log in memory, with its propensities and its truth: what a test of an estimator needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.kuairand.generate.drawing import Exposure, blocks, draw_users
from moac.kuairand.generate.model import NUM_KINDS, TABS, UserModel, Users
from moac.kuairand.schema import SIGNALS, SIGNS, WATCH_TIME_UNIT_MS

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

ROWS_PER_USER = 10
"""On average, where the number of users is not given."""


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
        from moac.logs.dataset import About, LoggedDataset, Rows

        seen = np.unique(self.user)
        about = About(
            "generated", tuple(SIGNALS), SIGNS, users=np.eye(NUM_KINDS, dtype=np.float32)[self.users.kind[seen]]
        )
        propensity = self.propensity if known else None
        context = self.tab[:, None].astype(np.int64)
        return LoggedDataset.from_numpy(
            Rows(self.user, self.action, self.reward * np.array(SIGNS), self.time_ms, context, propensity), about
        )


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
    users = draw_users(model, max(1, rows // ROWS_PER_USER) if num_users is None else num_users, seed)
    exposure = Exposure.standard(model)
    if policy is not None:
        given = np.asarray(policy, np.float64)
        table = np.broadcast_to(given[:, None] if given.ndim == 2 else given, (NUM_KINDS, len(TABS), model.num_videos))
        exposure = Exposure(model, table, exposure.begin_ms, exposure.stream)
    drawn = list(blocks(exposure, users, rows, seed))
    user, tab, video, flags, play_ms, time_ms = (
        np.concatenate([getattr(block, name) for block in drawn])
        for name in ("user", "tab", "video", "flags", "play_ms", "time_ms")
    )
    signals = np.column_stack([flags, play_ms / WATCH_TIME_UNIT_MS])
    propensity = exposure.policy[users.kind[user], tab, video]
    return Log(model, users, user, tab, video, signals * np.array(SIGNS), propensity, time_ms)
