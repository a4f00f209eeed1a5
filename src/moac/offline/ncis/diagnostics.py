"""How much of a log stands behind an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis import bootstrap, shards
from moac.offline.ncis.sums import Sums

MIN_POSITIVES = 50
"""Fewer of them, and a signal counts as not estimable."""


@final
@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What the weights of one policy leave of a log, under the cap in use.

    Attributes:
        rows, users: of the log.
        row_effective_size: (Σ w)² / Σ w² over rows (Kish).
        row_effective_share: of the rows.
        user_effective_size: the same over users, with w summed over each user's rows.
        user_effective_share: of what the log itself has, where every row weighs 1.
        largest_row_share: max w / Σ w.
        largest_user_share: the same over users.
        capped_share: of rows with π/π_b > c.
        retained_mass: Σ min(c, π/π_b) / Σ π/π_b.
        mean_weight: Σ (π/π_b) / N without a cap: 1 on average where the propensities are right and π takes no action
            that the log cannot.
        mean_weight_interval: [2] over users.
        events: [M] rows on which a signal is not 0.
        weighted_positives: [M] Σ w over them.
        effective_positives: [M] (Σ w)² / Σ w² over them.
        row_standard_error: [M] were rows independent: √Σ w²(r − V)² / Σ w. They are not: compare it with the interval.
    """

    rows: int
    users: int
    row_effective_size: float
    row_effective_share: float
    user_effective_size: float
    user_effective_share: float
    largest_row_share: float
    largest_user_share: float
    capped_share: float
    retained_mass: float
    mean_weight: float
    mean_weight_interval: Float[np.ndarray, " 2"]
    events: Float[np.ndarray, " M"]
    weighted_positives: Float[np.ndarray, " M"]
    effective_positives: Float[np.ndarray, " M"]
    row_standard_error: Float[np.ndarray, " M"]

    @property
    def positives(self) -> Float[np.ndarray, " M"]:
        """The smaller of the two counts of weighted positives: what `MIN_POSITIVES` is asked of."""
        return np.minimum(self.weighted_positives, self.effective_positives)

    @property
    def estimable(self) -> Bool[np.ndarray, " M"]:
        """Enough rows fire."""
        return self.positives >= MIN_POSITIVES


def diagnose(one: Sums, at: int, mean_weight: Float[np.ndarray, " B"], level: float) -> Diagnostics:
    """Of the sums of one policy, with the cap at place `at` and draws of the mean weight."""
    w, n = one.weight[:, at], one.count
    total, rows = w.sum(), n.sum()
    events, positive, square = one.positives.sum(axis=0)
    by_row, by_user = total**2 / one.square.sum(), _kish(w)
    return Diagnostics(
        rows=int(rows),
        users=len(n),
        row_effective_size=float(by_row),
        row_effective_share=float(by_row / rows),
        user_effective_size=by_user,
        user_effective_share=by_user / _kish(n),
        largest_row_share=float(one.largest.max() / total),
        largest_user_share=float(w.max() / total),
        capped_share=float(one.capped.sum() / rows),
        retained_mass=float(total / one.raw.sum()),
        mean_weight=float(one.raw.sum() / rows),
        mean_weight_interval=bootstrap.interval(mean_weight, level),
        events=events,
        weighted_positives=positive,
        effective_positives=np.divide(positive**2, square, out=np.zeros_like(square), where=square > 0),
        row_standard_error=_row_error(one, at),
    )


def _kish(w: Float[np.ndarray, " n"]) -> float:
    return float(w.sum() ** 2 / (w**2).sum())


def _row_error(one: Sums, at: int) -> Float[np.ndarray, " M"]:
    V, (w2r, w2r2) = shards.of(one)[at], one.square_reward.sum(axis=0)
    squares = w2r2 - 2 * V * w2r + V**2 * one.square.sum()
    return np.sqrt(np.maximum(squares, 0.0)) / one.weight[:, at].sum()
