"""What a reader is told of each signal: in the signal's own units, also where it is a cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

from moac.offline.evaluation.judged import Judged

Outcome = Literal["better", "worse", "no significant change", "not estimable"]
Range = tuple[float, float]


@final
@dataclass(frozen=True)
class Line:
    """One signal of one method, beside Behavior-Clone.

    Attributes:
        signal: its name.
        cost: less of it is better.
        baseline, value: V of both, of the signal: a cost is positive.
        interval: of the value.
        relative, relative_interval: V / V_b − 1.
        difference, difference_interval: V − V_b.
        p: adjusted by Holm over the signals.
        outcome: in words; better and worse are significant.
    """

    signal: str
    cost: bool
    baseline: float
    value: float
    interval: Range
    relative: float
    relative_interval: Range
    difference: float
    difference_interval: Range
    p: float
    outcome: Outcome

    @property
    def label(self) -> str:
        """The name; of a cost with a word on it."""
        return f"{self.signal} (cost)" if self.cost else self.signal


def lines(judged: Judged, method: str) -> tuple[Line, ...]:
    """One line for each signal."""
    return tuple(_line(judged, method, k) for k in range(len(judged.report.signal_names)))


def _line(judged: Judged, method: str, k: int) -> Line:
    report, signal = judged.report, judged.report.signal_names[k]
    own, base = report.policies[method], report.policies[str(report.baseline)]
    if own.change is None:
        raise ValueError(f"`method` must be one of {', '.join(judged.methods)}, got {method!r}.")
    cost, change = signal in judged.costs, own.change
    sign = -1.0 if cost else 1.0
    return Line(
        signal,
        cost,
        float(sign * base.ncis.value[k]),
        float(sign * own.ncis.value[k]),
        _range(sign, own.ncis.interval[k]),
        float(change.relative[k]),
        _range(1.0, change.relative_interval[k]),
        float(sign * change.difference[k]),
        _range(sign, change.difference_interval[k]),
        float(change.holm[k]),
        _outcome(own.estimable[k] and base.estimable[k], change.significant[k], change.difference[k]),
    )


def _range(sign: float, interval: Any) -> Range:
    low, high = (float(end) for end in interval)
    return (low, high) if sign > 0 else (-high, -low)


def _outcome(estimable: Any, significant: Any, difference: Any) -> Outcome:
    if not estimable:
        return "not estimable"
    if not significant:
        return "no significant change"
    return "better" if difference > 0 else "worse"
