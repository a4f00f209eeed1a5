"""What users say of each method: one line per signal, kept as plain data so that test users are read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac.logs.dataset import LoggedDataset
from moac.offline.choose import Candidate, choose
from moac.offline.evaluate import evaluate
from moac.offline.evaluation import Line, Method, OfflineEvaluation, Outcome
from moac.offline.ncis import Options, estimates


@final
@dataclass(frozen=True)
class Judgement:
    """One policy, or the seeds of one setting, on a split's users.

    Attributes:
        name: of it.
        lines: one per signal.
        share: effective share of rows, of the worst seed.
        verdict: trusted, with care or not trusted.
        against: reasons not to choose it; only where there was a choice.
        gain: see `moac.offline.choose.Candidate`.
        draws: relative change of each signal in each draw of users [B]; kept in memory alone.
    """

    name: str
    lines: tuple[Line, ...]
    share: float
    verdict: str
    against: tuple[str, ...] = ()
    gain: float = 0.0
    draws: Mapping[str, Float[np.ndarray, " B"]] = field(default_factory=dict, compare=False)

    def line(self, signal: str) -> Line | None:
        """Of a signal, where it fires."""
        return next((line for line in self.lines if line.signal == signal), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(replace(self, draws={}))

    @staticmethod
    def of_dict(data: Mapping[str, Any]) -> Judgement:
        """From `as_dict`, also after JSON."""
        ranges = ("interval", "relative_interval", "difference_interval")
        found = [Line(**line | {name: tuple(line[name]) for name in ranges}) for line in data["lines"]]
        given: dict[str, Any] = {**data, "lines": tuple(found), "against": tuple(data["against"])}
        return Judgement(**given)


def of_split(dataset: LoggedDataset, methods: Mapping[str, Method], split: str) -> dict[str, Judgement]:
    """All methods on a split's users, beside Behavior-Clone; on validation users with what speaks against each."""
    judged = evaluate(dataset, methods, split)
    signs = dict(zip(dataset.signal_names, dataset.signs, strict=True))
    candidates = {each.name: each for each in choose(judged.report, signs).candidates}
    return {name: _judgement(judged, name, candidates[name]) for name in methods}


def _judgement(judged: OfflineEvaluation, name: str, candidate: Candidate) -> Judgement:
    own = judged.report.policies[name]
    share = min(each.row_effective_share for each in own.diagnostics)
    draws = (
        {} if own.change is None else dict(zip(judged.report.signal_names, own.change.relative_draws.T, strict=True))
    )
    return Judgement(name, judged.lines(name), share, own.verdict.level, candidate.against, candidate.gain, draws)


def best(found: Sequence[Judgement]) -> Judgement:
    """The admissible one with the largest gain; where none is, the one with the fewest reasons against it."""
    return min(found, key=lambda each: (len(each.against), -each.gain))


@final
@dataclass(frozen=True, eq=False)
class AtShare:
    """A method at an effective share of rows, between the two settings on either side of it.

    Attributes:
        lines: by signal; relative changes and ends of their intervals are in proportion.
        draws: relative change of each signal in each draw of users [B], in proportion as well.
    """

    lines: Mapping[str, Line]
    draws: Mapping[str, Float[np.ndarray, " B"]]

    @property
    def estimable(self) -> tuple[str, ...]:
        """Signals that can be estimated."""
        return tuple(name for name, line in self.lines.items() if line.outcome != "not estimable")


@final
@dataclass(frozen=True)
class Lead:
    """By how much the first of two methods has more gain in a signal than the second: a paired difference.

    Attributes:
        value: of the relative changes; a cost that falls is a gain.
        low, high: its 95 % interval, users drawn alike for both.
    """

    value: float
    low: float
    high: float


def leads(one: AtShare, other: AtShare) -> dict[str, Lead]:
    """The lead of one method over another in each signal that can be estimated for both."""
    shared = [name for name in one.estimable if name in other.estimable]
    return {name: _lead(one, other, name) for name in shared}


def _lead(one: AtShare, other: AtShare, signal: str) -> Lead:
    sign = -1.0 if one.lines[signal].cost else 1.0
    low, high = estimates.interval(sign * (one.draws[signal] - other.draws[signal]), Options().level)
    return Lead(sign * (one.lines[signal].relative - other.lines[signal].relative), float(low), float(high))


def at_share(found: Sequence[Judgement], share: float) -> AtShare | None:
    """A method's settings at an effective share; None where there are none on either side of it."""
    ordered = sorted(found, key=lambda each: each.share)
    for low, high in pairwise(ordered):
        if low.share <= share <= high.share and high.share > low.share:
            part = (share - low.share) / (high.share - low.share)
            pairs = zip(low.lines, high.lines, strict=True)
            between = {a.signal: _between(a, b, part) for a, b in pairs}
            draws = {name: (1 - part) * low.draws[name] + part * high.draws[name] for name in between}
            return AtShare(between, draws)
    return None


def _between(a: Line, b: Line, part: float) -> Line:
    """A line whose relative change and interval are between two others; what else it has is of the first."""

    def mixed(x: float, y: float) -> float:
        return (1 - part) * x + part * y

    ends = zip(a.relative_interval, b.relative_interval, strict=True)
    low, high = (mixed(x, y) for x, y in ends)
    estimable = "not estimable" not in (a.outcome, b.outcome)
    outcome: Outcome = "no significant change" if estimable else "not estimable"
    return replace(a, relative=mixed(a.relative, b.relative), relative_interval=(low, high), outcome=outcome)
