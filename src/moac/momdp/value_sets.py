"""Pareto value iteration from above: sets of values that no policy, with memory or without, can beat.

`sweeps` shrinks the sets; a `Tracer` goes from a point of the start's set back to the actions that it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import moocore
import numpy as np
from jaxtyping import Bool, Float, Int

from moac.momdp.model import FiniteMOMDP

MAX_SUMS = 2_000_000  # sums of two sets of points that are formed at once
_MAX_IDEAL_SWEEPS = 20_000

Points = Float[np.ndarray, "N M"]
Sets = list[Points]


class Lottery(NamedTuple):
    """An expected reward followed by one of k states: q = offset + Σ_j weight_j ∘ v_j with v_j a value of state j."""

    offset: Float[np.ndarray, " M"]
    states: Int[np.ndarray, " k"]
    weight: Float[np.ndarray, "k M"]


@dataclass(frozen=True, eq=False)
class Problem:
    """The input of Pareto value iteration: a lottery per state and action, and one for the start.

    Rewards are divided by each objective's largest |r|, so that one tolerance serves all objectives.
    """

    # [S][A]. Outcomes with one successor are one: a policy remembers states, not the rewards it drew
    lotteries: list[list[Lottery]]
    start: Lottery  # the start distribution over states
    merge: float  # two points of a set that agree up to this are one
    limit: int  # the largest size of a set
    stationary: bool  # whether only stationary policies count. Then a larger set is rounded up, else it is refused


def lotteries(
    model: FiniteMOMDP, scale: Float[np.ndarray, " M"], gammas: Float[np.ndarray, " M"], stationary: bool
) -> list[list[Lottery]]:
    """r̄(s, a) and γ P(s' | s, a) of every state and action, in units of `scale`.

    A stationary policy repeats its action when it comes back to s: v = b + c ∘ v has the solution v = b / (1 − c), so
    that transitions from a state to itself go. Policies with memory may do otherwise: the bound is tighter for
    stationary ones only.
    """

    def lottery(s: int, a: int) -> Lottery:
        chance = model.probability[s, a]
        going = (chance > 0) & ~model.terminated[s, a]
        states, slot = np.unique(model.next_state[s, a][going], return_inverse=True)
        weight = np.bincount(slot, weights=chance[going], minlength=len(states))[:, None] * gammas
        offset, other = chance @ model.reward[s, a] / scale, states != s
        if not stationary:
            return Lottery(offset, states, weight)
        stop = 1.0 - weight[~other].sum(axis=0)
        return Lottery(offset / stop, states[other], weight[other] / stop)

    return [[lottery(s, a) for a in range(model.num_actions)] for s in range(model.num_states)]


def start_lottery(model: FiniteMOMDP) -> Lottery:
    """The start distribution, which pays nothing."""
    states = np.flatnonzero(model.start_distribution)
    weight = np.repeat(model.start_distribution[states][:, None], model.num_objectives, axis=1)
    return Lottery(np.zeros(model.num_objectives), states, weight)


def ideal(
    model: FiniteMOMDP, scale: Float[np.ndarray, " M"], gammas: Float[np.ndarray, " M"], precision: float
) -> Sets:
    """The best value of every objective alone, a set of one point per state; value iteration from above."""
    chance = model.probability[..., None]
    reward = (chance * model.reward).sum(axis=2) / scale
    factor = chance * ~model.terminated[..., None] * gammas
    top = np.maximum(reward.max(axis=(0, 1)), 0.0) / (1.0 - gammas)
    values = np.broadcast_to(top, (model.num_states, len(gammas)))
    for _ in range(_MAX_IDEAL_SWEEPS):
        new = (reward + (factor * values[model.next_state]).sum(axis=2)).max(axis=1)
        done = (values - new).max() <= precision
        values = np.minimum(values, new)
        if done:
            break
    return [row[None] for row in values]


def best(points: Points, merge: float = 0.0) -> Points:
    """The non-dominated points; of those that agree after rounding to multiples of `merge`, one."""
    if len(points) < 2:
        return points
    return points[moocore.is_nondominated(np.rint(points / merge) if merge else points, maximise=True)]


def coarse(points: Points, limit: int) -> Points:
    """At most `limit` points that dominate all of `points`: joins over the cells of a grid, as fine as it may be."""
    low, high = points.min(axis=0), points.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    num_objectives = points.shape[1]
    cells = math.ceil(2 * limit ** (1 / max(num_objectives - 1, 1)))
    while len(points) > limit:
        cell = np.minimum((points - low) / width * cells, cells - 1).astype(np.int64)
        keys = cell @ cells ** np.arange(num_objectives)
        order = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        points, cells = best(np.maximum.reduceat(points[order], first)), max(3 * cells // 4, 1)
    return points


def limited(problem: Problem, points: Points) -> Points:
    """`points` within the problem's limit: larger sets are rounded up, or raise for policies with memory."""
    if len(points) <= problem.limit:
        return points
    if problem.stationary:
        return coarse(points, problem.limit)
    raise _too_many(f"{len(points)} points in one state, `max_points` is {problem.limit}")


def sums(left: Points, right: Points) -> Points:
    """All sums of one point of each set, [len(left) · len(right), M]; raises before they fill the memory."""
    if len(left) * len(right) > MAX_SUMS:
        raise _too_many(f"{len(left)} × {len(right)} sums over random outcomes, the limit is {MAX_SUMS}")
    return (left[:, None] + right[None]).reshape(-1, left.shape[1])


def _too_many(what: str) -> ValueError:
    return ValueError(f"The set of values of policies with memory grows without bound or past the limit: {what}.")


def partial_values(problem: Problem, lottery: Lottery, sets: Sets) -> Sets:
    """Values of the lottery over its first 0, 1, …, k successors, non-dominated ones only."""
    partial = [lottery.offset[None]]
    for state, weight in zip(lottery.states, lottery.weight, strict=True):
        total = sums(partial[-1], weight * sets[state])
        partial.append(total if len(partial[-1]) == 1 else limited(problem, best(total)))
    return partial


def backup(problem: Problem, sets: Sets, state: int, actions: Sequence[int]) -> Points:
    """V(s) = ND ⋃_a r̄(s, a) ⊕ ⨁_s' γ P(s' | s, a) V(s') over the actions allowed."""
    values = [partial_values(problem, problem.lotteries[state][a], sets)[-1] for a in actions]
    return limited(problem, best(np.concatenate(values), problem.merge))


def start_values(problem: Problem, sets: Sets) -> Points:
    """Values from the start distribution."""
    return limited(problem, best(partial_values(problem, problem.start, sets)[-1]))


def excess(points: Points, others: Points) -> Float[np.ndarray, " N"]:
    """How far each point is from being dominated: min over others q of max_i (p_i − q_i); ∞ if there are none."""
    if not len(others):
        return np.full(len(points), np.inf)
    worst = np.full((len(points), len(others)), -np.inf)
    for i in range(points.shape[1]):
        np.maximum(worst, points[:, i, None] - others[None, :, i], out=worst)
    return worst.min(axis=1)


def distinct(points: Points, tolerance: float) -> Int[np.ndarray, " F"]:
    """Indices of points that cover all others: each is dominated by one of them up to `tolerance`.

    In lexicographic order of the points, where coordinates that agree up to the tolerance count as equal.
    """
    chosen: list[int] = []
    for i in np.argsort(-points.sum(axis=1), kind="stable"):
        if excess(points[i : i + 1], points[chosen])[0] > tolerance:
            chosen.append(int(i))
    order = np.lexsort(np.rint(points[chosen] / tolerance).T[::-1])
    return np.array(chosen)[order]


def reachable(problem: Problem, allowed: Bool[np.ndarray, "S A"]) -> list[int]:
    """States that some allowed action leads to, in breadth-first order from the start."""
    order = [int(s) for s in problem.start.states]
    seen = set(order)
    for s in order:
        for a in np.flatnonzero(allowed[s]):
            fresh = [int(t) for t in problem.lotteries[s][a].states if int(t) not in seen]
            seen.update(fresh)
            order.extend(fresh)
    return order


def sweeps(problem: Problem, sets: Sets, allowed: Bool[np.ndarray, "S A"], changed: set[int]) -> Iterator[Sets]:
    """Improve `sets` in place, sweep by sweep, until no set moves by more than `problem.merge`.

    The sets must bound all policies from above and still do after every update, since the operator is monotone: a
    reader may stop at any sweep. Only states with a successor in `changed` are updated. A set moves only downwards.
    """
    order = reachable(problem, allowed)[::-1]
    actions = {s: [int(a) for a in np.flatnonzero(allowed[s])] for s in order}
    parents: dict[int, list[int]] = {s: [] for s in order}
    for s in order:
        for t in {int(t) for a in actions[s] for t in problem.lotteries[s][a].states}:
            parents[t].append(s)
    dirty = set(changed) & set(order)
    while dirty:
        for s in order:
            if s in dirty:
                dirty.discard(s)
                new = backup(problem, sets, s, actions[s])
                if _moved_down(sets[s], new, problem.merge):
                    sets[s] = new
                    dirty.update(parents[s])
        yield sets


def _moved_down(old: Points, new: Points, precision: float) -> bool:
    if old.shape == new.shape and np.abs(old - new).max() <= precision:
        return False
    return bool(excess(new, old).max() <= precision and excess(old, new).max() > precision)


class Realisation(NamedTuple):
    """One action per state that the policy reaches, nearest to the start first, read off a point of the start's set.

    `conflict` is a state where the point asks for two different actions, or None.
    """

    actions: dict[int, int]
    conflict: int | None


class Tracer:
    """Follows points through the sets of one node, which stay as they are meanwhile."""

    def __init__(self, problem: Problem, sets: Sets, allowed: Bool[np.ndarray, "S A"]) -> None:
        self._problem = problem
        self._sets = sets
        self._allowed = allowed
        self._partial: dict[int, Sets] = {}

    def follow(self, point: Float[np.ndarray, " M"]) -> Realisation:
        """Start at `point` and visit, breadth first, the actions and successors' points that it comes from.

        The first action met in a state is the policy's. After a conflict only new states matter.
        """
        queue = self._successors(self._problem.start, point)
        actions: dict[int, int] = {}
        conflict: int | None = None
        seen = set(queue)
        for s, i in queue:
            if conflict is not None and s in actions:
                continue
            wanted = self._wanted(s, i)
            action = actions.setdefault(s, wanted[0])
            if action not in wanted:
                conflict = s
            next_points = self._successors(self._problem.lotteries[s][action], self._sets[s][i])
            fresh = [item for item in next_points if item not in seen]
            seen.update(fresh)
            queue += fresh
        return Realisation(actions, conflict)

    def _wanted(self, state: int, index: int) -> list[int]:
        """The actions that come nearest to the point, all of them where several are equally near."""
        target = self._sets[state][index : index + 1]
        actions = [int(a) for a in np.flatnonzero(self._allowed[state])]
        gaps = [excess(target, self._values(self._problem.lotteries[state][a])[-1])[0] for a in actions]
        near = min(gaps) + 2 * self._problem.merge
        return [a for a, gap in zip(actions, gaps, strict=True) if gap <= near]

    def _successors(self, lottery: Lottery, target: Float[np.ndarray, " M"]) -> list[tuple[int, int]]:
        """The successors' points, as (state, index), whose sum is nearest to dominating `target`."""
        partial, chosen = self._values(lottery), list[tuple[int, int]]()
        for j in reversed(range(len(lottery.states))):
            state = int(lottery.states[j])
            total = sums(partial[j], lottery.weight[j] * self._sets[state])
            before, after = divmod(int((target - total).max(axis=1).argmin()), len(self._sets[state]))
            chosen.append((state, after))
            target = partial[j][before]
        return chosen[::-1]

    def _values(self, lottery: Lottery) -> Sets:
        """`partial_values`, computed once per lottery."""
        if id(lottery) not in self._partial:
            self._partial[id(lottery)] = partial_values(self._problem, lottery, self._sets)
        return self._partial[id(lottery)]
