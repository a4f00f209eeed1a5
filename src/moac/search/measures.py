"""How good an exploration is: against what can be reached at all, over steps, and by preferences served."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import momdp
from moac.config import Setting
from moac.momdp import FiniteMOMDP
from moac.momdp.support import Support
from moac.search.archive import Archive, Points, span
from moac.training.result import Result

REACH = 0.01
"""Within this share of the front's range, in every objective, a point of the hull is found."""
BELOW = 0.1
"""The reference lies this share of the range below the worst, so that the ends of a front count too."""
_FEW = 4
"""With more objectives the support takes minutes."""
Growth = Mapping[int, Points]
"""Values of one network at a few preferences, by the environment steps at which they were looked at."""
_DIGITS = 3
"""Points that agree to so many digits, in units of the range, count as one."""


@dataclass(frozen=True, eq=False)
class Yardstick:
    """What points are measured by: the exact front where a model knows it, else the archive itself."""

    # [F, M] the target of IGD+; exactly, values of deterministic policies that none dominates, or the hull
    front: Points
    reference: Float[np.ndarray, " M"]  # [M] of the hypervolume
    about: str  # where the reference comes from
    # [H, M] points of the exact front that no mixture dominates; empty where nothing is known exactly
    hull: Float[np.ndarray, "H M"]
    support: Support | None = None  # the largest pᵀJ for every p; None with too many objectives

    @classmethod
    def of(cls, front: Points, reference: Any = None, hull: Any = None, support: Support | None = None) -> Yardstick:
        """By a front; the reference lies below its worst, unless it is given."""
        hull = front[:0] if hull is None else hull
        if reference is not None:
            return cls(front, np.asarray(reference, dtype=np.float64), "as given", hull, support)
        about = f"a tenth of the range below the worst of the {'exact front' if len(hull) else 'archive found'}"
        return cls(front, front.min(axis=0) - BELOW * span(front), about, hull, support)

    @classmethod
    def exact(cls, model: FiniteMOMDP | None, setting: Setting, reference: Any = None) -> Yardstick | None:
        """By what is known exactly of a model; None where there is none, or where it is too large."""
        if model is None:
            return None
        support = None
        if model.num_objectives <= _FEW:
            with contextlib.suppress(ValueError):
                support = momdp.support_of(model, setting)
        with contextlib.suppress(ValueError):
            front = momdp.pareto_front(model, setting)
            return cls.of(front.points, reference, front.points[front.hull], support)
        if support is None:
            return None
        corners = np.unique(support.points.round(9), axis=0)
        hull = corners[momdp.non_dominated(corners)]
        return cls.of(hull, reference, hull, support)

    @property
    def unit(self) -> Float[np.ndarray, " M"]:
        """The front's range in each objective."""
        return span(self.front)

    @property
    def is_exact(self) -> bool:
        """Whether the front is exact."""
        return len(self.hull) > 0

    def volume(self, points: Any) -> float:
        """Hypervolume."""
        return momdp.hypervolume(points, self.reference)

    def distance(self, points: Any) -> float:
        """IGD+, each objective in units of its range; NaN without points."""
        return momdp.igd_plus(points / self.unit, self.front / self.unit) if len(points) else float("nan")

    def shortfalls(self, points: Any) -> Float[np.ndarray, " H"]:
        """Of each point of the hull: the least, over `points`, of the largest |Jⁱ − hⁱ| in units of the range."""
        return (np.abs(np.asarray(points)[:, None] - self.hull) / self.unit).max(axis=2).min(axis=0)


def measured(
    stages: Mapping[str, Sequence[Result]],
    candidates: Archive,
    archive: Archive,
    yardstick: Yardstick,
    growth: Growth | None = None,
) -> dict[str, Any]:
    """The archive's `numbers`, those of each rule, and `curves` over environment steps by rule and together.

    Of one network for all preferences `growth` has what it was worth while it was trained.
    """
    by_rule: dict[str, Any] = {}
    for rule, runs in stages.items():
        of_rule = candidates.picked([k for k, name in enumerate(candidates.trained_by) if name == rule])
        by_rule[rule] = _indicators(of_rule.points, of_rule, archive, yardstick) | {
            "trials": runs[-1].run.num_trials,
            "policies": len(of_rule),
            "archived": archive.trained_by.count(rule),
            "env_steps": sum(run.env_steps for run in runs),
            "stopped_trials": int((runs[-1].stopped > 0).sum()),
        }
    curves = {rule: _over_steps([runs], yardstick) for rule, runs in stages.items()} if growth is None else {}
    if growth is not None:
        steps = sorted(growth)
        volumes, distances = ([f(growth[t]) for t in steps] for f in (yardstick.volume, yardstick.distance))
        curves = {rule: {"steps": steps, "hypervolume": volumes, "igd_plus": distances} for rule in stages}
    if len(curves) > 1:
        curves["all rules"] = _over_steps(list(stages.values()), yardstick)
    numbers = _indicators(archive.points, candidates, archive, yardstick) | {"points": len(archive)}
    numbers["env_steps"] = sum(each["env_steps"] for each in by_rule.values())
    return {"numbers": numbers, "by_rule": by_rule, "curves": curves}


