"""Branch and bound for the non-dominated values of deterministic stationary policies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from moac.momdp._tracing import Realisation, Tracer
from moac.momdp._value_sets import Points, Problem, Sets, excess, reachable, start_values, sweeps

MAX_NODES = 20_000
_MAX_SWEEP_WORK = 20_000
MAX_SOLVED = 1_000_000


@final
@dataclass(eq=False)
class Incumbents:
    """Policies found so far whose values no other found policy dominates."""

    tolerance: float
    limit: int
    points: Points
    policies: list[Int[np.ndarray, " S"]] = field(default_factory=list[Int[np.ndarray, " S"]])

    def uncovered(self, points: Points) -> Points:
        """The points that no found value dominates up to the tolerance, the most promising first."""
        gap = excess(points, self.points)
        order = np.argsort(-gap, kind="stable")
        return points[order[gap[order] > self.tolerance]]

    def add(self, point: Float[np.ndarray, " M"], policy: Int[np.ndarray, " S"]) -> None:
        """Take in a policy, unless its value is covered, and drop those it dominates."""
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
    or without, from above. A point of the start's set that no found value dominates is followed through the states
    it came from; the first action met in each state makes a policy, whose exact value joins the found ones. If the
    point is still not dominated the node splits: one child per action of a state where the point asks for two
    actions, or else of the first state with a choice. A point without such a state is the value of its policy.

    Args:
        problem: the lotteries; its limit keeps the sets small.
        sets: any upper bounds of all values.
        tolerance: slack of the tests of dominance.
        max_points: more non-dominated values than this are refused.
    """
    num_states, num_actions = len(sets), len(problem.lotteries[0])
    found = Incumbents(tolerance, max_points, np.empty((0, sets[0].shape[1])))
    everything = np.ones((num_states, num_actions), dtype=bool)
    stack = [(everything, list(sets), set(range(num_states)))]
    visited = 0
    while stack:
        visited += 1
        if visited > MAX_NODES:
            raise ValueError(
                f"The search for stationary policies must end within {MAX_NODES} nodes, got {len(stack)} open ones "
                f"with {len(found.points)} points found in {num_states} states and {num_actions} actions."
            )
        allowed, bounds, changed = stack.pop()
        state = _explore(problem, bounds, allowed, changed, found)
        if state is not None:
            stack += [(_restricted(allowed, state, a), list(bounds), {state}) for a in np.flatnonzero(allowed[state])]
    return found.points, np.array(found.policies)


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
    states = reachable(problem, allowed)
    options = [np.flatnonzero(allowed[s]) for s in states]
    size = math.prod(map(len, options)) * len(problem.start.offset) * len(states) ** 2
    if size > MAX_SOLVED:
        return None
    policies = np.repeat(allowed.argmax(axis=1)[None], math.prod(map(len, options)), axis=0)
    policies[:, states] = np.stack(np.meshgrid(*options, indexing="ij"), axis=-1).reshape(-1, len(states))
    return policy_values(problem, policies, states), policies


def _restricted(allowed: Bool[np.ndarray, "S A"], state: int, action: np.intp) -> Bool[np.ndarray, "S A"]:
    child = allowed.copy()
    child[state] = False
    child[state, action] = True
    return child


def _explore(
    problem: Problem, sets: Sets, allowed: Bool[np.ndarray, "S A"], changed: set[int], found: Incumbents
) -> int | None:
    """Tighten a node's sets and read policies off them; the state to split on, or None when the node is done."""
    every = _enumerated(problem, allowed)
    if every is not None:
        for point, policy in zip(*every, strict=True):
            found.add(point, policy)
        return None
    open_points = start_values(problem, sets)
    for sweep, _ in enumerate(sweeps(problem, sets, allowed, changed)):
        open_points = found.uncovered(start_values(problem, sets))
        if not len(open_points) or sweep * max(map(len, sets)) ** 2 > _MAX_SWEEP_WORK:
            break
    split, tracer = None, Tracer(problem, sets, allowed)
    for point in open_points:
        if not len(found.uncovered(point[None])):
            continue
        realised = tracer.follow(point)
        policy = allowed.argmax(axis=1)
        policy[list(realised.actions)] = list(realised.actions.values())
        found.add(policy_values(problem, policy[None], list(realised.actions))[0], policy)
        if split is None and len(found.uncovered(point[None])):
            split = _split_state(realised, allowed)
    return split


def _split_state(realised: Realisation, allowed: Bool[np.ndarray, "S A"]) -> int | None:
    if realised.conflict is not None:
        return realised.conflict
    return next((s for s in realised.actions if allowed[s].sum() > 1), None)
