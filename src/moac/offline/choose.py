"""Choose one policy out of several on validation users: protected signals are kept, the least gain is largest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from moac.offline.ncis import PolicyReport, Report

LEAST_SHARE = 0.5
"""Effective share of rows below which a policy is not chosen: too little of the log speaks for it."""
_FLOOR = re.compile(r"(?P<signal>.+?)=(?P<change>[+-]?\d+(\.\d+)?)%")


@final
@dataclass(frozen=True)
class Floor:
    """A signal may not get worse than this."""

    signal: str
    change: float  # relative to Behavior-Clone, −0.01 is one per cent less; of a cost the most that it may rise

    def __str__(self) -> str:
        return f"{self.signal}={100 * self.change:+g}%"


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy and why it is, or is not, to be chosen."""

    name: str
    against: tuple[str, ...]  # reasons not to choose it; none makes it admissible
    gain: float  # mean over estimable signals of the least change for the better that the intervals allow


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """The admissible candidate with the largest gain."""

    chosen: str | None  # its name; None where no candidate is admissible
    candidates: tuple[Candidate, ...]  # all of them, in the order given


def floors(texts: Sequence[str], signals: Sequence[str]) -> tuple[Floor, ...]:
    """Parse floors such as `Like=-1%`; the signals are those of the log."""
    parsed: list[Floor] = []
    for text in texts:
        match = _FLOOR.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"`protect` must be a signal and a change in per cent, such as Like=-1%, got {text!r}.")
        if match["signal"] not in signals:
            raise ValueError(f"`protect` must name one of {', '.join(signals)}, got {match['signal']!r}.")
        if match["signal"] in (floor.signal for floor in parsed):
            raise ValueError(f"`protect` must name a signal once, got {match['signal']!r} twice.")
        parsed.append(Floor(match["signal"], float(match["change"]) / 100))
    return tuple(parsed)


def choose(report: Report, signs: Mapping[str, int], protected: Sequence[Floor] = ()) -> Choice:
    """Among the report's policies but its baseline, the admissible one whose gain is largest.

    Admissible is what is not distrusted, leaves half of the rows' effective number, makes no signal significantly worse
    and keeps every floor also at the worse end of its interval. A signal that is not estimable cannot be kept.

    Args:
        report: on validation users, with a baseline.
        signs: −1 for a signal that is a cost.
        protected: floors under signals.
    """
    names = [name for name in report.policies if name != report.baseline]
    candidates = tuple(_candidate(report, name, signs, protected) for name in names)
    admissible = [each for each in candidates if not each.against]
    best = max(admissible, key=lambda each: each.gain) if admissible else None
    return Choice(None if best is None else best.name, candidates)


def _candidate(report: Report, name: str, signs: Mapping[str, int], protected: Sequence[Floor]) -> Candidate:
    policy, signals = report.policies[name], report.signal_names
    if policy.change is None:
        raise ValueError("`report` must have a baseline: changes are counted from it.")
    sign = {signal: signs[signal] for signal in signals}
    low, high = policy.change.relative_interval.T
    least = np.where(np.array([*sign.values()]) > 0, low, -high)  # the worse ends, as changes for the better
    worse = policy.change.significant & (policy.change.difference < 0)
    against = [*_distrust(policy), *(f"{signals[i]} is significantly worse" for i in np.flatnonzero(worse))]
    estimable = {signals[i]: float(least[i]) for i in np.flatnonzero(policy.estimable)}
    against += [text for floor in protected for text in _below(floor, estimable, sign)]
    gain = float(least[policy.estimable].mean()) if estimable else -np.inf
    return Candidate(name, tuple(against), gain)


def _distrust(policy: PolicyReport) -> list[str]:
    share = min(each.row_effective_share for each in policy.diagnostics)
    low = [] if share >= LEAST_SHARE else [f"an effective share of rows of {share:.2f}, below {LEAST_SHARE}"]
    return low + ([reason.text for reason in policy.verdict.reasons] if policy.verdict.level == "not trusted" else [])


def _below(floor: Floor, estimable: Mapping[str, float], signs: Mapping[str, int]) -> list[str]:
    """The reason why a floor is not kept, if any; `estimable` are the least changes for the better of signals."""
    if floor.signal not in estimable:
        return [f"{floor.signal} is not estimable on these users, so {floor} cannot be shown"]
    least, sign = estimable[floor.signal], signs[floor.signal]
    if least >= sign * floor.change:
        return []
    return [f"{floor.signal} may change by {100 * sign * least:+.1f}%, beyond {floor}"]
