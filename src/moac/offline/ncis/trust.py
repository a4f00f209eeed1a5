"""Whether an estimate may be read: diagnostics of its weights, all limits in one table, a verdict with its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis import estimates, limits
from moac.offline.ncis.checks import Checks, Controlled
from moac.offline.ncis.estimates import Estimate
from moac.offline.ncis.limits import BALANCE, MIN_POSITIVES, PARETO_K, Limit
from moac.offline.ncis.sums import Sums

Level = Literal["trusted", "with care", "not trusted"]
LEVELS: tuple[Level, ...] = ("trusted", "with care", "not trusted")
_SINGLE = 1e-6  # numbers in single precision that differ by such a share are the same


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What the weights of one policy leave of a log, under the cap in use."""

    rows: int  # of the log
    users: int
    row_effective_size: float  # (Σ w)² / Σ w² over rows (Kish)
    row_effective_share: float  # of the rows
    user_effective_size: float  # the same over users, with w summed over each user's rows
    user_effective_share: float  # of what the log itself has, where every row weighs 1
    largest_row_share: float  # max w / Σ w
    largest_user_share: float  # the same over users
    capped_share: float  # of rows with π/π_b > c
    retained_mass: float  # Σ min(c, π/π_b) / Σ π/π_b
    # Σ (π/π_b) / N without a cap: 1 on average where propensities are right and π takes no action that the log cannot
    mean_weight: float
    mean_weight_interval: Float[np.ndarray, " 2"]  # over users
    events: Float[np.ndarray, " M"]  # rows on which a signal is not 0
    weighted_positives: Float[np.ndarray, " M"]  # Σ w over them
    effective_positives: Float[np.ndarray, " M"]  # (Σ w)² / Σ w² over them
    # √Σ w²(r − V)² / Σ w, were rows independent. They are not: compare it with the interval.
    row_standard_error: Float[np.ndarray, " M"]

    @property
    def positives(self) -> Float[np.ndarray, " M"]:
        """The smaller of both counts of weighted positives: what `MIN_POSITIVES` is asked of."""
        return np.minimum(self.weighted_positives, self.effective_positives)


def diagnose(one: Sums, mean_weight: Float[np.ndarray, " B"], at: int, level: float) -> Diagnostics:
    """Diagnostics from the sums of one policy and draws of its mean weight, with the cap at place `at`."""
    w, n = one.weight[:, at], one.count
    total, rows = w.sum(), n.sum()
    events, positive, square = one.positives.sum(axis=0)
    by_row, by_user = total**2 / one.square.sum(), _kish(w)
    V, (w2r, w2r2) = one.values[at], one.square_reward.sum(axis=0)
    residual = np.maximum(w2r2 - 2 * V * w2r + V**2 * one.square.sum(), 0.0)  # Σ w²(r − V)²
    return Diagnostics(
        rows=int(rows),
        users=len(n),
        row_effective_size=float(by_row),
        row_effective_share=float(by_row / rows),
        user_effective_size=by_user,
        user_effective_share=by_user / _kish(n),
        largest_row_share=float(one.largest.max() / total),
        largest_user_share=float(w.max() / total),
        capped_share=float(one.capped.sum() / rows),
        retained_mass=float(total / one.raw.sum()),
        mean_weight=float(one.raw.sum() / rows),
        mean_weight_interval=estimates.interval(mean_weight, level),
        events=events,
        weighted_positives=positive,
        effective_positives=np.divide(positive**2, square, out=np.zeros_like(square), where=square > 0),
        row_standard_error=np.sqrt(residual) / total,
    )


def _kish(w: Float[np.ndarray, " n"]) -> float:
    return float(w.sum() ** 2 / (w**2).sum())


def estimable(seeds: Sequence[Diagnostics]) -> Bool[np.ndarray, " M"]:
    """Whether every training seed has enough positives."""
    return np.min([one.positives for one in seeds], axis=0) >= MIN_POSITIVES


@dataclass(frozen=True)
class Reason:
    """Why an estimate is not simply trusted."""

    measure: str  # what was looked at
    level: Level  # how grave it is: `with care` or `not trusted`
    text: str  # in words, with the number
    number: float | None = None  # that decided; None where there is none
    limit: float | None = None  # that it passed
    signal: str | None = None  # that it is about alone; None where it is about all of them


@dataclass(frozen=True)
class Verdict:
    """`trusted`, `with care` or `not trusted`; trusted has no reasons."""

    level: Level  # by what is about all signals; at least `with care` where one is not trusted for its own sake
    reasons: tuple[Reason, ...]  # the gravest first; of these first what is about all signals

    def of(self, signal: str) -> Level:
        """The word on one signal: by what is about all of them and what is about it."""
        mine = (reason for reason in self.reasons if reason.signal in (None, signal))
        return LEVELS[max((LEVELS.index(reason.level) for reason in mine), default=0)]


def verdict(
    signals: tuple[str, ...],
    diagnostics: Sequence[Diagnostics],
    estimate: Estimate,
    opinions: Mapping[str, Estimate],
    checks: Checks | None,
) -> Verdict:
    """The verdict on one policy; of the diagnostics the worst training seed counts.

    `opinions` are second ones by name, SNIPS and doubly robust. The policy that made the log needs no checks.
    """
    reasons = [*_of_weights(diagnostics)]
    if np.isnan(estimate.interval).any():
        why = "some bootstrap samples have none of the policy's actions: no interval"
        reasons.append(Reason("support", "not trusted", why))
    reasons += [*_of_positives(signals, diagnostics), *_of_opinions(signals, estimate, opinions)]
    far = [max(abs(one.mean_weight - 1), 1 - one.row_effective_share) for one in diagnostics]
    if not all(each < _SINGLE for each in far):  # else all weights are 1, those of the policy that made the log
        reasons += _of_controls(signals, checks)
        reasons += () if checks is None else (*_of_balance(checks), *_of_tails(signals, checks))
    reasons.sort(key=lambda reason: (reason.level == "with care", reason.signal is not None))
    found = Verdict("trusted", tuple(reasons))
    by_signal = [LEVELS.index(found.of(signal)) for signal in signals]
    level = max(min(by_signal), 1 if max(by_signal) else 0)
    return Verdict(LEVELS[level], found.reasons)


