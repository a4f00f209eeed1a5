"""Pareto fronts: exact ones of finite MOMDPs in the discounted setting, and the quality of any set of points."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import moocore
import numpy as np
from jaxtyping import Bool, Float, Int

from moac.arguments import Numbers, checked
from moac.choices import COUNT, counted, shown
from moac.config import Discounted, Setting
from moac.momdp import value_sets
from moac.momdp.model import FiniteMOMDP, refuse
from moac.momdp.value_sets import Points, Problem, Sets, Tracer, start_values

MAX_STATES, MAX_LOTTERIES, MAX_TABLE = 2_000, 50_000, 5_000_000  # of a model
MAX_WORK, MAX_NODES, MAX_SOLVED = 20_000_000, 20_000, 1_000_000  # points with memory, nodes, entries of linear systems
BOUND_SIZE = 32  # points that bound the values of a state in the search for stationary policies
_MAX_SWEEP_WORK = 20_000  # a node splits rather than tighten its bounds further
_PRECISIONS = (1e-10, 1e-9, 1e-8, 1e-7)  # of linear programmes, until one is solved
_FEW_OBJECTIVES, _FEW_POINTS, _DIRECTIONS = 4, 200, 2**16
"""Beyond both, an exact hypervolume takes too long: it is approximated along so many directions."""


@dataclass(frozen=True, eq=False)
class ParetoFront:
    """The non-dominated values of a class of deterministic policies."""

    points: Float[np.ndarray, "F M"]  # values from the start distribution, float64, in lexicographic order
    policies: Int[np.ndarray, "F S"] | None  # an action per state for each point; None with memory
    hull: Bool[np.ndarray, " F"]  # True where no mixture of the front's policies dominates the point
    memory: bool  # whether policies may remember the states they have seen
    tolerance: float  # values closer than this, in units of each objective's largest |r|, count as one

    def __repr__(self) -> str:
        F, M = self.points.shape
        points, objectives = counted(F, "point"), counted(M, "objective")
        return f"ParetoFront({points}, {int(self.hull.sum())} on the hull, {objectives}, memory={self.memory})"


@checked
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
        raise ValueError(f"`setting` must be Discounted for a front of deterministic policies, got {setting}.")
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"`tolerance` must be in (0, 1), got {tolerance}.")
    COUNT.checked("max_points", max_points)
    _check_size(model)
    largest = np.abs(model.reward).max(axis=(0, 1, 2))
    scale, gammas = np.where(largest > 0, largest, 1.0), np.array(setting.discounts(model.num_objectives))
    merge = tolerance * (1.0 - gammas.max()) / 4
    table, sets = value_sets.lotteries(model, scale, gammas, not memory), value_sets.ideal(model, scale, gammas, merge)
    problem = Problem(table, value_sets.start_lottery(model), merge, max_points if memory else BOUND_SIZE, not memory)
    if memory:
        points, policies = _with_memory(problem, sets), None
    else:
        points, policies = stationary_front(problem, sets, tolerance / 4, max_points)
    front = value_sets.distinct(points, tolerance / 2)
    points = points[front] * scale
    return ParetoFront(points, None if policies is None else policies[front], on_hull(points), memory, tolerance)


def _check_size(model: FiniteMOMDP) -> None:
    """Raise for a model whose tables and linear systems would fill the memory."""
    for what, size, limit in (
        ("states", model.num_states, MAX_STATES),
        ("pairs of a state and an action", model.num_states * model.num_actions, MAX_LOTTERIES),
        ("rewards in its table", model.reward.size, MAX_TABLE),
    ):
        if size > limit:
            raise ValueError(f"`model` must have at most {limit} {what} for an exact front, got {size}.")


def _with_memory(problem: Problem, sets: Sets) -> Points:
    allowed = np.ones((len(sets), len(problem.lotteries[0])), dtype=bool)
    work = 0
    for current in value_sets.sweeps(problem, sets, allowed, set(range(len(sets)))):
        work += sum(map(len, current))
        if work > MAX_WORK:
            raise ValueError(f"Pareto value iteration must end within {MAX_WORK} points computed, got {work}.")
    return start_values(problem, sets)


def on_hull(points: Points) -> Bool[np.ndarray, " F"]:
    """Where no mixture dominates: max Σ_i t_i s.t. Σ_j w_j (q_j − p) ≥ t ≥ 0, w on the simplex, is zero at p.

    Each objective is first scaled to [0, 1]. The point itself, w = 1 at p, is always feasible. The solver works to
    1e-10, or less precisely where points that almost coincide leave it undecided.
    """
    from scipy.optimize import linprog

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
        raise RuntimeError(f"HiGHS could not decide whether a mixture dominates {p}.")

    return np.array([not dominated(p) for p in q])


@dataclass(eq=False)
class Incumbents:
    """The policies so far whose values no other one of them dominates."""

    tolerance: float
    limit: int
    points: Points
    policies: list[Int[np.ndarray, " S"]] = field(default_factory=list[Int[np.ndarray, " S"]])

    def uncovered(self, points: Points) -> Points:
        """The points that no incumbent dominates up to the tolerance, the most promising first."""
        gap = value_sets.excess(points, self.points)
        order = np.argsort(-gap, kind="stable")
        return points[order[gap[order] > self.tolerance]]

    def add(self, point: Float[np.ndarray, " M"], policy: Int[np.ndarray, " S"]) -> None:
        """Add a policy, unless an incumbent dominates its value, and drop the incumbents that it dominates."""
        if not len(self.uncovered(point[None])):
            return
        keep = np.flatnonzero((self.points > point).any(axis=1))
        self.points = np.concatenate([self.points[keep], point[None]])
        self.policies = [*(self.policies[i] for i in keep), policy]
        if len(self.points) > self.limit:
            raise ValueError(f"The front must have at most `max_points` = {self.limit} points, got {len(self.points)}.")


def stationary_front(
    problem: Problem, sets: Sets, tolerance: float, max_points: int
) -> tuple[Points, Int[np.ndarray, "F S"]]:
    """All non-dominated values of deterministic stationary policies, up to `tolerance`, and a policy for each.

    A node of the search allows some actions in each state. Its sets bound the values of all its policies, with memory
    or without, from above. A point of the start's set that no incumbent dominates is followed through the states
    it came from; the first action met in each state makes a policy, which joins the incumbents. If the
    point is still not dominated the node splits: one child per action of a state where the point asks for two
    actions, or else of the first state with a choice. A point without such a state is the value of its policy.
    `sets` are any upper bounds of all values.
    """
    num_actions = len(problem.lotteries[0])
    incumbents = Incumbents(tolerance, max_points, np.empty((0, sets[0].shape[1])))
    stack = [(np.ones((len(sets), num_actions), dtype=bool), list(sets), set(range(len(sets))))]
    visited = 0
    while stack:
        visited += 1
        if visited > MAX_NODES:
            left = f"{len(stack)} open ones with {len(incumbents.points)} points found"
            raise ValueError(f"The search for stationary policies must end within {MAX_NODES} nodes, got {left}.")
        allowed, bounds, changed = stack.pop()
        state = _explore(problem, bounds, allowed, changed, incumbents)
        if state is None:
            continue
        for action in np.flatnonzero(allowed[state]):
            child = allowed.copy()
            child[state] = np.arange(num_actions) == action
            stack.append((child, list(bounds), {state}))
    return incumbents.points, np.array(incumbents.policies)


def policy_values(problem: Problem, policies: Int[np.ndarray, "N S"], states: list[int]) -> Points:
    """J = ρ·v with v = (I − γ P)⁻¹ r̄ for each policy: linear solves on `states`, which no policy may leave."""
    num_policies, num_objectives, n = len(policies), len(problem.start.offset), len(states)
    index = {s: i for i, s in enumerate(states)}
    matrix = np.broadcast_to(np.eye(n), (num_policies, num_objectives, n, n)).copy()
    reward = np.empty((num_policies, num_objectives, n, 1))
    for row, s in enumerate(states):
        for a in np.unique(policies[:, s]):
            users, lottery = np.flatnonzero(policies[:, s] == a), problem.lotteries[s][a]
            columns = [index[int(t)] for t in lottery.states]
            matrix[users[:, None], :, row, columns] -= lottery.weight
            reward[users, :, row, 0] = lottery.offset
    values = np.linalg.solve(matrix, reward)[..., 0]
    return np.einsum("nmk,km->nm", values[..., [index[int(s)] for s in problem.start.states]], problem.start.weight)


def _enumerated(problem: Problem, allowed: Bool[np.ndarray, "S A"]) -> tuple[Points, Int[np.ndarray, "N S"]] | None:
    """All policies of a node with their values, or None when they are too many to solve at once."""
    states = value_sets.reachable(problem, allowed)
    options = [np.flatnonzero(allowed[s]) for s in states]
    size = math.prod(map(len, options)) * len(problem.start.offset) * len(states) ** 2
    if size > MAX_SOLVED:
        return None
    policies = np.repeat(allowed.argmax(axis=1)[None], math.prod(map(len, options)), axis=0)
    policies[:, states] = np.stack(np.meshgrid(*options, indexing="ij"), axis=-1).reshape(-1, len(states))
    return policy_values(problem, policies, states), policies


def _explore(
    problem: Problem, sets: Sets, allowed: Bool[np.ndarray, "S A"], changed: set[int], incumbents: Incumbents
) -> int | None:
    """Tighten a node's sets and read policies off them; the state to split on, or None when the node is done."""
    solved = _enumerated(problem, allowed)
    if solved is not None:
        for point, policy in zip(*solved, strict=True):
            incumbents.add(point, policy)
        return None
    open_points = start_values(problem, sets)
    for sweep, _ in enumerate(value_sets.sweeps(problem, sets, allowed, changed)):
        open_points = incumbents.uncovered(start_values(problem, sets))
        if not len(open_points) or sweep * max(map(len, sets)) ** 2 > _MAX_SWEEP_WORK:
            break
    split, tracer = None, Tracer(problem, sets, allowed)
    for point in open_points:
        if not len(incumbents.uncovered(point[None])):
            continue
        realised = tracer.follow(point)
        policy = allowed.argmax(axis=1)
        policy[list(realised.actions)] = list(realised.actions.values())
        incumbents.add(policy_values(problem, policy[None], list(realised.actions))[0], policy)
        if split is None and len(incumbents.uncovered(point[None])):
            choices = (s for s in realised.actions if allowed[s].sum() > 1)
            split = realised.conflict if realised.conflict is not None else next(choices, None)
    return split


