"""The result of an evaluation on a log: methods beside Behavior-Clone, a line per signal, and the card that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Float

from moac import files
from moac.logs import folder
from moac.logs.dataset import LoggedDataset
from moac.offline.access_log import AccessLog
from moac.offline.calibration import Calibration
from moac.offline.ncis import Report
from moac.types import Params, Policy

Method = tuple[Policy, Params]
"""A kind of policy, and the parameters of its training seeds: leading axis K."""
Outcome = Literal["better", "worse", "no significant change", "not estimable"]
Range = tuple[float, float]
BASELINE = "Behavior-Clone"
"""The policy that made the log, as far as it is known."""
FORMAT = 1
EDGES = (0.0, *(2.0 ** ((2 * k + 1) / 8) for k in range(-32, 32)), np.inf)
"""Edges of the histogram of weights: a factor 2^¼ apart, with 1 in the middle of a bin."""


@final
@dataclass(frozen=True)
class Line:
    """One signal of one method beside Behavior-Clone, in the signal's own units, also where it is a cost."""

    signal: str
    cost: bool  # less of it is better
    baseline: float  # V of both, of the signal: a cost is positive
    value: float
    interval: Range  # of the value
    relative: float  # V / V_b − 1
    relative_interval: Range
    difference: float  # V − V_b
    difference_interval: Range
    p: float  # adjusted by Holm over the signals
    outcome: Outcome  # in words; better and worse are significant

    @property
    def label(self) -> str:
        """The name; of a cost with a word on it."""
        return f"{self.signal} (cost)" if self.cost else self.signal


@final
@dataclass(frozen=True, eq=False)
class WeightHistogram:
    """How the weights π/π_b of each policy are spread over the rows, without a cap."""

    edges: Float[np.ndarray, " E"]  # of the bins
    shares: dict[str, Float[np.ndarray, " B"]]  # by name, share of the rows, mean over training seeds

    @staticmethod
    def of(weights: Mapping[str, Float[np.ndarray, "K n"]]) -> WeightHistogram:
        """The histogram of each policy's weights."""
        edges = np.array(EDGES)
        return WeightHistogram(edges, {name: np.histogram(w, edges)[0] / w.size for name, w in weights.items()})


@final
@dataclass(frozen=True, eq=False)
class OfflineEvaluation:
    """Methods beside Behavior-Clone, on one split's users."""

    data: str  # name of the log
    fingerprint: str  # of the log, with its propensities
    split: str  # whose users
    rows: int
    users: int
    num_actions: int
    seeds: dict[str, int]  # policies of each method
    costs: tuple[str, ...]  # signals of which less is better
    report: Report  # values, changes, diagnostics, cap sweep and verdicts
    left_out: tuple[str, ...]  # signals that never fire there: nothing can be said of them
    calibration: Calibration | None  # of the behaviour model; None where the log knows its propensities
    reward_model: dict[str, Any] | None  # of doubly robust: penalty and share of variance explained of each signal
    random_rows: int  # of random exposure, that the estimates were checked against
    weights: WeightHistogram  # how they are spread

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, without Behavior-Clone."""
        return tuple(name for name in self.report.policies if name != self.report.baseline)

    def lines(self, method: str) -> tuple[Line, ...]:
        """One line for each signal."""
        return tuple(self._line(method, k) for k in range(len(self.report.signal_names)))

    def _line(self, method: str, k: int) -> Line:
        signal = self.report.signal_names[k]
        policy, base = self.report.policies[method], self.report.policies[str(self.report.baseline)]
        if policy.change is None:
            raise ValueError(f"`method` must be one of {', '.join(self.methods)}, got {method!r}.")
        cost, change = signal in self.costs, policy.change
        sign = -1.0 if cost else 1.0
        return Line(
            signal,
            cost,
            float(sign * base.ncis.value[k]),
            float(sign * policy.ncis.value[k]),
            _range(sign, policy.ncis.interval[k]),
            float(change.relative[k]),
            _range(1.0, change.relative_interval[k]),
            float(sign * change.difference[k]),
            _range(sign, change.difference_interval[k]),
            float(change.holm[k]),
            _outcome(policy.estimable[k] and base.estimable[k], change.significant[k], change.difference[k]),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: NaN is None, an infinite cap is "inf"."""
        names = ("split", "rows", "users", "seeds", "costs", "left_out", "reward_model", "random_rows", "weights")
        plain = {name: getattr(self, name) for name in (*names, "report")}
        plain["data"] = {"name": self.data, "fingerprint": self.fingerprint, "actions": self.num_actions}
        return files.finite(plain | {"behaviour": self.calibration}, name_infinities=True)


def _range(sign: float, interval: Any) -> Range:
    low, high = (float(end) for end in interval)
    return (low, high) if sign > 0 else (-high, -low)


def _outcome(estimable: Any, significant: Any, difference: Any) -> Outcome:
    if not estimable:
        return "not estimable"
    if not significant:
        return "no significant change"
    return "better" if difference > 0 else "worse"


def card(
    evaluation: OfflineEvaluation, dataset: LoggedDataset, policies: dict[str, str], accesses: AccessLog | None
) -> dict[str, Any]:
    """All that is known of an evaluation on a dataset, as plain data.

    `policies` are fingerprints of each method's parameters; `accesses` is None on other than test users.
    """
    plain = evaluation.as_dict()
    options = {} if dataset.folder is None else folder.read_manifest(Path(dataset.folder))["options"]
    split = {"name": plain.pop("split"), "seed": options.get("split_seed"), "shares": options.get("shares")}
    return {
        "format": FORMAT,
        "moac": metadata.version("moac"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "policies": policies,
        "data": plain.pop("data") | {"rows": dataset.num_rows, "users": dataset.num_users},
        "split": split | {"rows": plain.pop("rows"), "users": plain.pop("users")},
        "trust": {
            name: {"level": policy.verdict.level, "reasons": [reason.text for reason in policy.verdict.reasons]}
            for name, policy in evaluation.report.policies.items()
        },
        "outcomes": {
            method: {line.signal: line.outcome for line in evaluation.lines(method)}
            | dict.fromkeys(evaluation.left_out, "never fires")
            for method in evaluation.methods
        },
        "test_looks": None if accesses is None else len(accesses.entries),
        "looks": None if accesses is None else list(accesses.entries),
        **plain,
    }
