"""A Pareto archive: policies side by side, what each is worth, for whom it was trained, and its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from moac import files
from moac.training.trained import TrainedPolicy

FILE = "archive.safetensors"
"""Beside `policy.safetensors` of a run directory whose trials are the archived policies."""
_FORMAT = 1


@final
@dataclass(frozen=True, eq=False)
class Archive:
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
        policies: the policies, one trial each; None while only their values are at hand.
    """

    points: Float[np.ndarray, "A M"]
    low: Float[np.ndarray, "A M"]
    high: Float[np.ndarray, "A M"]
    preferences: Float[np.ndarray, "A M"]
    weights: Float[np.ndarray, "A M"]
    rules: tuple[str, ...]
    trials: Int[np.ndarray, " A"]
    kind: str
    policies: TrainedPolicy | None = None

    def __len__(self) -> int:
        return len(self.points)

    def policy(self, index: int) -> TrainedPolicy:
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

    def picked(self, index: Any) -> Archive:
        """Some of the points, without their policies."""
        chosen = np.asarray(index, dtype=np.int64)
        arrays: dict[str, Any] = {name: array[chosen] for name, array in self.arrays().items()}
        return Archive(**arrays, rules=tuple(self.rules[k] for k in chosen), kind=self.kind)

    def arrays(self) -> files.Arrays:
        """The arrays by name."""
        names = ("points", "low", "high", "preferences", "weights", "trials")
        return {name: getattr(self, name) for name in names}

    def write(self, folder: Path) -> None:
        """Values and origins; the policies are those of the folder's run."""
        files.write_arrays(
            folder / FILE, self.arrays(), {"format": _FORMAT, "kind": self.kind, "rules": list(self.rules)}
        )


def read(folder: Path, policies: TrainedPolicy) -> Archive | None:
    """The archive of a run directory, whose trials are the policies; None where it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    arrays, about = files.read_arrays(path)
    if about.get("format") != _FORMAT:
        raise files.DamagedError(path, f"its format is {about.get('format')!r} in place of {_FORMAT}")
    try:
        archive = Archive(**arrays, rules=tuple(about["rules"]), kind=str(about["kind"]), policies=policies)
    except (KeyError, TypeError) as error:
        raise files.DamagedError(path, f"{error} is missing or wrong") from None
    expected = (policies.num_trials, archive.points.shape[-1])
    for name, array in archive.arrays().items():
        if array.shape != (expected if name != "trials" else expected[:1]) or len(archive.rules) != expected[0]:
            raise files.DamagedError(path, f"`{name}` has shape {array.shape}, the run has {expected[0]} policies")
    return archive
