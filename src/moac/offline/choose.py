"""Choose one policy out of several on validation users: protected signals are kept, the least gain is largest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moac import files
from moac.choices import shown
from moac.offline.evaluation import OfflineEvaluation
from moac.training.trained import TrainedPolicy

LEAST_SHARE = 0.5
"""Effective share of rows below which a policy is not chosen: too little of the log speaks for it."""
NAME = "choice.json"
_FLOOR = re.compile(r"(?P<signal>.+?)=(?P<change>[+-]?\d+(\.\d+)?)%")


@dataclass(frozen=True)
class Floor:
    """A signal may not get worse than this."""

    signal: str
    change: float  # relative to Behavior-Clone, −0.01 is one per cent less; of a cost the most that it may rise

    def __str__(self) -> str:
        return f"{self.signal}={100 * self.change:+g}%"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy and why it is, or is not, to be chosen."""

    name: str
    against: tuple[str, ...]  # reasons not to choose it; none makes it admissible
    gain: float  # mean over estimable signals of the least change for the better that the intervals allow


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """The admissible candidate with the largest gain."""

    chosen: str | None  # its name; None where no candidate is admissible: Behavior-Clone stays
    candidates: tuple[Candidate, ...]  # all of them, in the order given
    protected: tuple[Floor, ...]
    evaluation: OfflineEvaluation  # of all of them
    policy: TrainedPolicy | None = None  # the chosen one, where they were trained in the same call

    def __repr__(self) -> str:
        return f"Choice({self.chosen!r} of {', '.join(each.name for each in self.candidates)})"

    def record(self, runs: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON; `runs` are where the candidates' runs are, by name."""
        where = {name: {"run": path} for name, path in (runs or {}).items()}
        plain = {
            "format": 1,
            "chosen": self.chosen,
            "protected": [str(floor) for floor in self.protected],
            "candidates": [asdict(each) | where.get(each.name, {}) for each in self.candidates],
            self.evaluation.split: self.evaluation.card(),
        }
        return files.finite(plain)

    def save(self, folder: str | Path, runs: Mapping[str, str] | None = None) -> Path:
        """Write `choice.json` into the folder."""
        with files.making(Path(folder)):
            files.write_json(Path(folder) / NAME, self.record(runs))
        return Path(folder)


def floors(texts: Sequence[str], signals: Sequence[str]) -> tuple[Floor, ...]:
    """Parse floors such as `Like=-1%`; the signals are those of the log."""
    parsed: list[Floor] = []
    for text in texts:
        match = _FLOOR.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"`protect` must be a signal and a change in per cent, such as Like=-1%, got {shown(text)}."
            )
        if match["signal"] not in signals:
            raise ValueError(f"`protect` must name one of {', '.join(signals)}, got {match['signal']!r}.")
        if match["signal"] in (floor.signal for floor in parsed):
            raise ValueError(f"`protect` must name a signal once, got {match['signal']!r} twice.")
        parsed.append(Floor(match["signal"], float(match["change"]) / 100))
    return tuple(parsed)


def choose(evaluation: OfflineEvaluation, protect: Sequence[Floor | str] = ()) -> Choice:
    """Among the policies of an evaluation, the admissible one whose gain is largest.

    Admissible is what is not distrusted, leaves half of the rows' effective number, makes no signal significantly worse
    and keeps every floor also at the worse end of its interval. A signal that is not estimable cannot be kept. Floors
    are also texts such as `Like=-1%`.
    """
    signals = (*evaluation.report.signal_names, *evaluation.left_out)
    texts = [floor for floor in protect if isinstance(floor, str)]
    protected = (*(floor for floor in protect if isinstance(floor, Floor)), *floors(texts, signals))
    candidates = tuple(_candidate(evaluation, name, protected) for name in evaluation.methods)
    admissible = [each for each in candidates if not each.against]
    best = max(admissible, key=lambda each: each.gain) if admissible else None
    return Choice(None if best is None else best.name, candidates, protected, evaluation)


def _candidate(evaluation: OfflineEvaluation, name: str, protected: Sequence[Floor]) -> Candidate:
    policy, signals = evaluation.report.policies[name], evaluation.report.signal_names
    change: Any = policy.change
    sign = {signal: -1 if signal in evaluation.costs else 1 for signal in signals}
    low, high = change.relative_interval.T
    least = np.where(np.array([*sign.values()]) > 0, low, -high)  # the worse ends, as changes for the better
    worse = change.significant & (change.difference < 0)
    share = min(each.row_effective_share for each in policy.diagnostics)
    against = [] if share >= LEAST_SHARE else [f"an effective share of rows of {share:.2f}, below {LEAST_SHARE}"]
    against += [reason.text for reason in policy.verdict.reasons if policy.verdict.level == "not trusted"]
    against += [f"{signals[i]} is significantly worse" for i in np.flatnonzero(worse)]
    estimable = {signals[i]: float(least[i]) for i in np.flatnonzero(policy.estimable)}
    against += [text for floor in protected for text in _below(floor, estimable, sign)]
    gain = float(least[policy.estimable].mean()) if estimable else -np.inf
    return Candidate(name, tuple(against), gain)


def _below(floor: Floor, estimable: Mapping[str, float], signs: Mapping[str, int]) -> list[str]:
    """The reason why a floor is not kept, if any; `estimable` are the least changes for the better of signals."""
    if floor.signal not in estimable:
        return [f"{floor.signal} is not estimable on these users, so {floor} cannot be shown"]
    least, sign = estimable[floor.signal], signs[floor.signal]
    if least >= sign * floor.change:
        return []
    return [f"{floor.signal} may change by {100 * sign * least:+.1f}%, beyond {floor}"]