def _indicators(points: Points, candidates: Archive, archive: Archive, yardstick: Yardstick) -> dict[str, Any]:
    """Hypervolume, IGD+, preferences served and, where the exact hull is known, how much of it is found."""
    known = finite(points)
    numbers: dict[str, Any] = {
        "hypervolume": yardstick.volume(known),
        "expected_utility": expected_utility(known, candidates.preferences),
        "sparsity": sparsity(known),
        "igd_plus": yardstick.distance(known),
        "preferences_served": served(candidates, archive, yardstick),
    }
    if yardstick.is_exact and len(known):
        short, support = yardstick.shortfalls(known), yardstick.support
        below = np.nan if support is None else support.regret(known)  # min over λ of h(λ) − λᵀJ
        numbers |= {"hull_points": len(yardstick.hull), "hull_found": int((short <= REACH).sum())}
        numbers |= {"hull_missed": yardstick.hull[short > REACH], "most_below_hull": float(np.max(below))}
    return numbers


def expected_utility(points: Points, preferences: Points) -> float:
    """EUM: the mean over preferences p of max pᵀJ over the points (Zintgraf et al., 2015); NaN without either."""
    p = np.unique(finite(preferences), axis=0)
    return float((p @ points.T).max(axis=1).mean()) if len(p) and len(points) else float("nan")


def sparsity(points: Points) -> float:
    """Σ over objectives of squared gaps between neighbours on the front, over their number (Xu et al., 2020)."""
    front = points[momdp.non_dominated(points)]
    return float((np.diff(np.sort(front, axis=0), axis=0) ** 2).sum() / max(len(front) - 1, 1))


def _over_steps(rules: Sequence[Sequence[Result]], yardstick: Yardstick) -> dict[str, Any]:
    """What the stages of some rules, trained side by side, had found by each evaluation."""
    total: Any = 0
    returns: list[Any] = []
    for stages in rules:
        before, steps = 0, list[Any]()
        for stage in stages:
            steps.append(before + stage.history.iteration * stage.run.env_steps_per_iteration)
            before += stage.env_steps
        total = total + np.concatenate(steps)
        returns.append(np.concatenate([stage.history.returns for stage in stages], axis=1))
    return {"steps": total} | over_evaluations(np.concatenate(returns), yardstick)


def over_evaluations(returns: Float[np.ndarray, "K L M"], yardstick: Yardstick) -> dict[str, Float[np.ndarray, " L"]]:
    """Hypervolume and IGD+ of all that K trials had found by each of L evaluations."""
    known = np.zeros((0, returns.shape[2]))
    volume, distance = np.zeros(returns.shape[1]), np.zeros(returns.shape[1])
    for k in range(returns.shape[1]):
        known = np.concatenate([known, finite(returns[:, k])])
        known = known[np.unique((known / yardstick.unit).round(_DIGITS), axis=0, return_index=True)[1]]
        known = known[momdp.non_dominated(known)]
        volume[k], distance[k] = yardstick.volume(known), yardstick.distance(known)
    return {"hypervolume": volume, "igd_plus": distance}


def served(candidates: Archive, archive: Archive, yardstick: Yardstick) -> dict[str, float]:
    """The share of preferences p within 1 % of the range of the best: by an own policy, and by the archive's best.

    It compares pᵀJ with max_π pᵀJ(π), exact where it is known, else the archive's best.
    """
    usable = np.isfinite(candidates.preferences).all(axis=1) & np.isfinite(candidates.points).all(axis=1)
    if not usable.any():
        return {"own": float("nan"), "archive": float("nan")}
    preferences, points = candidates.preferences[usable], candidates.points[usable]
    p, which = np.unique(preferences, axis=0, return_inverse=True)
    reachable = yardstick.hull if yardstick.is_exact else archive.points
    if yardstick.support is not None:
        reachable = yardstick.support.points
    best, best_archived = ((p @ each.T).max(axis=1) for each in (reachable, archive.points))
    own = np.full(len(p), -np.inf)
    np.maximum.at(own, which.ravel(), (preferences * points).sum(axis=1))
    allowed = REACH * (p @ yardstick.unit)
    return {name: float(np.mean(best - most <= allowed)) for name, most in (("own", own), ("archive", best_archived))}


def finite(points: Points) -> Points:
    """The points whose values are all known."""
    return points[np.isfinite(points).all(axis=1)]
