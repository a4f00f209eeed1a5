"""How far a policy is from Pareto-stationary, with an interval, from its episodes alone: no learning, no critic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import files, locks, memory
from moac.arguments import checked
from moac.choices import CONFIDENCE, SEED, Range, at_least, check_fields
from moac.config import Discounted
from moac.policies.observations import LogSpec
from moac.theory.episodes import SPLIT, sampler, users
from moac.theory.gap import Interval, Look
from moac.theory.scores import Scores
from moac.training import needs
from moac.training.trained import TrainedPolicy
from moac.types import Source

FEWEST = 80
"""The smallest number of episodes that a certificate is computed from."""
SATURATED = 1e-3
"""A policy that takes an action less often than this may be stationary for that reason alone."""
FILE = "certificate.json"
SHORT = ("low", "high", "confidence", "metric")
"""The fields of a certificate that the summary of its run shows."""
_NOT_THE_WORLD = "it certifies the gradient of that estimate, not that of the real system"
_MOST_LOOKS = 12
_BATCH = 1000  # episodes that are sampled between two signs of progress
Show = Callable[[str, int, int], Any]
"""Called with what is sampled, how many are done, and of how many."""


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
    preference: tuple[float, ...] | None = None  # that the policy acts for, where it is conditioned on one
    # of a network that is conditioned, one for each preference of a grid; the rest is of the one with the largest gap
    each: tuple[Certificate, ...] = ()
    evaluation_steps: int = 0  # environment steps that its episodes took, those of the untrained policy included

    def __repr__(self) -> str:
        return f"Certificate(gap in [{self.low:.3g}, {self.high:.3g}], {self.episodes} episodes)"

    @property
    def sentence(self) -> str:
        """The certificate as a sentence."""
        sure, slope = f"With {100 * self.confidence:g} % confidence", f"{math.sqrt(self.high):.2g} per unit step in θ"
        if self.each:
            sure += f", for each of {len(self.each)} preferences"
        return f"{sure}, no direction improves every objective by more than {slope}."

    @property
    def warning(self) -> str | None:
        """What the certificate does not imply where the policy is saturated; None where it is not."""
        if self.rarest >= SATURATED:
            return None
        return (
            f"In a visited state some action has probability {self.rarest:.1g}: a saturated softmax is stationary, "
            "however bad it is. That no direction in θ improves does not mean that no policy does."
        )

    def record(self) -> dict[str, Any]:
        """The certificate as plain data."""
        natural = {"metric": "fisher", "zeta": self.zeta, **vars(self.natural)}
        rest = {"natural": natural, "untrained": self.untrained and vars(self.untrained)}
        rest |= {"each": [each.record() for each in self.each], "sentence": self.sentence, "warning": self.warning}
        return {"metric": "theta", **{name: value for name, value in vars(self).items() if name != "zeta"}, **rest}

    def save(self, directory: str | Path) -> Path:
        """Write certificate.json into a folder, beside those of other trials."""
        folder = Path(directory)
        with files.making(folder), locks.held(folder / f".{FILE}.lock", folder / FILE):
            known = read(folder) | {self.trial: self.record()}
            files.write_json(folder / FILE, {"certificates": [known[trial] for trial in sorted(known)]})
        return folder


def steps_taken(folder: Path) -> int:
    """Environment steps of the episodes behind all certificates in a folder."""
    return sum(int(each.get("evaluation_steps") or 0) for each in read(folder).values())


def read(folder: Path) -> dict[int, dict[str, Any]]:
    """The certificates in a folder by their trials, as plain data; none where there is no file."""
    path = folder / FILE
    if not path.exists():
        return {}
    data = files.read_json(path)
    with files.interpreting(path):
        known = {int(each["trial"]): dict(each) for each in data["certificates"]}
        for each in known.values():
            for end in (each["low"], each["high"], each["natural"]["low"], each["natural"]["high"], *each["norms"]):
                float("inf" if end is None else end)
        return known


@checked
@dataclass(frozen=True)
class Plan:
    """The number of episodes, and which intervals to compute."""

    episodes: int = 2000  # of one look, or of the first; on a log, validation users
    confidence: float = 0.95  # of each interval
    # go on, each time with twice the episodes, until the gap is known to be below or above this; None looks once
    until: float | None = None
    seed: int = 0  # of the episodes
    untrained: bool = True  # whether the policy that training began with stands beside it
    # of networks that are conditioned: how many on a grid, or vectors [N, M]
    preferences: int | str | Sequence[Sequence[float]] = 6

    def __post_init__(self) -> None:
        above = Range("above 0", lambda x: x > 0)
        check_fields(self, {"episodes": at_least(FEWEST, int), "confidence": CONFIDENCE, "until": above, "seed": SEED})

    def on(self, source: Source) -> Plan:
        """The plan for a source: a log has no more episodes than users, and no second look."""
        if not isinstance(source.spec.observations, LogSpec):
            memory.check([needs.of_episodes(self.episodes)])
            return self
        count = len(users(source))
        if count < FEWEST:
            raise ValueError(f"the log must have at least {FEWEST} {SPLIT} users to certify with, got {count}.")
        if self.until is not None:
            raise ValueError(f"`until` must be left out on a log, whose number of users is fixed, got {self.until}.")
        return replace(self, episodes=min(self.episodes, count))

    def levels(self) -> Iterator[tuple[int, float]]:
        """Episodes and α of each look: Σ 1/(k(k + 1)) = 1, so that all looks together hold at the confidence."""
        alpha = 1 - self.confidence
        if self.until is None:
            return iter([(self.episodes, alpha)])
        return ((self.episodes << (k - 1), alpha / (k * (k + 1))) for k in range(1, _MOST_LOOKS + 1))


@dataclass(frozen=True, eq=False)
class Subject:
    """A policy on a model, an environment or a log."""

    source: Source
    trained: TrainedPolicy
    untrained: TrainedPolicy | None = None  # that training began with, to stand beside it
    cap: float = 10.0  # of importance ratios on a log

    def __post_init__(self) -> None:
        _ = self.gamma  # raises for the average setting before anything is compiled

    @property
    def gamma(self) -> tuple[float, ...]:
        """γ, one per objective; a ValueError in the average setting."""
        if not isinstance(self.trained.setting, Discounted):
            raise ValueError("`setting` must be discounted: there is no certificate for average rewards yet.")
        return self.trained.setting.discounts(self.source.spec.num_objectives)

    def at(self, preference: Any) -> Subject:
        """The same for one preference, of networks that are conditioned on it."""
        untrained = None if self.untrained is None else self.untrained.at(preference)
        return replace(self, trained=self.trained.at(preference), untrained=untrained)

    def objective(self, cut: float) -> str:
        """What Jⁱ is, in words, where a time limit ends a share of the episodes."""
        words = f"discounted return, γ = {', '.join(f'{value:g}' for value in dict.fromkeys(self.gamma))}"
        if isinstance(self.source.spec.observations, LogSpec):
            words += f", as training on the log estimates it, here over {SPLIT} users: {_NOT_THE_WORLD}"
        return words + (f", in episodes of which a time limit ends {100 * cut:.2g} %" if cut > 0 else "")

    def looks(self, plan: Plan, show: Show) -> Iterator[tuple[Look, float]]:
        """The episodes so far, each time more of them, and the α of the look."""
        scores, gamma, episodes = Scores(self.trained.policy, self.trained.trial_theta), self.gamma, None
        sample = sampler(self.source, self.trained, gamma, plan.seed, self.cap)
        for count, alpha in plan.levels():
            for at in range(0 if episodes is None else episodes.count, count, _BATCH):
                show("episodes", at, count)
                more = sample(at, min(_BATCH, count - at))
                episodes = more if episodes is None else episodes.joined(more)
            if episodes is not None:
                yield Look(scores, episodes, gamma, self.source.spec.reward_bound), alpha


def certify(subject: Subject, plan: Plan, preferences: Any = (), show: Show = lambda *_: None) -> Certificate:
    """The certificate of a policy, or for each of some preferences; Ctrl-C keeps the last look that was finished.

    Preferences share α evenly, so that all their intervals hold together, and the largest gap is between their largest
    ends.
    """
    plan = plan.on(subject.source)
    if not len(preferences):
        return _of_policy(subject, plan, show)
    one = replace(plan, confidence=1 - (1 - plan.confidence) / len(preferences))
    each = tuple(_of_policy(subject.at(p), one, show) for p in preferences)
    low, rarest = max(c.low for c in each), min(c.rarest for c in each)
    natural = replace(max((c.natural for c in each), key=lambda c: c.high), low=max(c.natural.low for c in each))
    worst = max(each, key=lambda c: c.high)
    steps = sum(c.evaluation_steps for c in each)
    joint: dict[str, Any] = {"low": low, "natural": natural, "rarest": rarest, "confidence": plan.confidence}
    return replace(worst, **joint, each=each, evaluation_steps=steps)


def _of_policy(subject: Subject, plan: Plan, show: Show) -> Certificate:
    """Look by look: λ and d come from earlier episodes, so that the interval holds for what was fixed before."""
    looks = subject.looks(plan, show)
    look, alpha = next(looks)
    certificate = _of_look(subject, look, alpha, plan)
    try:
        while plan.until is not None and certificate.low <= plan.until < certificate.high:
            more = next(looks, None)
            if more is None:
                break
            look, alpha = more
            certificate = _of_look(subject, look, alpha, plan, certificate.looks)
        if subject.untrained is None:
            return certificate
        once = replace(plan, episodes=certificate.episodes, until=None)
        reference, level = next(replace(subject, trained=subject.untrained).looks(once, show))
        ours, theirs = look.theta.interval(alpha / 2), reference.theta.interval(level / 2)  # the ratio needs both
        ratio = _divided(ours.low, theirs.high), _divided(ours.high, theirs.low)
        steps = certificate.evaluation_steps + reference.episodes.env_steps
        beside = {"untrained": reference.theta.interval(level), "ratio": ratio}
        return replace(certificate, **beside, evaluation_steps=steps)
    except KeyboardInterrupt:
        return certificate


def _of_look(subject: Subject, look: Look, alpha: float, plan: Plan, earlier: Any = ()) -> Certificate:
    interval, episodes, trained = look.theta.interval(alpha), look.episodes, subject.trained
    return Certificate(
        interval.low,
        interval.high,
        interval.weights,
        look.norms,
        plan.confidence,
        episodes.count,
        subject.objective(float(episodes.cut.sum()) / episodes.count),
        subject.source.spec.objective_names,
        float(episodes.rarest.min()),
        look.natural.interval(alpha),
        look.metric.zeta,
        looks=(*earlier, (episodes.count, interval.low, interval.high)),
        trial=trained.trial,
        preference=trained.preference,
        evaluation_steps=episodes.env_steps,
    )


def _divided(a: float, b: float) -> float:
    return a / b if b > 0 else math.inf if a > 0 else math.nan
