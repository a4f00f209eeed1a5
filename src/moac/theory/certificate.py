"""How far a policy is from Pareto-stationary, with an interval, from its episodes alone.

An eighth of the episodes gives the baseline and the metric, a quarter λ and d, the rest bounds of what the others have
fixed (`intervals`). No learning, no model, no critic is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import files, simplex
from moac.config import Discounted
from moac.theory import intervals
from moac.theory.episodes import Baseline, Episodes, sampler
from moac.theory.scores import Metric, Scores
from moac.training.trained import TrainedPolicy
from moac.types import Source

GROUPS = 40
"""Means of so many groups of episodes are compared with each other; memory grows with groups × P."""
FEWEST = 80
"""Episodes."""
SATURATED = 1e-3
"""A policy that takes an action less often than this may be stationary for that reason alone."""
FILE = "certificate.json"
SHORT = ("low", "high", "confidence", "metric")
"""What the summary of a run has of its certificate."""
_MOST_LOOKS = 12
_BATCH = 1000
"""Episodes that are sampled between two signs of progress."""


@final
@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for the gap, and the λ that attains its upper end."""

    low: float
    high: float
    weights: Float[np.ndarray, " M"]


@final
@dataclass(frozen=True, eq=False)
class Certificate:
    """How far a policy is from Pareto-stationary, as an interval for the gap min over λ of ‖Σ λᵢ∇Jⁱ(θ)‖².

    Attributes:
        low: of the gap in θ.
        high: likewise.
        weights: λ [M] that attains `high`.
        norms: [M] estimates of ‖∇Jⁱ‖; 0 where noise hides it.
        confidence: of each interval.
        episodes: that it was computed from.
        objective: what Jⁱ is, in words.
        objectives: their names.
        rarest: smallest action probability in the visited states.
        natural: the interval in the metric F̂ + ζI, which does not depend on how the policy is parametrised but for ζ.
        zeta: ζ.
        untrained: the interval in θ of the policy that training began with; None where it was not asked for.
        ratio: interval of the gap over that of the untrained policy; likewise.
        looks: episodes, low and high of each look.
        trial: of the run.
    """

    low: float
    high: float
    weights: Float[np.ndarray, " M"]
    norms: Float[np.ndarray, " M"]
    confidence: float
    episodes: int
    objective: str
    objectives: tuple[str, ...]
    rarest: float
    natural: Interval
    zeta: float
    untrained: Interval | None = None
    ratio: tuple[float, float] | None = None
    looks: tuple[tuple[int, float, float], ...] = ()
    trial: int = 0

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
            "however bad it is. No direction in θ improves, which does not say that no policy does."
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


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """What episodes say of the gap in one metric, whatever the confidence.

    Attributes:
        weights: λ, chosen from other episodes.
        kernel: products of the means of groups of episodes of Σ λᵢ xⁱ.
        slopes: d·xⁱ of each episode, with d chosen from others.
        sizes: what each episode, also of those others, has to tell of each objective.
        reach: of one unit of size, in ‖g‖ and in d·g.
        bound: of rewards.
    """

    weights: Float[np.ndarray, " M"]
    kernel: Float[np.ndarray, "G G"]
    slopes: Float[np.ndarray, "n M"]
    sizes: Float[np.ndarray, "N M"]
    reach: tuple[float, float]
    bound: float

    def interval(self, alpha: float) -> Interval:
        """The interval at confidence 1 − α: both ends at α/2."""
        share, M = len(self.sizes) / len(self.slopes), len(self.weights)
        rare = intervals.unseen(self.sizes, alpha / 2, self.bound) * share * self.reach[0]
        high = intervals.upper(self.kernel, alpha / 2, float(rare @ self.weights))
        rare = intervals.unseen(self.sizes, alpha / 2 / M, self.bound) * share * self.reach[1]
        return Interval(min(intervals.lower(self.slopes, alpha / 2, rare), high), high, self.weights)


