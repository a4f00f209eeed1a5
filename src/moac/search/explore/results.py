"""An exploration from its runs to its numbers: the archive, and all that is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from moac.search.archive import Archive
from moac.search.explore import measures, running, selection
from moac.search.explore.candidates import rule_of
from moac.search.explore.exact import REACH, Exact
from moac.search.explore.measures import Yardstick
from moac.search.explore.running import Order
from moac.training import result

Curves = dict[str, Any]
"""Of a rule: `steps`, `hypervolume`, `igd_plus` [L]."""


@final
@dataclass(frozen=True, eq=False)
class Results:
    """What an exploration found.

    Attributes:
        order: what was trained.
        objectives: their names.
        found: every candidate of every rule.
        archive: those that no other dominates.
        yardstick: what they are measured by.
        curves: over environment steps, by rule and for all together.
        numbers: the whole archive's.
        by_rule: each rule's.
    """

    order: Order
    objectives: tuple[str, ...]
    found: Archive
    archive: Archive
    yardstick: Yardstick
    curves: dict[str, Curves]
    numbers: dict[str, Any]
    by_rule: dict[str, dict[str, Any]]


def of(
    order: Order, outcomes: dict[str, list[result.Result]], found: Archive, exact: Exact | None, reference: Any
) -> Results:
    """Select, measure and count.

    Args:
        order: what was trained.
        outcomes: the stages of each rule.
        found: all candidates.
        exact: what can be reached.
        reference: of the hypervolume; None is by the front.
    """
    archive = found.picked(selection.select(found))
    yardstick = Yardstick.of(archive, exact, reference)
    by_rule = {rule: _of_rule(rule, done, found, archive, yardstick) for rule, done in outcomes.items()}
    objectives = next(iter(outcomes.values()))[-1].run.source.spec.objective_names
    curves = {rule: _curves([done], yardstick) for rule, done in outcomes.items()}
    if len(curves) > 1:
        curves["all rules"] = _curves(list(outcomes.values()), yardstick)
    numbers = _of_points(found, archive, yardstick) | {"points": len(archive)}
    numbers["env_steps"] = sum(own["env_steps"] for own in by_rule.values())
    return Results(order, objectives, found, archive, yardstick, curves, numbers, by_rule)


def _curves(rules: list[list[result.Result]], yardstick: Yardstick) -> Curves:
    """Of the trials of one rule, or of several that are at the same iteration."""
    joined = [running.joined_history(done) for done in rules]
    returns = np.concatenate([returns for _, returns in joined])
    return {"steps": sum(steps for steps, _ in joined)} | measures.over_steps(returns, yardstick)


def _of_rule(
    rule: str, done: list[result.Result], found: Archive, archive: Archive, yardstick: Yardstick
) -> dict[str, Any]:
    own = found.picked([k for k, name in enumerate(found.rules) if rule_of(name) == rule])
    traps = [
        {"entropy": stage.config.entropy, "share": float(measures.trapped(_known(stage.returns), yardstick).mean())}
        for stage in done
    ]
    return _of_points(own, own, yardstick, archive) | {
        "trials": done[-1].run.num_trials,
        "policies": len(own),
        "archived": sum(rule_of(name) == rule for name in archive.rules),
        "env_steps": sum(stage.env_steps for stage in done),
        "trapped": traps[-1]["share"],
        "trapped_after": traps,
        "stopped_trials": int((done[-1].stopped > 0).sum()),
    }


def _known(points: Any) -> Any:
    return points[np.isfinite(points).all(axis=1)]


def _of_points(found: Archive, points: Archive, yardstick: Yardstick, archive: Archive | None = None) -> dict[str, Any]:
    """Indicators of some points, and of preferences served by the trials that had them and by an archive."""
    known = _known(points.points)
    told: dict[str, Any] = {
        "hypervolume": yardstick.volume(known),
        "igd_plus": yardstick.distance(known) if len(known) else float("nan"),
        "preferences_served": measures.served(found, points if archive is None else archive, yardstick),
    }
    exact = yardstick.exact
    if exact is not None and len(known):
        short = exact.shortfalls(known)
        below = exact.below_hull(known)
        told |= {"hull_points": len(exact.hull), "hull_found": int((short <= REACH).sum())}
        told |= {"hull_missed": exact.hull[short > REACH], "farthest_hull_point": float(short.max())}
        told |= {"mean_below_hull": float(np.mean(below)), "most_below_hull": float(np.max(below))}
    return told


def record(results: Results) -> dict[str, Any]:
    """explore.json: plain data."""
    order, archive = results.order, results.archive
    return {
        "env": order.env,
        "objectives": list(results.objectives),
        "seed": order.seed,
        "rules": list(order.rules),
        "entropies": list(order.entropies),
        "preferences": order.preferences,
        "returns_kind": archive.kind,
        "reference": results.yardstick.reference,
        "reference_is": results.yardstick.about,
        "numbers": results.numbers,
        "by_rule": results.by_rule,
        "archive": points(archive),
        "curves": results.curves,
    }


def points(archive: Archive) -> list[dict[str, Any]]:
    """Each archived policy as plain data; its place in the list is its trial in the folder's run."""
    exact = archive.kind == "exact"
    return [
        {
            "returns": archive.points[k],
            "interval": None if exact else np.stack([archive.low[k], archive.high[k]], axis=1),
            "preference": None if np.isnan(archive.preferences[k]).any() else archive.preferences[k],
            "weights": archive.weights[k],
            "rule": archive.rules[k],
            "trial": int(archive.trials[k]),
        }
        for k in range(len(archive))
    ]
