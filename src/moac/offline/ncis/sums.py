"""Accumulators: sums over each user's rows. All that is estimated follows from them, and shards of a log add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.offline.ncis import checks


@final
@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over each user's rows, for one policy with weights w = min(c, π/π_b) under several caps c.

    `a + b` are the sums of both shards: the same numbers bit for bit where each user's rows are in one shard, and up to
    rounding where they are in several. Moments and counts are those of the cap in use.

    Attributes:
        user: [U] in ascending order.
        count: [U] rows.
        raw: [U] Σ π/π_b, without a cap.
        capped: [U] rows with π/π_b > c.
        largest: [U] max w.
        square: [U] Σ w².
        square_reward: [U, 2, M] Σ w² r and Σ w² r².
        positives: [U, 3, M] Σ 1{r ≠ 0}, Σ w 1{r ≠ 0} and Σ w² 1{r ≠ 0}.
        weight: [U, C] Σ w, for each cap.
        reward: [U, C, M] Σ w r, for each cap.
        adjusted: [U, M] Σ of the doubly robust terms; None without a reward model.
    """

    user: Any
    count: Float[np.ndarray, " U"]
    raw: Float[np.ndarray, " U"]
    capped: Float[np.ndarray, " U"]
    largest: Float[np.ndarray, " U"]
    square: Float[np.ndarray, " U"]
    square_reward: Float[np.ndarray, "U 2 M"]
    positives: Float[np.ndarray, "U 3 M"]
    weight: Float[np.ndarray, "U C"]
    reward: Float[np.ndarray, "U C M"]
    adjusted: Float[np.ndarray, "U M"] | None = None

    @property
    def distinct(self) -> int:
        """How many of the caps, from the first, differ: those above the largest weight are all alike."""
        return 1 + int((self.weight == self.weight[:, -1:]).all(axis=0).argmax())

    def __add__(self, other: Sums) -> Sums:
        if (self.adjusted is None) != (other.adjusted is None):
            raise ValueError("shards must all have a reward model, or none of them.")
        user, index = np.unique(np.concatenate([self.user, other.user]), return_inverse=True)
        mine, theirs = index[: len(self.user)], index[len(self.user) :]
        merged: dict[str, Any] = {"user": user}
        for field in fields(self)[1:]:
            a, b = getattr(self, field.name), getattr(other, field.name)
            if a is not None:
                total = np.zeros((len(user), *a.shape[1:]))
                total[mine] = a
                total[theirs] = np.maximum(total[theirs], b) if field.name == "largest" else total[theirs] + b
                merged[field.name] = total
        return Sums(**merged)


def of_rows(
    people: tuple[Any, Int[np.ndarray, " N"]],
    reward: Float[np.ndarray, "N M"],
    weight: Float[np.ndarray, " N"],
    caps: Sequence[float],
    cap: float,
    adjusted: Float[np.ndarray, "N M"] | None = None,
) -> Sums:
    """The sums of rows.

    Args:
        people: users [U] in ascending order, and the index [N] of each row's user.
        reward: r.
        weight: π/π_b, uncapped.
        caps: of `Sums.weight` and `Sums.reward`.
        cap: in use.
        adjusted: doubly robust terms.
    """
    user, index = people
    raw = checks.weights("`weight`", weight, len(reward))
    signals = np.ascontiguousarray(reward.T)
    w, fires = np.minimum(cap, raw), (signals != 0).astype(np.float64)
    product = np.empty(len(raw))

    def total(values: Any = None) -> Any:
        return np.bincount(index, values, len(user)).astype(np.float64)

    def totals(weights: Any, columns: Any) -> Any:
        return np.stack([total(np.multiply(weights, one, out=product)) for one in columns], axis=-1)

    def under(c: float) -> tuple[Any, Any]:
        capped = np.minimum(c, raw)
        return total(capped), totals(capped, signals)

    top = raw.max()  # caps above it are all alike
    distinct = {c: under(c) for c in {min(c, top) for c in caps}}
    swept = [distinct[min(c, top)] for c in caps]
    largest = np.zeros(len(user))
    np.maximum.at(largest, index, w)
    return Sums(
        user=user,
        count=total(),
        raw=total(raw),
        capped=total(raw > cap),
        largest=largest,
        square=total(w**2),
        square_reward=np.stack([totals(w**2, signals), totals(w**2, signals**2)], axis=1),
        positives=np.stack([totals(1.0, fires), totals(w, fires), totals(w**2, fires)], axis=1),
        weight=np.stack([weight for weight, _ in swept], axis=1),
        reward=np.stack([reward for _, reward in swept], axis=1),
        adjusted=None if adjusted is None else totals(1.0, adjusted.T),
    )
