"""How far a policy is from Pareto-stationary, with an interval, from its episodes alone.

No learning, no model, no critic is involved. `evidence` has what episodes say, `intervals` the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import files
from moac.config import Discounted
from moac.policies.observations import LogSpec
from moac.theory import logged
from moac.theory.episodes import Episodes, sampler
from moac.theory.evidence import Interval, Look
from moac.theory.scores import Scores
from moac.training.trained import TrainedPolicy
from moac.types import Source

FEWEST = 80
"""Episodes."""
SATURATED = 1e-3
"""A policy that takes an action less often than this may be stationary for that reason alone."""
FILE = "certificate.json"
SHORT = ("low", "high", "confidence", "metric")
"""What the summary of a run has of its certificate."""
_NOT_THE_WORLD = "it certifies the gradient of that estimate, not of the world"
_MOST_LOOKS = 12
_BATCH = 1000
"""Episodes that are sampled between two signs of progress."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """How far a policy is from Pareto-stationary, as an interval for the gap min over λ of ‖Σ λᵢ∇Jⁱ(θ)‖²."""

    low: float  # of the gap in θ
    high: float  # likewise
    weights: Float[np.ndarray, " M"]  # λ [M] that attains `high`
    norms: Float[np.ndarray, " M"]  # [M] estimates of ‖∇Jⁱ‖; 0 where noise hides it
    confidence: float  # of each interval
    episodes: int  # that it was computed from
    objective: str  # what Jⁱ is, in words
    objectives: tuple[str, ...]  # their names
    rarest: float  # smallest action probability in the visited states
    # the interval in the metric F̂ + ζI, which does not depend on how the policy is parametrised but for ζ
    natural: Interval
    zeta: float  # ζ
    # the interval in θ of the policy that training began with; None where it was not asked for
    untrained: Interval | None = None
    ratio: tuple[float, float] | None = None  # interval of the gap over that of the untrained policy; likewise
    looks: tuple[tuple[int, float, float], ...] = ()  # episodes, low and high of each look
    trial: int = 0  # of the run

    def __repr__(self) -> str:
        return f"Certificate(gap in [{self.low:.3g}, {self.high:.3g}], {self.episodes} episodes)"

    @property
    def sentence(self) -> str:
        """What it says, in plain words."""
        slope = f"{math.sqrt(self.high):.2g} per unit step in θ"
        return (
            f"With {100 * self.confidence:g} % confidence, no direction improves every objective by more than {slope}."
        )

    @property
    def warning(self) -> str | None:
        """What it does not say, where the policy is saturated."""
        if self.rarest >= SATURATED:
            return None
        return (
            f"In a visited state some action has probability {self.rarest:.1g}: a saturated softmax is stationary, "
            "however bad it is. That no direction in θ improves does not say that no policy does."
        )

    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        plain = {name: value for name, value in vars(self).items() if name not in ("natural", "zeta", "untrained")}
        natural = {"metric": "fisher", "zeta": self.zeta, **vars(self.natural)}
        rest = {"natural": natural, "untrained": self.untrained and vars(self.untrained)}
        return {"metric": "theta", **plain, **rest, "sentence": self.sentence, "warning": self.warning}

    def save(self, directory: str | Path) -> Path:
        """Write certificate.json into a folder, beside those of other trials."""
        folder = files.subfolder(Path(directory))
        known = read(folder) | {self.trial: self.record()}
        files.write_json(folder / FILE, {"certificates": [known[trial] for trial in sorted(known)]})
        return folder


def read(folder: Path) -> dict[int, dict[str, Any]]:
    """The certificates in a folder by their trials, as plain data; none where there is no file."""
    path = folder / FILE
    if not path.exists():
        return {}
    data = files.read_json(path)
    with files.interpreting(path):
        found = {int(each["trial"]): dict(each) for each in data["certificates"]}
        for each in found.values():
            for end in (each["low"], each["high"], each["natural"]["low"], each["natural"]["high"], *each["norms"]):
                float("inf" if end is None else end)
        return found


@dataclass(frozen=True)
class Plan:
    """How much is sampled, and what is asked for."""

    episodes: int = 2000  # of one look, or of the first
    confidence: float = 0.95  # of each interval
    # go on, each time with twice the episodes, until the gap is known to be below or above this; None looks once
    until: float | None = None
    seed: int = 0  # of the episodes
    cap: float = 10.0  # of importance ratios on a log

    def __post_init__(self) -> None:
        if not self.episodes >= FEWEST:
            raise ValueError(f"`episodes` must be at least {FEWEST}, got {self.episodes}.")
        if not 0 < self.confidence < 1:
            raise ValueError(f"`confidence` must be between 0 and 1, got {self.confidence}.")
        if self.until is not None and not self.until > 0:
            raise ValueError(f"`until` must be above 0, got {self.until}.")

    def levels(self) -> Iterator[tuple[int, float]]:
        """Episodes and α of each look: Σ 1/(k(k + 1)) = 1, so that all looks together hold at the confidence."""
        alpha = 1 - self.confidence
        if self.until is None:
            return iter([(self.episodes, alpha)])
        return ((self.episodes << (k - 1), alpha / (k * (k + 1))) for k in range(1, _MOST_LOOKS + 1))


@dataclass(frozen=True, eq=False)
class Subject:
    """A policy whose gap is asked for."""

    scores: Scores  # of the policy
    sample: Callable[[int, int], Episodes]  # (first, count) ↦ its episodes of these numbers
    name: str  # which policy it is, in words
    gamma: tuple[float, ...]  # γ, one per objective
    bound: float  # of rewards
    objectives: tuple[str, ...]  # their names
    objective: str  # what Jⁱ is, in words
    trial: int = 0  # of the run

    @classmethod
    def of(cls, source: Source, trained: TrainedPolicy, plan: Plan, name: str) -> Subject:
        """A trained policy on a model, an environment or a log; the average setting is refused."""
        if not isinstance(trained.setting, Discounted):
            raise ValueError("`setting` must be discounted: there is no certificate of average rewards yet.")
        spec = source.spec
        gamma, scores = trained.setting.discounts(spec.num_objectives), Scores(trained.policy, trained.trial_theta)
        words = f"discounted return, γ = {', '.join(f'{value:g}' for value in dict.fromkeys(gamma))}"
        if isinstance(spec.observations, LogSpec):
            sample = logged.sampler(source, trained, plan.cap, plan.seed)
            words += f", as training on the log estimates it, here over {logged.SPLIT} users: {_NOT_THE_WORLD}"
        else:
            sample = sampler(source, trained, gamma, plan.seed)
        return cls(scores, sample, name, gamma, spec.reward_bound, spec.objective_names, words, trained.trial)


def certify(
    subject: Subject, plan: Plan, untrained: Subject | None = None, show: Callable[[str, int, int], Any] | None = None
) -> Certificate:
    """The certificate of a policy, beside the untrained one's; Ctrl-C keeps the last look that was finished.

    In each look λ and d come from earlier episodes, so that the interval holds for what was fixed before.
    """
    progress = show or (lambda *_: None)
    certificate: Certificate | None = None
    seen: Look | None = None
    try:
        for count, alpha in plan.levels():
            seen = _look(subject, seen, count, progress)
            certificate = _certificate(subject, seen, alpha, plan, certificate)
            if plan.until is not None and not certificate.low <= plan.until < certificate.high:
                break
        if certificate is None or seen is None:
            raise ValueError("`plan` must have a look.")
        if untrained is not None:
            reference = _look(untrained, None, certificate.episodes, progress)
            certificate = _beside(certificate, seen, reference, plan)
    except KeyboardInterrupt:
        if certificate is None:
            raise
    return certificate


def _look(subject: Subject, earlier: Look | None, count: int, show: Callable[[str, int, int], Any]) -> Look:
    """The episodes so far and more of them, `count` in all."""
    episodes = None if earlier is None else earlier.episodes
    first = 0 if episodes is None else episodes.count
    for at in range(first, count, _BATCH):
        show(f"episodes of {subject.name}", at, count)
        more = subject.sample(at, min(_BATCH, count - at))
        episodes = more if episodes is None else episodes.joined(more)
    if episodes is None:
        raise ValueError(f"`episodes` must be at least {FEWEST}, got {count}.")
    return Look(subject.scores, episodes, subject.gamma, subject.bound)


def _certificate(subject: Subject, seen: Look, alpha: float, plan: Plan, earlier: Certificate | None) -> Certificate:
    interval, episodes = seen.theta.interval(alpha), seen.episodes
    cut = f", in episodes of which a time limit ends {100 * episodes.cut:.2g} %" if episodes.cut > 0 else ""
    return Certificate(
        interval.low,
        interval.high,
        interval.weights,
        seen.norms,
        plan.confidence,
        episodes.count,
        subject.objective + cut,
        subject.objectives,
        episodes.rarest,
        seen.natural.interval(alpha),
        seen.metric.zeta,
        trial=subject.trial,
        looks=(*(() if earlier is None else earlier.looks), (episodes.count, interval.low, interval.high)),
    )


def _beside(certificate: Certificate, seen: Look, reference: Look, plan: Plan) -> Certificate:
    """The same beside the untrained policy; the ratio takes half of α from each."""
    alpha = 1 - plan.confidence
    ours, theirs = seen.theta.interval(alpha / 2), reference.theta.interval(alpha / 2)
    if plan.until is not None:  # the last look is one of several
        ours = seen.theta.interval(alpha / (2 * len(certificate.looks) * (len(certificate.looks) + 1)))
    ratio = _divided(ours.low, theirs.high), _divided(ours.high, theirs.low)
    return replace(certificate, untrained=reference.theta.interval(alpha), ratio=ratio)


def _divided(a: float, b: float) -> float:
    return a / b if b > 0 else math.inf if a > 0 else math.nan
