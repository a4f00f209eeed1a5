"""Whether to trust an estimate: thresholds, declared here and nowhere else, and a verdict with its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis.diagnostics import MIN_POSITIVES, Diagnostics
from moac.offline.ncis.estimates import Estimate
from moac.offline.ncis.exposure import Agreement
from moac.offline.ncis.sweep import Flip

Level = Literal["trusted", "with care", "not trusted"]


@final
@dataclass(frozen=True)
class Limit:
    """A number of `Diagnostics`, where it asks for care, and where it forbids trust: at or beyond either.

    Attributes:
        measure: its name there.
        text: what it is.
        care, stop: the two limits; it is low numbers that are bad where `stop` is below `care`.
    """

    measure: str
    text: str
    care: float
    stop: float


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
"""Only where its interval leaves 1 out as well."""


@final
@dataclass(frozen=True)
class Reason:
    """Why an estimate is not simply trusted.

    Attributes:
        measure: what was looked at.
        level: how grave it is: `with care` or `not trusted`.
        text: in words, with the number.
        number: that decided; None where there is none.
        limit: that it passed.
    """

    measure: str
    level: Level
    text: str
    number: float | None = None
    limit: float | None = None


@final
@dataclass(frozen=True)
class Verdict:
    """`trusted`, `with care` or `not trusted`, by the worst of the reasons; trusted has none."""

    level: Level
    reasons: tuple[Reason, ...]


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """All that a verdict on one policy looks at.

    Attributes:
        signals: names.
        diagnostics: of each training seed; the worst one counts.
        estimate: by NCIS.
        opinions: by name, SNIPS and doubly robust.
        flips: of this policy.
        agreement: with random exposure, if there is any.
    """

    signals: tuple[str, ...]
    diagnostics: tuple[Diagnostics, ...]
    estimate: Estimate
    opinions: dict[str, Estimate]
    flips: tuple[Flip, ...]
    agreement: Agreement | None

    @property
    def positives(self) -> Float[np.ndarray, " M"]:
        """Weighted, of the worst seed."""
        return np.min([one.positives for one in self.diagnostics], axis=0)

    @property
    def estimable(self) -> Bool[np.ndarray, " M"]:
        """Enough of them."""
        return self.positives >= MIN_POSITIVES


def verdict(evidence: Evidence) -> Verdict:
    """The reasons, the gravest first."""
    found = [*_weights(evidence.diagnostics), *_mean_weight(evidence.diagnostics), *_support(evidence.estimate)]
    found += [*_positives(evidence), *_opinions(evidence), *_flips(evidence), *_exposure(evidence)]
    found.sort(key=lambda reason: reason.level == "with care")
    return Verdict(found[0].level if found else "trusted", tuple(found))


def _weights(diagnostics: Sequence[Diagnostics]) -> Iterator[Reason]:
    for limit in LIMITS:
        numbers = [getattr(one, limit.measure) for one in diagnostics]
        yield from _against(limit, min(numbers) if limit.stop < limit.care else max(numbers))


def _mean_weight(diagnostics: Sequence[Diagnostics]) -> Iterator[Reason]:
    off = [one for one in diagnostics if not one.mean_weight_interval[0] <= 1 <= one.mean_weight_interval[1]]
    if off:
        yield from _against(MEAN_WEIGHT, max(abs(one.mean_weight - 1) for one in off))


def _support(estimate: Estimate) -> Iterator[Reason]:
    if np.isnan(estimate.interval).any():
        yield Reason("support", "not trusted", "some draws of users take none of the policy's actions: no interval")


def _positives(evidence: Evidence) -> Iterator[Reason]:
    fewest, few = evidence.positives, np.flatnonzero(~evidence.estimable)
    for k in few:
        level: Level = "not trusted" if len(few) == len(fewest) else "with care"
        text = f"{evidence.signals[k]} is not estimable: {fewest[k]:.1f} weighted positives, below {MIN_POSITIVES}"
        yield Reason("weighted_positives", level, text, float(fewest[k]), MIN_POSITIVES)


def _opinions(evidence: Evidence) -> Iterator[Reason]:
    low, high = evidence.estimate.interval.T
    for name, other in evidence.opinions.items():
        for k in np.flatnonzero((other.value < low) | (other.value > high)):
            text = f"{evidence.signals[k]}: {name} gives {other.value[k]:.4g}, outside [{low[k]:.4g}, {high[k]:.4g}]"
            yield Reason(name, "with care", text, float(other.value[k]))


def _flips(evidence: Evidence) -> Iterator[Reason]:
    for flip in evidence.flips:
        if flip.separated:
            yield Reason("cap_sweep", "with care", str(flip))


def _exposure(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.agreement
    if found is None:
        return
    for k in np.flatnonzero(~found.agrees):
        text = f"{evidence.signals[k]}: off random exposure's value by {found.difference[k]:.4g}, which is not chance"
        yield Reason("random_exposure", "not trusted", text, float(found.difference[k]))
    if not found.checked.any():
        yield Reason("random_exposure", "with care", "random exposure has too few positives to check any signal")


def _against(limit: Limit, number: Any) -> Iterator[Reason]:
    low = limit.stop < limit.care
    bounds: tuple[tuple[Level, float], ...] = (("not trusted", limit.stop), ("with care", limit.care))
    for level, bound in bounds:
        if number <= bound if low else number >= bound:
            text = f"{limit.text}: {number:.3g}, {'not above' if low else 'not below'} {bound:g}"
            yield Reason(limit.measure, level, text, float(number), bound)
            return
