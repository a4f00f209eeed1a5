"""Policies side by side: what each is worth, for whom it was trained, and the policy itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np
from jaxtyping import Float, Int


class Trials(Protocol):
    """Policies that are told apart by a number."""

    def of_trial(self, trial: int) -> Any:
        """One of them."""
        ...


T = TypeVar("T", bound=Trials)


@final
@dataclass(frozen=True, eq=False)
class Archive(Generic[T]):
    """A policies, with what is known of each.

    Attributes:
        points: J [A, M].
        low: the lower end of each value's 95 % interval [A, M]; where values are exact, the value.
        high: the upper end, likewise.
        preferences: p [A, M] that each was trained for; NaN where its rule takes none.
        weights: λ [A, M] of its last update.
        rules: how each was trained, by name; on a model also `RULE, stage 1` …, and each with `, greedy`.
        trials: [A] its number among the trials of its rule.
        kind: how values are known: `exact`, `episodes` or `ncis`.
        policies: the policies; None while only their values are at hand.
    """

    points: Float[np.ndarray, "A M"]
    low: Float[np.ndarray, "A M"]
    high: Float[np.ndarray, "A M"]
    preferences: Float[np.ndarray, "A M"]
    weights: Float[np.ndarray, "A M"]
    rules: tuple[str, ...]
    trials: Int[np.ndarray, " A"]
    kind: str
    policies: T | None = None

    def __len__(self) -> int:
        return len(self.points)

    def policy(self, index: int) -> T:
        """The policy of a point, ready to act."""
        if self.policies is None:
            raise ValueError("the archive holds values alone: moac.load(folder).archive has the policies too.")
        return self.policies.of_trial(index)

    def best_for(self, preference: Any) -> int:
        """The point with the largest pᵀJ."""
        p = np.asarray(preference, dtype=np.float64)
        if p.shape != self.points.shape[1:]:
            raise ValueError(f"`preference` must hold one number per objective ({self.points.shape[1]}), got {p.size}.")
        return int(np.argmax(self.points @ p))

    def picked(self, index: Any) -> Archive[T]:
        """Some of the points, without their policies."""
        chosen = np.asarray(index, dtype=np.int64)
        arrays: dict[str, Any] = {name: array[chosen] for name, array in self.arrays().items()}
        return Archive(**arrays, rules=tuple(self.rules[k] for k in chosen), kind=self.kind)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays by name."""
        names = ("points", "low", "high", "preferences", "weights", "trials")
        return {name: getattr(self, name) for name in names}