def _of_weights(diagnostics: Sequence[Diagnostics]) -> Iterator[Reason]:
    for limit in limits.WEIGHT_LIMITS:
        numbers = [getattr(one, limit.measure) for one in diagnostics]
        yield from _against(limit, min(numbers) if limit.stop < limit.care else max(numbers))
    off = [one for one in diagnostics if not one.mean_weight_interval[0] <= 1 <= one.mean_weight_interval[1]]
    if off:
        yield from _against(limits.MEAN_WEIGHT, max(abs(one.mean_weight - 1) for one in off))


def _of_positives(signals: tuple[str, ...], diagnostics: Sequence[Diagnostics]) -> Iterator[Reason]:
    fewest = np.min([one.positives for one in diagnostics], axis=0)
    for k in np.flatnonzero(~estimable(diagnostics)):
        text = f"{signals[k]} is not estimable: {fewest[k]:.1f} weighted positives, below {MIN_POSITIVES}"
        yield Reason("weighted_positives", "not trusted", text, float(fewest[k]), MIN_POSITIVES, signals[k])


def _of_opinions(signals: tuple[str, ...], estimate: Estimate, opinions: Mapping[str, Estimate]) -> Iterator[Reason]:
    low, high = estimate.interval.T
    same = _SINGLE * np.abs(estimate.value)  # a reward model is in single precision
    for name, other in opinions.items():
        for k in np.flatnonzero((other.value < low - same) | (other.value > high + same)):
            text = f"{signals[k]}: {name} gives {other.value[k]:.4g}, outside [{low[k]:.4g}, {high[k]:.4g}]"
            yield Reason(name, "with care", text, float(other.value[k]), signal=signals[k])


def _of_controls(signals: tuple[str, ...], checks: Checks | None) -> Iterator[Reason]:
    """What may not change must not; and where nothing could have shown it, the estimate is not simply trusted."""
    half_width = np.zeros(len(signals)) if checks is None else checks.half_width
    powers = [(one, power(one, signals, half_width)) for one in (() if checks is None else checks.controls)]
    if all(why is not None for one, why in powers if not one.soft):
        told = "; ".join(f"{one.name}: {why}" for one, why in powers if not one.soft)
        text = f"no control has power{f' ({told})' if told else ''}: no check could have refuted the estimate"
        yield Reason("control", "with care", text)
    for one in (one for one, why in powers if why is None):
        yield from _of_control(one, signals, half_width)


def power(control: Controlled, signals: tuple[str, ...], half_width: Any) -> str | None:
    """Why a control could not show a bias that matters; None where it could, for some signal."""
    if control.no_power is not None:
        return control.no_power
    widths = np.diff(control.interval)[:, 0] / 2
    if not control.relative:
        return None if np.isfinite(widths).any() else "it does not vary"
    held = np.array([half_width[signals.index(column)] for column in control.columns])
    if (widths <= limits.WEAK * held).any():
        return None
    return f"its intervals are more than {limits.WEAK:g} times as wide as those of the signals"


def _of_control(control: Controlled, signals: tuple[str, ...], half_width: Any) -> Iterator[Reason]:
    for j, column in enumerate(control.columns):
        if not control.p[j] < limits.CHANCE:
            continue
        low, high = control.interval[j]
        if control.relative:
            size, limit = abs(control.change[j]) / half_width[signals.index(column)], limits.CONTROL
            what = f"{control.name} of {column} change by {control.change[j]:+.1%} [{low:+.1%}, {high:+.1%}]"
        else:
            size, limit = abs(control.change[j]), BALANCE
            what = f"{column} changes by {control.change[j]:+.3f} [{low:+.3f}, {high:+.3f}] standard deviations"
        level: Level = "not trusted" if size >= limit.stop and not control.soft else "with care"
        if size >= limit.care:
            why = "which the policy can hardly have caused" if control.soft else "which a policy cannot cause"
            yield Reason("control", level, f"{what}, {why}", float(size), limit.stop)


def _of_balance(checks: Checks) -> Iterator[Reason]:
    if checks.balance is None or not checks.balance.off.any():
        return
    at = int(np.argmax(np.where(checks.balance.off, np.abs(checks.balance.difference), 0)))
    named = f"{BALANCE.text}, {checks.balance.names[at]}"
    yield from _against(BALANCE, abs(checks.balance.difference[at]), named)


def _of_tails(signals: tuple[str, ...], checks: Checks) -> Iterator[Reason]:
    for signal, k in zip(signals, checks.tails.pareto_k, strict=True):
        yield from _against(PARETO_K, k, f"{signal}: {PARETO_K.text}", signal)


def _against(limit: Limit, number: Any, text: str | None = None, signal: str | None = None) -> Iterator[Reason]:
    low = limit.stop < limit.care
    bounds: tuple[tuple[Level, float], ...] = (("not trusted", limit.stop), ("with care", limit.care))
    for level, bound in bounds:
        if number <= bound if low else number >= bound:
            told = f"{text or limit.text}: {number:.3g}, required: {'above' if low else 'below'} {bound:g}"
            yield Reason(limit.measure, level, told, float(number), bound, signal)
            return
