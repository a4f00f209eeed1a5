"""One rule for every claim, the paper's and ours: its interval lies inside of what is claimed, outside, or neither.

A claim says that a quantity lies between two bounds. It `holds` where the quantity's whole 95 % interval lies strictly
between them, `does not hold` where the whole interval lies beyond one of them, and is `not decided` otherwise. Nobody
has the benefit of the doubt: that a quantity does not grow has to be shown in the same way as that it grows.

`paired` and `apart` estimate differences, `slope` and `bootstrapped` what a mean curve looks like; the functions that
return a `Part` decide. `claim` puts parts together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moac.report.numbers import number
from moac.report.page import Claim, Verdict, verdict_of
from moac.search.compare import apart as apart
from moac.search.compare import paired as paired
from moac.statistics import Mean

NOT_RUN = "Left out of this reduced run."
TOLERANCE = 0.1  # A slope of the actor's study is what is claimed when its whole interval lies within this of it
_RESAMPLES = 1000
_NEGATED: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}


@dataclass(frozen=True)
class Part:
    """What was decided on one part of a claim."""

    verdict: Verdict  # `holds`, `does not hold` or `not decided`
    # of a part that is not decided, about how many trials would decide it; infinite where the estimate lies on the
    # bound, NaN where there is no interval to tell from
    needed: float = 0.0

    @property
    def negated(self) -> Part:
        """The same of the opposite claim."""
        return Part(_NEGATED.get(self.verdict, self.verdict), self.needed)


def bootstrapped(values: Any, statistic: Callable[[Any], Any], seed: int = 0) -> Mean:
    """A statistic of the mean over trials [K, ...], with its 95 % bootstrap interval.

    Trials are resampled as a whole; `statistic` gives of means [R, ...] a number for each of R.
    """
    table = np.asarray(values, dtype=np.float64)
    picked = np.random.default_rng(seed).integers(0, len(table), (_RESAMPLES, len(table)))
    low, high = np.quantile(statistic(table[picked].mean(axis=1)), (0.025, 0.975))
    return Mean(float(statistic(table.mean(axis=0)[None])[0]), float(low), float(high), len(table))


def slope(x: Any, values: Any) -> Mean:
    """The slope of log mean(values) against log x, for x [L] and values [K, L] that are positive on average."""
    return bootstrapped(values, lambda means: _slopes(np.log(x), logarithm(means)))


def slope_difference(x: Any, a: Any, b: Any) -> Mean:
    """The slope of a [K, L] minus that of b [K, L], whose trials share their problems and seeds."""

    def statistic(means: Any) -> Any:
        return _slopes(np.log(x), logarithm(means[:, 0])) - _slopes(np.log(x), logarithm(means[:, 1]))

    return bootstrapped(np.stack([a, b], axis=1), statistic)


def logarithm(means: Any) -> Any:
    """Of means over resampled trials, some of which need not be positive."""
    return np.log(np.maximum(means, np.finfo(float).tiny))


def straightness(x: Any, y: Any) -> Any:
    """R² of the line through each row of y: the square of their correlation."""
    x, y = x - x.mean(), y - y.mean(axis=1, keepdims=True)
    return (y @ x) ** 2 / ((x @ x) * (y**2).sum(axis=1))


def _slopes(x: Any, y: Any) -> Any:
    """Least squares of each row of y on x."""
    centred = x - x.mean()
    return (y - y.mean(axis=1, keepdims=True)) @ centred / (centred @ centred)


def inside(interval: Mean, low: float = -math.inf, high: float = math.inf) -> Part:
    """Whether a quantity lies between two bounds; the rule of this module."""
    if math.isnan(interval.low + interval.high):
        return Part("not decided", math.nan)
    if low < interval.low and interval.high < high:
        return Part("holds")
    if interval.high <= low or high <= interval.low:
        return Part("does not hold")
    return Part("not decided", _needed(interval, (low, high)))


def above(interval: Mean, bound: float = 0.0) -> Part:
    """Whether a quantity is above a bound."""
    return inside(interval, low=bound)


def below(interval: Mean, bound: float = 0.0) -> Part:
    """Whether a quantity is below a bound."""
    return inside(interval, high=bound)


def near(interval: Mean, target: float, tolerance: float) -> Part:
    """Whether a quantity is `target` up to `tolerance`; with a target of 0, whether a change is small."""
    return inside(interval, target - tolerance, target + tolerance)


def falls(first: Any, last: Any, times: float = 1.0) -> Part:
    """Whether a quantity of trials [K] ends below its beginning, divided by `times`."""
    return below(paired(times * np.asarray(last), first))


def dominates(a: Any, b: Any) -> list[Part]:
    """Whether a [K, M] is above b [K, M], trial by trial, in each of M objectives."""
    return [above(paired(x, y)) for x, y in zip(np.asarray(a).T, np.asarray(b).T, strict=True)]


def known(statement: Any) -> Part:
    """The part of a claim that was counted or computed, not estimated: it is true or false."""
    return Part("holds" if bool(statement) else "does not hold")


def all_of(parts: Iterable[Part]) -> Part:
    """One part of several that mean nothing alone: it holds where all do, and fails where one does."""
    every = list(parts)
    verdicts = [part.verdict for part in every]
    if "does not hold" in verdicts:
        return Part("does not hold")
    return Part("not decided", _most(every)) if "not decided" in verdicts else Part("holds")


def claim(text: str, measured: str, parts: Iterable[Part], evidence: str = "") -> Claim:
    """A claim with the verdict on its parts; where that is `not decided`, with what it would take."""
    every = list(parts)
    verdict = verdict_of([part.verdict for part in every])
    told = f"{measured} {would_take(_most(every))}" if verdict == "not decided" else measured
    return Claim(text, told, verdict, evidence)


def would_take(trials: float) -> str:
    """What it would take to decide, as a sentence."""
    if math.isnan(trials):
        return "Not decided: there are too few trials or points for an interval."
    unit = 1 if math.isinf(trials) else 10 ** max(0, math.floor(math.log10(max(trials, 1.0))) - 1)  # two digits
    how_many = "no number of trials" if math.isinf(trials) else f"about {math.ceil(trials / unit) * unit:,} trials"
    return f"Not decided: {how_many} would decide it."


def with_interval(value: Mean) -> str:
    """A number with its 95 % interval."""
    return f"{number(value.value, 3)} [{number(value.low, 3)}, {number(value.high, 3)}]"


def listed(values: Mapping[str, Any]) -> str:
    """Names with their values, in one line."""
    shown = {name: with_interval(v) if isinstance(v, Mean) else str(v) for name, v in values.items()}
    return "; ".join(f"{name}: {value}" for name, value in shown.items())


def _most(parts: Iterable[Part]) -> float:
    """The largest number of trials that a part needs; NaN where one has no interval."""
    return float(np.max([part.needed for part in parts]))


def _needed(interval: Mean, bounds: tuple[float, float]) -> float:
    """Trials after which the interval, which shrinks as 1/√K, would no longer hold a bound that it holds now."""
    shrink = 0.0
    for bound in (bound for bound in bounds if interval.low <= bound <= interval.high):
        way = bound - interval.value
        half = interval.high - interval.value if way > 0 else interval.value - interval.low
        shrink = max(shrink, math.inf if way == 0 else half / abs(way))
    return interval.trials * shrink**2
