"""Rollouts where observations are states and actions are indices: each copy in turn, all its steps, in one tight loop.

This loop decides how fast training on small environments is: per step it calls little but the environment itself. A
state is looked up by the bytes of its observation, an action by bisection in a list of cumulative probabilities.
Python calls `list.append` faster as a method of the list than by a name of its own.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from moac.envs.acting import cumulative
from moac.envs.rollout import SINGLE, Copy, Draws, check_flags, packed, rewards_of
from moac.policies.encoding import Encoder
from moac.types import Batch


class StateIndex:
    """The states met so far: each has a row, in the order in which they were met."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder  # of the observations
        self.states: list[int] = []  # index of each row's state
        self.rows: dict[Any, int] = {}  # by the encoder's key of an observation
        self._row_of_state: dict[int, int] = {}
        self._array = np.array([], dtype=np.int32)

    @property
    def array(self) -> Int[np.ndarray, " S"]:
        """`states` as an array."""
        if len(self._array) < len(self.states):
            self._array = np.array(self.states, dtype=np.int32)
        return self._array

    def row(self, observation: Any) -> int:
        """The row of an observation, new or not; what lies outside its space is a ValueError."""
        key = self.encoder.lookup_key(observation)
        row = self.rows.get(key)
        if row is None:
            state = self.encoder.state(observation)
            row = self.rows[key] = self._row_of_state.setdefault(state, len(self.states))
            if row == len(self.states):
                self.states.append(state)
        return row


@dataclass(eq=False)
class _Steps:
    """The steps of all copies, one copy after the other."""

    action: list[int] = field(default_factory=list[int])  # of each step
    reward: list[bytes] = field(default_factory=list[bytes])  # its bytes
    arrived: list[Any] = field(default_factory=list[Any])  # the row of the state that it led to
    ends: list[int] = field(default_factory=list[int])  # steps that terminated
    # steps that did not begin where the one before led to, and the rows where they began
    starts: dict[int, int] = field(default_factory=dict[int, int])


class TabularRollout:
    """Steps copies under one table of logits [S, A]; rows of states that are new are added as they are met."""

    def __init__(self, index: StateIndex, logits: Float[np.ndarray, "S A"], num_objectives: int) -> None:
        self._index, self._logits, self._M = index, logits, num_objectives
        self._probabilities: list[list[float]] = cumulative(logits[index.array]).tolist()

    def roll_out(self, copies: list[Copy], draws: Draws) -> Batch:
        """The next T steps of every copy."""
        n, T = draws.uniform.shape
        ages = [copy.elapsed for copy in copies]
        steps = self._steps(copies, draws)
        rewards = rewards_of(copies, steps.reward, T, self._M)
        for copy in copies:
            copy.steps += T
        steps.starts.pop(n * T, None)  # where the last copy stands
        states = self._index.array
        arrived = states[steps.arrived]
        began = np.empty_like(arrived)
        began[1:] = arrived[:-1]
        began[list(steps.starts)] = states[list(steps.starts.values())]
        terminated = np.zeros(n * T, dtype=bool)
        terminated[steps.ends] = True
        columns: list[Any] = [
            began.reshape(n, T),
            np.array(steps.action, dtype=np.int32).reshape(n, T),
            rewards,
            arrived.reshape(n, T),
            terminated.reshape(n, T),
            None if draws.forced is None else _ages(np.array(ages), steps.starts, T),
        ]
        return Batch(*columns)

    def _steps(self, copies: list[Copy], draws: Draws) -> _Steps:
        """T steps of each copy. Methods are looked up once, since every lookup in the inner loop costs time."""
        steps, (n, T), average = _Steps(), draws.uniform.shape, draws.average
        probabilities, row_of, key = self._probabilities, self._index.rows.get, self._index.encoder.lookup_key
        actions, rewards, arrivals = steps.action, steps.reward, steps.arrived
        restarts = [()] * n if draws.forced is None else [np.flatnonzero(row).tolist() for row in draws.forced]
        first, array, single = 0, np.ndarray, SINGLE
        for copy, uniform, forced in zip(copies, draws.uniform.tolist(), restarts, strict=True):
            # The episode began at step `began` of this rollout (negative: before it); `last` is the step that ends it
            # if the environment does not, by the time limit or by a forced restart.
            step, limit, began = copy.env.step, copy.limit, -copy.elapsed
            here = self._row(copy, copy.observation, 0) if copy.here is None else copy.here
            steps.starts[first] = here
            last = min(began + limit - 1, forced[0]) if forced else began + limit - 1
            for i, u in enumerate(uniform):
                action = bisect(probabilities[here], u)
                try:
                    observation, reward, terminated, truncated, _ = step(action)
                    here = row_of(observation.tobytes() if type(observation) is array else key(observation))
                    plain = type(reward) is array and reward.dtype is single and reward.ndim == 1
                    rewards.append(reward.tobytes() if plain else packed(reward))
                    if over := terminated or truncated:
                        check_flags(terminated, truncated)
                except BaseException as error:
                    raise copy.raised(error, i) from error
                if here is None:
                    here = self._row(copy, observation, i)
                actions.append(action)
                arrivals.append(here)
                if over or i >= last:
                    began = i + 1
                    last = min([i + limit, *forced[bisect(forced, i) :][:1]]) if forced else i + limit
                    observation = copy.restart()
                    here = row_of(observation.tobytes()) if type(observation) is array else None
                    here = steps.starts[first + began] = self._row(copy, observation, i) if here is None else here
                    if terminated and not truncated:
                        steps.ends.append(first + i)
                        arrivals[-1] = here if average else arrivals[-1]
            copy.here, copy.elapsed = here, T - began
            first += T
        return steps

    def _row(self, copy: Copy, observation: Any, done: int) -> int:
        """The row of an observation, whose probabilities are there."""
        row = copy.read(self._index.row, observation, done)
        if row >= len(self._probabilities):
            self._probabilities += cumulative(self._logits[self._index.array[len(self._probabilities) :]]).tolist()
        return row


def _ages(before: Int[np.ndarray, " n"], starts: dict[int, int], T: int) -> Int[np.ndarray, "n T"]:
    """The age at each step: of the first it is known, then it counts up, from 0 after each restart."""
    began = np.full((len(before), T), np.iinfo(np.int64).min)
    began[:, 0] = -before
    restarts = np.array([step for step in starts if step % T], dtype=np.int64)
    began.flat[restarts] = restarts % T
    return (np.arange(T) - np.maximum.accumulate(began, axis=1)).astype(np.int32)
