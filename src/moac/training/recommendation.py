"""Recommendations: which actions a policy ranks first for a request, and how probable they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from jaxtyping import Bool, Float, Int


class Catalogue(Protocol):
    """What turns ids of a log into what a policy sees: `moac.logs.catalogue` has it."""

    @property
    def action_ids(self) -> Int[np.ndarray, " K"]:
        """As the log names them."""
        ...

    def vector(self, numbers: Any) -> Float[np.ndarray, " F"]:
        """A feature vector, checked."""
        ...

    def see(self, user: Any, context: Any, history: Any) -> tuple[Float[np.ndarray, " F"], tuple[str, ...]]:
        """The feature vector of a request, and in words what of the request is unknown."""
        ...


@final
@dataclass(frozen=True, repr=False)
class Recommendation:
    """Actions, the most probable first; as a sequence, pairs of id and probability.

    Attributes:
        ids: as the log names them.
        probabilities: π(a|s) of each.
        notes: in words, what of the request was unknown.
    """

    ids: tuple[int, ...]
    probabilities: tuple[float, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.ids, self.probabilities, strict=True)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}: {p:.3g}" for name, p in self)
        return f"Recommendation({pairs}{''.join(f'; {note}' for note in self.notes)})"


@final
@dataclass(frozen=True, eq=False)
class Ranked:
    """The first k actions of n states.

    Attributes:
        places: [n, k] indices of actions, the most probable first; the earlier action where two are alike.
        probabilities: [n, k] of each.
        counts: [n] how many of the k there are; fewer where too many are left out.
    """

    places: Int[np.ndarray, "n k"]
    probabilities: Float[np.ndarray, "n k"]
    counts: Int[np.ndarray, " n"]


def ranked(logits: Float[np.ndarray, "n K"], k: int, left_out: Bool[np.ndarray, "n K"] | None = None) -> Ranked:
    """The k most probable actions under softmax(logits), in float64; among the others, where some are left out."""
    own = logits.astype(np.float64)
    own = own if left_out is None else np.where(left_out, -np.inf, own)
    weight = np.exp(own - np.maximum(own.max(axis=1, keepdims=True), np.finfo(np.float64).min))
    p = weight / np.maximum(weight.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    places = np.argsort(-own, axis=1, kind="stable")[:, :k]
    left = np.full(len(own), own.shape[1]) if left_out is None else np.count_nonzero(~left_out, axis=1)
    return Ranked(places, np.take_along_axis(p, places, axis=1), np.minimum(left, k))


def check_count(k: Any, num_actions: int) -> None:
    """Refuse what is no number of recommendations."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= num_actions:
        raise ValueError(f"`k` must be a whole number in [1, {num_actions}], the number of actions, got {k!r}.")