@final
@dataclass(frozen=True, eq=False)
class Look:
    """Some episodes in three parts: the first gives baseline and metric, the second λ and d, the last the bounds.

    Attributes:
        scores: of the policy.
        episodes: of the policy.
        gamma: γ, one per objective.
        bound: of rewards.
    """

    scores: Scores
    episodes: Episodes
    gamma: tuple[float, ...]
    bound: float

    @cached_property
    def metric(self) -> Metric:
        """F̂ + ζI, of the first part."""
        pilot = self._part(0)
        return Metric.of(self.scores, pilot.x, pilot.weight.max(axis=1) / pilot.count)

    @cached_property
    def theta(self) -> Evidence:
        """What they say of the gap in θ."""
        return self._evidence(lambda rows: rows, self.metric.trace)

    @cached_property
    def natural(self) -> Evidence:
        """What they say of it in the metric."""
        return self._evidence(self.metric.solve, self.metric.rank)

    @cached_property
    def norms(self) -> Float[np.ndarray, " M"]:
        """‖∇Jⁱ‖ by the products of two independent estimates; 0 where noise hides it."""
        first, second = self._gradients
        return np.sqrt(np.maximum((first * second).sum(axis=1), 0.0))

    @cached_property
    def _V(self) -> Baseline:
        return Baseline.of(self._part(0), self.gamma)

    @cached_property
    def _gradients(self) -> list[Float[np.ndarray, "M P"]]:
        """Of both halves of the second part."""
        part = self._part(1)
        halves = part.part(0, part.count // 2), part.part(part.count // 2, part.count)
        return [self.scores.total(half.x, half.advantages(self._V, self.gamma)) / half.count for half in halves]

    def _part(self, number: int) -> Episodes:
        edges = [self.episodes.count * eighths // 8 for eighths in (0, 1, 3, 8)]
        return self.episodes.part(edges[number], edges[number + 1])

    def _evidence(self, solve: Callable[[Any], Any], size: float) -> Evidence:
        """In the metric whose inverse `solve` applies; `size` is the squared length of an episode's scores in it."""
        G, bounding = np.mean(self._gradients, axis=0), self._part(2)
        raised = solve(G).astype(np.float64)
        lam, d = _chosen(G.astype(np.float64) @ raised.T, raised)
        A, psi = bounding.advantages(self._V, self.gamma), self.scores.slopes(bounding.x, d)
        along = bounding.per_episode(psi**2).mean()
        edges = np.linspace(0, bounding.count, min(GROUPS, bounding.count) + 1).astype(int)
        Y = self.scores.totals(bounding.x, A @ lam, np.searchsorted(bounding.number, edges)) / np.diff(edges)[:, None]
        kernel = Y.astype(np.float64) @ solve(Y).astype(np.float64).T
        sizes, reach = self.episodes.innovations(self._V, self.gamma), (math.sqrt(size), math.sqrt(along))
        slopes = bounding.per_episode(psi[:, None] * A)
        return Evidence(lam, (kernel + kernel.T) / 2, slopes, sizes, reach, self.bound)


def _chosen(gram: Float[np.ndarray, "M M"], raised: Any) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " P"]]:
    """λ of the min-norm point, and the direction d of length 1 towards it; 0 where there is none."""
    gram = (gram + gram.T) / 2
    scale = float(np.abs(gram).max())
    if not scale > 0:
        return np.full(len(gram), 1 / len(gram)), np.zeros(raised.shape[1])
    lam = np.asarray(simplex.min_norm_from_gram(gram / scale).weights)
    length = math.sqrt(max(float(lam @ gram @ lam), 0.0))
    return lam, lam @ raised / (length or math.inf)


@final
@dataclass(frozen=True)
class Plan:
    """How much is sampled, and what is asked for.

    Attributes:
        episodes: of one look, or of the first.
        confidence: of each interval.
        until: go on, each time with twice the episodes, until the gap is known to be below or above this; None looks
            once.
        seed: of the episodes.
    """

    episodes: int = 2000
    confidence: float = 0.95
    until: float | None = None
    seed: int = 0

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


@final
@dataclass(frozen=True, eq=False)
class Subject:
    """A policy whose gap is asked for.

    Attributes:
        scores: of the policy.
        sample: (first, count) ↦ its episodes of these numbers.
        name: which policy it is, in words.
        gamma: γ, one per objective.
        bound: of rewards.
        objectives: their names.
        objective: what Jⁱ is, in words.
        trial: of the run.
    """

    scores: Scores
    sample: Callable[[int, int], Episodes]
    name: str
    gamma: tuple[float, ...]
    bound: float
    objectives: tuple[str, ...]
    objective: str
    trial: int = 0

    @classmethod
    def of(cls, source: Source, trained: TrainedPolicy, plan: Plan, name: str) -> Subject:
        """A trained policy on a model or an environment; the average setting is refused."""
        if not isinstance(trained.setting, Discounted):
            raise ValueError("`setting` must be discounted: there is no certificate of average rewards yet.")
        spec = source.spec
        gamma = trained.setting.discounts(spec.num_objectives)
        sample, scores = sampler(source, trained, gamma, plan.seed), Scores(trained.policy, trained.trial_theta)
        words = f"discounted return, γ = {', '.join(f'{value:g}' for value in dict.fromkeys(gamma))}"
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
