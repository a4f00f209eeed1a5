"""Exact Pareto fronts of finite MOMDPs in the discounted setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog

from moac.config import Discounted, Setting
from moac.momdp._stationary import stationary_front
from moac.momdp._value_sets import (
    Lottery,
    Points,
    Problem,
    Sets,
    excess,
    ideal,
    lotteries,
    start_values,
    sweeps,
    without_loops,
)
from moac.momdp.model import FiniteMOMDP

MAX_STATES = 2_000
MAX_LOTTERIES = 50_000
MAX_TABLE = 5_000_000
MAX_WORK = 20_000_000
BOUND_SIZE = 32
_PRECISIONS = (1e-10, 1e-9, 1e-8, 1e-7)


@final
@dataclass(frozen=True, eq=False)
class ParetoFront:
    """The non-dominated values of a class of deterministic policies.

    Attributes:
        points: values from the start distribution, float64, in lexicographic order.
        policies: an action per state for each point; None with memory.
        hull: True where no mixture of the front's policies dominates the point.
        memory: whether policies may remember the states they have seen.
        tolerance: values closer than this, in units of each objective's largest |r|, count as one.
    """

    points: Float[np.ndarray, "F M"]
    policies: Int[np.ndarray, "F S"] | None
    hull: Bool[np.ndarray, " F"]
    memory: bool
    tolerance: float


def pareto_front(
    model: FiniteMOMDP, setting: Setting, memory: bool = False, tolerance: float = 1e-10, max_points: int = 2_000
) -> ParetoFront:
    """The Pareto front of deterministic policies: every one's value is dominated by a point, up to the tolerance.

    Without memory, branch and bound over stationary policies; each point is a linear solve of its policy. With memory,
    Pareto value iteration (White, 1982), V(s) = ND ⋃_a r̄(s, a) ⊕ ⨁_s' γ P(s' | s, a) V(s'), accurate to the tolerance.

    Args:
        model: the MOMDP.
        setting: `Discounted`, with one discount or one per objective.
        memory: whether policies may remember the states they have seen. The front may then be infinite.
        tolerance: values closer than this, in units of each objective's largest |r|, count as one.
        max_points: largest size of the front and, with memory, of the set of values of any state.
    """
    if not isinstance(setting, Discounted):
        raise ValueError(
            f"`setting` must be Discounted, where the front of deterministic policies is defined, got {setting}."
        )
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"`tolerance` must be in (0, 1), got {tolerance}.")
    if max_points < 1:
        raise ValueError(f"`max_points` must be at least 1, got {max_points}.")
    _check_size(model)
    largest = np.abs(model.reward).max(axis=(0, 1, 2))
    scale = np.where(largest > 0, largest, 1.0)
    find = _with_memory if memory else _stationary
    points, policies = find(model, scale, np.array(setting.discounts(model.num_objectives)), tolerance, max_points)
    kept = distinct(points, tolerance / 2)
    points = points[kept] * scale
    policies = None if policies is None else policies[kept]
    return ParetoFront(points, policies, on_hull(points), memory, tolerance)


def distinct(points: Points, tolerance: float) -> Int[np.ndarray, " F"]:
    """Indices of points that cover all others: each is dominated by one of them up to `tolerance`.

    In lexicographic order of the points, where coordinates that agree up to the tolerance count as equal.
    """
    kept: list[int] = []
    for i in np.argsort(-points.sum(axis=1), kind="stable"):
        if excess(points[i : i + 1], points[kept])[0] > tolerance:
            kept.append(int(i))
    order = np.lexsort(np.rint(points[kept] / tolerance).T[::-1])
    return np.array(kept)[order]


def on_hull(points: Points) -> Bool[np.ndarray, " F"]:
    """Where no mixture dominates: max Σ_i t_i s.t. Σ_j w_j (q_j − p) ≥ t ≥ 0, w on the simplex, is zero at p.

    Each objective is first scaled to [0, 1]. The point itself, w = 1 at p, is always feasible. The solver works to
    1e-10, or less precisely where points that almost coincide leave it undecided.
    """
    low, spread = points.min(axis=0), np.ptp(points, axis=0)
    q = (points - low) / np.where(spread > 0, spread, 1.0)
    num_points, num_objectives = q.shape
    gain = np.concatenate([np.zeros(num_points), -np.ones(num_objectives)])
    simplex = np.concatenate([np.ones(num_points), np.zeros(num_objectives)])[None]

    def dominated(p: Float[np.ndarray, " M"]) -> bool:
        above = np.hstack([(p - q).T, np.eye(num_objectives)])
        for precision in _PRECISIONS:
            options = {"primal_feasibility_tolerance": precision, "dual_feasibility_tolerance": precision}
            solution = linprog(gain, above, np.zeros(num_objectives), simplex, [1.0], method="highs", options=options)
            if solution.success:
                return bool(-solution.fun > 100 * precision)
        raise RuntimeError(f"HiGHS could not tell whether a mixture dominates {p}.")

    return np.array([not dominated(p) for p in q])


def _check_size(model: FiniteMOMDP) -> None:
    """Refuse a model whose tables and linear systems would fill the memory."""
    pairs = model.num_states * model.num_actions
    for what, size, limit in (
        ("states", model.num_states, MAX_STATES),
        ("pairs of a state and an action", pairs, MAX_LOTTERIES),
        ("rewards in its table", model.reward.size, MAX_TABLE),
    ):
        if size > limit:
            raise ValueError(f"`model` must have at most {limit} {what} for an exact front, got {size}.")


def _start(model: FiniteMOMDP) -> Lottery:
    states = np.flatnonzero(model.start_distribution)
    num_objectives = model.num_objectives
    return Lottery(
        np.zeros(num_objectives), states, np.repeat(model.start_distribution[states][:, None], num_objectives, axis=1)
    )


def _stationary(
    model: FiniteMOMDP,
    scale: Float[np.ndarray, " M"],
    gammas: Float[np.ndarray, " M"],
    tolerance: float,
    max_points: int,
) -> tuple[Points, Int[np.ndarray, "F S"]]:
    merge = tolerance * (1.0 - gammas.max()) / 4
    table = without_loops(lotteries(model, scale, gammas))
    problem = Problem(table, _start(model), merge, BOUND_SIZE, coarsen=True)
    return stationary_front(problem, ideal(model, scale, gammas, merge), tolerance / 4, max_points)


def _with_memory(
    model: FiniteMOMDP,
    scale: Float[np.ndarray, " M"],
    gammas: Float[np.ndarray, " M"],
    tolerance: float,
    max_points: int,
) -> tuple[Points, None]:
    merge = tolerance * (1.0 - gammas.max()) / 4
    problem = Problem(lotteries(model, scale, gammas), _start(model), merge, max_points, coarsen=False)
    sets: Sets = ideal(model, scale, gammas, merge)
    allowed = np.ones((model.num_states, model.num_actions), dtype=bool)
    work = 0
    for current in sweeps(problem, sets, allowed, set(range(model.num_states))):
        work += sum(map(len, current))
        if work > MAX_WORK:
            raise ValueError(f"Pareto value iteration must end within {MAX_WORK} points computed, got {work}.")
    return start_values(problem, sets), None
