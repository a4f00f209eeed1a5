"""Whether to trust an estimate: diagnostics, agreement with random exposure, limits, and a verdict with its reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis import estimates
from moac.offline.ncis.estimates import Drawn, Estimate, Flip
from moac.offline.ncis.sums import Options, Shard, Sums

Level = Literal["trusted", "with care", "not trusted"]
MIN_POSITIVES = 50
"""Fewer of them, and a signal counts as not estimable."""


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
        row_standard_error=_row_error(one, at),
    )


def _kish(w: Float[np.ndarray, " n"]) -> float:
    return float(w.sum() ** 2 / (w**2).sum())


def _row_error(one: Sums, at: int) -> Float[np.ndarray, " M"]:
    V, (w2r, w2r2) = one.values[at], one.square_reward.sum(axis=0)
    squares = w2r2 - 2 * V * w2r + V**2 * one.square.sum()
    return np.sqrt(np.maximum(squares, 0.0)) / one.weight[:, at].sum()


def estimable(seeds: Sequence[Diagnostics]) -> Bool[np.ndarray, " M"]:
    """Whether every training seed has enough positives."""
    return np.min([one.positives for one in seeds], axis=0) >= MIN_POSITIVES


@dataclass(frozen=True, eq=False)
class Agreement:
    """One policy's estimate on the log beside that on random exposure, whose propensities nobody had to estimate."""

    estimate: Estimate  # on random exposure, where no cap is used
    diagnostics: Diagnostics  # of it, for the first training seed
    difference: Float[np.ndarray, " M"]  # on the log minus on random exposure
    # Users of the two logs are drawn independently: wide rather than narrow, if they are the same people.
    difference_interval: Float[np.ndarray, "M 2"]
    holm: Float[np.ndarray, " M"]  # p-values of the difference, adjusted for M signals
    checked: Bool[np.ndarray, " M"]  # random exposure has enough positives to say
    agrees: Bool[np.ndarray, " M"]  # `holm` is not below 1 − level, where checked


def uncapped(options: Options) -> Options:
    """For random exposure: propensities are known, and a cap would only add bias."""
    return replace(options, cap=math.inf, caps=(math.inf,))


def agreement(drawn: Mapping[str, Drawn], at: int, random: Shard, options: Options) -> dict[str, Agreement]:
    """Agreement of each policy that both logs have; `random` was accumulated with `uncapped(options)`."""
    names = [name for name in drawn if name in random.policies]
    if not names or random.cap != math.inf:
        raise ValueError("random exposure must have some of the log's policies, accumulated with `uncapped(options)`.")
    if any(each.value.shape[1] != len(random.signal_names) for each in drawn.values()):
        raise ValueError(f"random exposure must have the log's signals, got {', '.join(random.signal_names)}.")
    random.check_support()
    there = estimates.draw(random, replace(uncapped(options), seed=options.seed + 1))
    return {name: _compared(drawn[name], at, there[name], random.policies[name][0], options.level) for name in names}


def _compared(drawn: Drawn, at: int, random: Drawn, random_sums: Sums, level: float) -> Agreement:
    draws = drawn.draws[:, at] - random.draws[:, -1]
    adjusted = estimates.holm(estimates.p_value(draws))
    diagnostics = diagnose(random_sums, random.mean_weight[0], -1, level)
    checked = estimable([diagnostics])
    return Agreement(
        estimate=random.estimate(-1, level),
        diagnostics=diagnostics,
        difference=drawn.value[at] - random.value[-1],
        difference_interval=estimates.interval(draws, level),
        holm=adjusted,
        checked=checked,
        agrees=~checked | (adjusted >= 1 - level),
    )


@dataclass(frozen=True)
class Limit:
    """A number of `Diagnostics`, where it asks for care, and where it forbids trust: at or beyond either."""

    measure: str  # its name there
    text: str
    care: float
    stop: float  # low numbers are bad where it is below `care`


LIMITS = (
    Limit("row_effective_size", "effective number of rows", care=1000, stop=100),
    Limit("row_effective_share", "effective share of rows", care=0.1, stop=0.01),
    Limit("user_effective_size", "effective number of users", care=200, stop=50),
    Limit("largest_row_share", "share of the heaviest row in all weight", care=0.01, stop=0.05),
    Limit("largest_user_share", "share of the heaviest user in all weight", care=0.05, stop=0.2),
    Limit("capped_share", "share of rows that the cap touches", care=0.05, stop=0.5),
    Limit("retained_mass", "share of the weights that the cap leaves", care=0.9, stop=0.5),
)
MEAN_WEIGHT = Limit("mean_weight", "distance of the mean uncapped weight from 1", care=0.05, stop=0.2)
"""It counts only where its interval leaves 1 out as well."""


