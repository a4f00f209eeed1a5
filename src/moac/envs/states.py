"""Walks of copies whose observations are states: each copy in turn, all its steps, in one tight loop."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from moac.encoding import Encoder
from moac.envs.acting import TableActor
from moac.envs.copies import Copy, plain, rewards_of
from moac.envs.walks import Draws, Walks


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
    """What one copy did: places, actions, rewards, successors' places, steps that terminated, ages."""

    here: list[int] = field(default_factory=list[int])
    action: list[int] = field(default_factory=list[int])
    reward: list[Any] = field(default_factory=list[Any])
    there: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    age: list[int] = field(default_factory=list[int])


@final
class StateWalker:
    """Walks copies under one policy; rows of states that are new are added as they are met."""

    def __init__(self, atlas: Atlas, actor: TableActor, num_objectives: int) -> None:
        self._atlas, self._actor, self._M = atlas, actor, num_objectives
        self._rows = actor.rows(np.array(atlas.states, dtype=np.int64))

    def walk(self, copies: list[Copy], draws: Draws) -> Walks:
        """The next T steps of every copy."""
        forced = [None] * len(copies) if draws.forced is None else draws.forced.tolist()
        paths = [
            self._path(copy, draws.uniform[k].tolist(), forced[k], draws.average) for k, copy in enumerate(copies)
        ]
        states = np.array(self._atlas.states, dtype=np.int32)
        terminated = np.zeros(draws.uniform.shape, dtype=bool)
        for k, path in enumerate(paths):
            terminated[k, path.ends] = not draws.average
        return Walks(
            states[np.array([path.here for path in paths])],
            np.array([path.action for path in paths], dtype=np.int32),
            np.stack([path.reward for path in paths]),
            states[np.array([path.there for path in paths])],
            terminated,
            None if draws.forced is None else np.array([path.age for path in paths], dtype=np.int32),
        )

    def _path(self, copy: Copy, uniform: list[float], forced: list[bool] | None, average: bool) -> _Path:
        """T steps of one copy. Its loop calls little but the environment: it decides how fast training is."""
        path, rows, step, limit = _Path(), self._rows, copy.env.step, copy.limit
        get, key, array = self._atlas.places.get, self._atlas.encoder.lookup_key, np.ndarray
        here, elapsed, age = copy.observation, copy.elapsed, copy.age
        if not copy.walked:
            here = self._place(copy, here, 0)
        for i, u in enumerate(uniform):
            action = bisect(rows[here], u)
            try:
                observation, reward, terminated, truncated, _ = step(action)
                there = get(key(observation), -1)
            except Exception as error:
                raise copy.raised(error, i) from error
            if there < 0 or there >= len(rows):
                there = self._place(copy, observation, i)
            path.here.append(here)
            path.action.append(action)
            path.reward.append(reward.tolist() if type(reward) is array else plain(reward))
            path.age.append(age)
            elapsed, age = elapsed + 1, age + 1
            here = there
            if terminated or truncated or elapsed >= limit or (forced is not None and forced[i]):
                here, elapsed, age = self._place(copy, copy.restart(), i), 0, 0
                if terminated and not truncated:
                    path.ends.append(i)
                    there = here if average else there
            path.there.append(there)
        path.reward = rewards_of(copy, path.reward, self._M)
        copy.stands(here, elapsed, age, len(uniform))
        return path

    def _place(self, copy: Copy, observation: Any, done: int) -> int:
        """The place of an observation, with its row of probabilities."""
        try:
            place = self._atlas.place(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise copy.failure(str(error).rstrip("."), copy.steps + done) from None
        if place >= len(self._rows):
            self._rows += self._actor.rows(np.array(self._atlas.states[len(self._rows) :]))
        return place