@checked
def hypervolume(points: Numbers, reference: Numbers) -> float:
    """Volume dominated by the points [N, M] above the reference [M]: λ(⋃_p [reference, p]).

    Points that are not above the reference in every objective add nothing; no points have volume 0. Exact up to four
    objectives or 200 points; beyond, by a deterministic quadrature over directions, accurate to about 1e-3 of it.
    """
    corner = np.asarray(reference, dtype=np.float64)
    if corner.ndim != 1 or corner.size == 0 or not np.isfinite(corner).all():
        raise ValueError(f"`reference` must be a vector of M finite numbers, got {shown(reference)}.")
    values = _points("points", points, None if np.size(points) else len(corner))
    if values.shape[1] != len(corner):
        raise ValueError(f"`reference` must hold one number per objective ({values.shape[1]}), got {len(corner)}.")
    if len(corner) <= _FEW_OBJECTIVES or len(values) <= _FEW_POINTS:
        return float(moocore.hypervolume(values, ref=corner, maximise=True))
    above = values[(values > corner).all(axis=1)]
    return float(moocore.hv_approx(above, ref=corner, maximise=True, nsamples=_DIRECTIONS)) if len(above) else 0.0


@checked
def igd_plus(points: Numbers, front: Numbers) -> float:
    """Mean over the front's points z of the least d⁺(p, z) = ‖max(z − p, 0)‖ over `points` (Ishibuchi et al., 2015).

    Zero exactly when every point of the front [F, M] is dominated by, or equal to, one of `points` [N, M].
    """
    target = _points("front", front)
    values = _points("points", points, target.shape[1])
    for name, table in (("points", values), ("front", target)):
        if not len(table):
            raise ValueError(f"`{name}` must hold at least one point, got none.")
    return float(moocore.igd_plus(values, ref=target, maximise=True))


@checked
def non_dominated(points: Numbers) -> Bool[np.ndarray, " N"]:
    """Mask of the points [N, M] that no other point dominates; of equal points all are kept."""
    return moocore.is_nondominated(_points("points", points), maximise=True, keep_weakly=True)


def _points(name: str, points: Any, num_objectives: int | None = None) -> Points:
    """`points` as finite float64 [N, M]; an empty list is no points. moocore would take NaN for a dominated point."""
    table = np.asarray(points, dtype=np.float64)
    if table.size == 0 and table.ndim == 1:
        table = table.reshape(0, num_objectives or 1)
    if table.ndim != 2 or table.shape[1] != (num_objectives or table.shape[1]) or table.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [N, {num_objectives or 'M'}], got {table.shape}.")
    refuse(name, table, ~np.isfinite(table), "be finite")
    return table
