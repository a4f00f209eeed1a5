"""What a run logs at its evaluated iterations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from moac import simplex
from moac.types import Evaluation, Metrics

_BLOCK = 64


@dataclass(frozen=True, eq=False)
class History:
    """K trials at L iterations."""

    iteration: Int[np.ndarray, " L"]  # updates done when it was logged
    returns: Float[np.ndarray, "K L M"]  # J after them
    weights: Float[np.ndarray, "K L M"]  # λ_t of the last of them
    min_norm_weights: Float[np.ndarray, "K L M"]  # λ̂_t, the min-norm weights of the same gradients
    gradient_norm_squared: Float[np.ndarray, "K L"]  # ‖Σ λᵢgⁱ‖² of the direction taken
    # the smallest ⟨gⁱ, d⟩ over objectives; negative where the step hurts one
    smallest_alignment: Float[np.ndarray, "K L"]
    gap: Float[np.ndarray, "K L"]  # exact stationarity gap
    direction_gap: Float[np.ndarray, "K L"]  # the same for Lemma 1's direction
    regret: Float[np.ndarray, "K L"]  # exact
    kind: str = "exact"  # how returns were evaluated: `exact`, `episodes` or `ncis`

    @classmethod
    def empty(cls) -> History:
        """Nothing logged yet."""
        cube, square = np.zeros((0, 0, 0)), np.zeros((0, 0))
        return cls(np.zeros(0, dtype=np.int64), cube, cube, cube, square, square, square, square, square)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray[Any, Any]], kind: str) -> History:
        """The history that `arrays` gave; a missing one is a KeyError."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls) if f.name != "kind"}, kind=kind)

    def extended(self, iteration: int, metrics: Metrics, evaluation: Evaluation) -> History:
        """The history with one more iteration."""
        K, lam = np.asarray(metrics.gram, np.float64), np.asarray(metrics.weights, np.float64)
        alignment = (K * lam[:, None, :]).sum(axis=2)
        new: dict[str, Any] = {
            "returns": evaluation.returns,
            "weights": lam,
            "min_norm_weights": _min_norm_weights(K),
            "gradient_norm_squared": np.maximum((lam * alignment).sum(axis=1), 0.0),
            "smallest_alignment": alignment.min(axis=1),
            "gap": evaluation.gap,
            "direction_gap": evaluation.direction_gap,
            "regret": evaluation.regret,
        }
        columns = {name: self._appended(name, value) for name, value in new.items()}
        return History(np.append(self.iteration, iteration), **columns, kind=evaluation.kind)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "kind"}

    def _appended(self, name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One more column; laid out as an array that is read from a file, so that sums add in the same order."""
        column = value[:, None]
        columns = column if len(self.iteration) == 0 else np.concatenate([getattr(self, name), column], axis=1)
        return np.ascontiguousarray(columns)


def _min_norm_weights(K: Float[np.ndarray, "K M M"]) -> Float[np.ndarray, "K M"]:
    """λ̂ of each Gram matrix, NaN where it is not finite.

    In blocks of one size: one compilation serves any number of trials, and a trial's numbers do not depend on it.
    """
    healthy = np.asarray(np.isfinite(K).all(axis=(1, 2)))
    safe = np.where(healthy[:, None, None], K, 1.0)
    padded = np.concatenate([safe, np.ones((-len(K) % _BLOCK, *K.shape[1:]))])
    blocks = [simplex.min_norm_from_gram(part).weights for part in padded.reshape(-1, _BLOCK, *K.shape[1:])]
    return np.where(healthy[:, None], np.concatenate(blocks)[: len(K)], np.nan)
