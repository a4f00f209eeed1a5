"""What is known of trained policies after they were judged: all that a card and a page say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import files
from moac.offline.behaviour.scoring import Scores
from moac.offline.ncis import Report
from moac.offline.reward_model import RewardModel

EDGES = (0.0, *(2.0 ** ((2 * k + 1) / 8) for k in range(-32, 32)), np.inf)
"""Of the histogram of weights: a factor 2^¼ apart, with 1 in the middle of a bin."""


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """How the weights π/π_b of each policy are spread over the rows, without a cap.

    Attributes:
        edges: [B + 1] of the bins.
        shares: by name, [B] share of the rows, mean over training seeds.
    """

    edges: Float[np.ndarray, " E"]
    shares: dict[str, Float[np.ndarray, " B"]]

    @staticmethod
    def of(weights: dict[str, Float[np.ndarray, "K n"]]) -> Weights:
        """Counted."""
        edges = np.array(EDGES)
        return Weights(edges, {name: np.histogram(own, edges)[0] / own.size for name, own in weights.items()})


@final
@dataclass(frozen=True, eq=False)
class Judged:
    """Methods beside Behavior-Clone, on one split's users.

    Attributes:
        data: name of the log.
        fingerprint: of the log, with its propensities.
        split: whose users.
        rows, users: how many.
        num_actions: K.
        seeds: policies of each method.
        costs: signals of which less is better.
        report: values, changes, diagnostics, cap sweep and verdicts.
        left_out: signals that never fire there: nothing can be said of them.
        scores: of the behaviour model; None where the log knows its propensities.
        reward_model: of the doubly robust estimate; None where there is none.
        random_rows: of random exposure, that the estimates were checked against.
        weights: how they are spread.
    """

    data: str
    fingerprint: str
    split: str
    rows: int
    users: int
    num_actions: int
    seeds: dict[str, int]
    costs: tuple[str, ...]
    report: Report
    left_out: tuple[str, ...]
    scores: Scores | None
    reward_model: RewardModel | None
    random_rows: int
    weights: Weights

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, without Behavior-Clone."""
        return tuple(name for name in self.report.policies if name != self.report.baseline)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: NaN is None, an infinite cap is "inf"."""
        of_fields = {name: getattr(self, name) for name in ("rows", "users", "seeds", "costs", "left_out")}
        return files.finite(
            {"data": {"name": self.data, "fingerprint": self.fingerprint, "actions": self.num_actions}}
            | {"split": self.split}
            | of_fields
            | {
                "behaviour": None if self.scores is None else self.scores.as_dict(),
                "reward_model": None if self.reward_model is None else self.reward_model.as_dict(),
                "random_rows": self.random_rows,
                "weights": self.weights,
                "report": self.report,
            },
            name_infinities=True,
        )
