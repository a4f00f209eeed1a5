"""Walks of copies whose observations are states: each copy in turn, all its steps, in one tight loop."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Int

from moac.envs.acting import TableActor
from moac.envs.copies import Copy, packed, rewards_of
from moac.envs.walks import Draws, Walks
from moac.policies.encoding import Encoder

_SINGLE = np.dtype(np.float32)


@final
class Atlas:
    """The states met so far, by what the environment shows; each has a place, in the order in which they were met.

    Attributes:
        encoder: of the observations.
        states: their indices, by place.
        places: by the encoder's key of an observation.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.states: list[int] = []
        self.places: dict[Any, int] = {}
        self._place_of_state: dict[int, int] = {}
        self._indices = np.array([], dtype=np.int32)

    @property
    def indices(self) -> Int[np.ndarray, " S"]:
        """`states` as an array."""
        if len(self._indices) < len(self.states):
            self._indices = np.array(self.states, dtype=np.int32)
        return self._indices

    def place(self, observation: Any) -> int:
        """The place of what the environment shows, new or not; what lies outside its space is a ValueError."""
        key = self.encoder.lookup_key(observation)
        place = self.places.get(key)
        if place is None:
            state = self.encoder.state(observation)
            place = self.places[key] = self._place_of_state.setdefault(state, len(self.states))
            if place == len(self.states):
                self.states.append(state)
        return place


@final
@dataclass(eq=False)
class _Path:
    """What copies did, one after the other.

    Attributes:
        action: of each step.
        reward: its bytes.
        there: the place it led to.
        ends: steps that terminated.
        starts: steps that did not begin where the one before led to, and their places.
    """

    action: list[int] = field(default_factory=list[int])
    reward: list[bytes] = field(default_factory=list[bytes])
    there: list[Any] = field(default_factory=list[Any])
    ends: list[int] = field(default_factory=list[int])
    starts: dict[int, int] = field(default_factory=dict[int, int])

    def appenders(self) -> tuple[Any, Any, Any]:
        """What adds a step, looked up once."""
        return self.action.append, self.reward.append, self.there.append


@final
class StateWalker:
    """Walks copies under one policy; rows of states that are new are added as they are met."""

    def __init__(self, atlas: Atlas, actor: TableActor, num_objectives: int) -> None:
        self._atlas, self._actor, self._M = atlas, actor, num_objectives
        self._rows = actor.rows(atlas.indices)

    def walk(self, copies: list[Copy], draws: Draws) -> Walks:
        """The next T steps of every copy."""
        n, T = draws.uniform.shape
        ages = [copy.age for copy in copies]
        path = self._steps(copies, draws)
        rewards = rewards_of(copies, path.reward, T, self._M)
        for copy in copies:
            copy.steps += T
        path.starts.pop(n * T, None)  # where the last copy stands
        states = self._atlas.indices
        there = states[path.there]
        here = np.empty_like(there)
        here[1:] = there[:-1]
        here[list(path.starts)] = states[list(path.starts.values())]
        terminated = np.zeros(n * T, dtype=bool)
        terminated[path.ends] = True
        return Walks(
            here.reshape(n, T),
            np.array(path.action, dtype=np.int32).reshape(n, T),
            rewards,
            there.reshape(n, T),
            terminated.reshape(n, T),
            None if draws.forced is None else _ages(np.array(ages), path.starts, T),
        )

    def _steps(self, copies: list[Copy], draws: Draws) -> _Path:
        """T steps of each copy. The inner loop calls little but the environment: it decides how fast training is."""
        path, (n, T), average = _Path(), draws.uniform.shape, draws.average
        rows, get, key = self._rows, self._atlas.places.get, self._atlas.encoder.lookup_key
        did, earned, came, own, single = *path.appenders(), np.ndarray, _SINGLE
        restarts = [()] * n if draws.forced is None else [np.flatnonzero(row).tolist() for row in draws.forced]
        first = 0
        for copy, uniform, forced in zip(copies, draws.uniform.tolist(), restarts, strict=True):
            step, limit, since, age = copy.env.step, copy.limit, -copy.elapsed, copy.age
            here = path.starts[first] = copy.observation if copy.walked else self._place(copy, copy.observation, 0)
            last = min(since + limit - 1, forced[0]) if forced else since + limit - 1
            for i, u in enumerate(uniform):
                action = bisect(rows[here], u)
                try:
                    observation, reward, terminated, truncated, _ = step(action)
                    here = get(observation.tobytes() if type(observation) is own else key(observation))
                    fast = type(reward) is own and reward.dtype is single
                    earned(reward.tobytes() if fast else packed(reward))
                except Exception as error:
                    raise copy.raised(error, i) from error
                if here is None:
                    here = self._place(copy, observation, i)
                did(action)
                came(here)
                if terminated or truncated or i >= last:
                    since, age = i + 1, -i - 1
                    last = min([i + limit, *forced[bisect(forced, i) :][:1]]) if forced else i + limit
                    here = path.starts[first + since] = self._place(copy, copy.restart(), i)
                    if terminated and not truncated:
                        path.ends.append(first + i)
                        path.there[-1] = here if average else path.there[-1]
            copy.stands(here, T - since, age + T)
            first += T
        return path

    def _place(self, copy: Copy, observation: Any, done: int) -> int:
        """The place of an observation, with its row of probabilities."""
        try:
            place = self._atlas.place(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise copy.failure(str(error).rstrip("."), done) from None
        if place >= len(self._rows):
            self._rows += self._actor.rows(self._atlas.indices[len(self._rows) :])
        return place


def _ages(before: Int[np.ndarray, " n"], starts: dict[int, int], T: int) -> Int[np.ndarray, "n T"]:
    """The age at each step: of the first it is known, then it counts up, from 0 after each restart."""
    n = len(before)
    step = np.arange(n * T)
    started = np.full(n * T, np.iinfo(np.int64).min)
    started[::T] = np.arange(0, n * T, T) - before
    after = np.array(list(starts), dtype=np.int64)
    after = after[after % T != 0]
    started[after] = after
    for k in range(n):
        started[k * T : (k + 1) * T] = np.maximum.accumulate(started[k * T : (k + 1) * T])
    return (step - started).astype(np.int32).reshape(n, T)