@dataclass(frozen=True)
class Reason:
    """Why an estimate is not simply trusted."""

    measure: str  # what was looked at
    level: Level  # how grave it is: `with care` or `not trusted`
    text: str  # in words, with the number
    number: float | None = None  # that decided; None where there is none
    limit: float | None = None  # that it passed


@dataclass(frozen=True)
class Verdict:
    """`trusted`, `with care` or `not trusted`, by the worst of the reasons; trusted has none."""

    level: Level
    reasons: tuple[Reason, ...]


def verdict(
    signals: tuple[str, ...],
    diagnostics: Sequence[Diagnostics],
    estimate: Estimate,
    opinions: Mapping[str, Estimate],
    flips: Sequence[Flip] = (),
    agreement: Agreement | None = None,
) -> Verdict:
    """The verdict on one policy, with the gravest reasons first.

    Of the diagnostics the worst training seed counts, of the flips those of pairs that some cap tells apart;
    `opinions` are second ones by name, SNIPS and doubly robust.
    """
    reasons = [*_of_weights(diagnostics), *_of_support(estimate), *_of_positives(signals, diagnostics)]
    reasons += _of_opinions(signals, estimate, opinions)
    reasons += [Reason("cap_sweep", "with care", str(flip)) for flip in flips if flip.separated]
    reasons += [] if agreement is None else _of_exposure(signals, agreement)
    reasons.sort(key=lambda reason: reason.level == "with care")
    return Verdict(reasons[0].level if reasons else "trusted", tuple(reasons))


def _of_weights(diagnostics: Sequence[Diagnostics]) -> Iterator[Reason]:
    for limit in LIMITS:
        numbers = [getattr(one, limit.measure) for one in diagnostics]
        yield from _against(limit, min(numbers) if limit.stop < limit.care else max(numbers))
    off = [one for one in diagnostics if not one.mean_weight_interval[0] <= 1 <= one.mean_weight_interval[1]]
    if off:
        yield from _against(MEAN_WEIGHT, max(abs(one.mean_weight - 1) for one in off))


def _of_support(estimate: Estimate) -> Iterator[Reason]:
    if np.isnan(estimate.interval).any():
        yield Reason("support", "not trusted", "some draws of users take none of the policy's actions: no interval")


def _of_positives(signals: tuple[str, ...], diagnostics: Sequence[Diagnostics]) -> Iterator[Reason]:
    fewest, few = np.min([one.positives for one in diagnostics], axis=0), np.flatnonzero(~estimable(diagnostics))
    level: Level = "not trusted" if len(few) == len(fewest) else "with care"
    for k in few:
        text = f"{signals[k]} is not estimable: {fewest[k]:.1f} weighted positives, below {MIN_POSITIVES}"
        yield Reason("weighted_positives", level, text, float(fewest[k]), MIN_POSITIVES)


def _of_opinions(signals: tuple[str, ...], estimate: Estimate, opinions: Mapping[str, Estimate]) -> Iterator[Reason]:
    low, high = estimate.interval.T
    for name, other in opinions.items():
        for k in np.flatnonzero((other.value < low) | (other.value > high)):
            text = f"{signals[k]}: {name} gives {other.value[k]:.4g}, outside [{low[k]:.4g}, {high[k]:.4g}]"
            yield Reason(name, "with care", text, float(other.value[k]))


def _of_exposure(signals: tuple[str, ...], agreement: Agreement) -> Iterator[Reason]:
    for k in np.flatnonzero(~agreement.agrees):
        difference = float(agreement.difference[k])
        text = f"{signals[k]}: off random exposure's value by {difference:.4g}, which is not chance"
        yield Reason("random_exposure", "not trusted", text, difference)
    if not agreement.checked.any():
        yield Reason("random_exposure", "with care", "random exposure has too few positives to check any signal")


def _against(limit: Limit, number: Any) -> Iterator[Reason]:
    low = limit.stop < limit.care
    bounds: tuple[tuple[Level, float], ...] = (("not trusted", limit.stop), ("with care", limit.care))
    for level, bound in bounds:
        if number <= bound if low else number >= bound:
            text = f"{limit.text}: {number:.3g}, {'not above' if low else 'not below'} {bound:g}"
            yield Reason(limit.measure, level, text, float(number), bound)
            return
