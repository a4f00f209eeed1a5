"""From a point of the start's set back to the actions that it is made of."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float

from moac.momdp._value_sets import Lottery, Problem, Sets, excess, partial_values, sums


class Realisation(NamedTuple):
    """One action per state, read off a point of the start's set.

    Attributes:
        actions: the action of every state that the policy reaches, nearest to the start first.
        conflict: a state where the point asks for two different actions, or None.
    """

    actions: dict[int, int]
    conflict: int | None


@final
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
