"""Walks of all copies side by side, so that one call acts for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from moac.envs.acting import Actor
from moac.envs.copies import Copy, packed, rewards_of
from moac.envs.sights import Sight
from moac.envs.walks import Draws, Walks


@final
class Abreast:
    """Walks copies under one policy; observations are left as they came, and actions as the policy gave them."""

    def __init__(self, sight: Sight, actor: Actor, given: Callable[[Any], Any], num_objectives: int) -> None:
        self._sight, self._actor, self._given, self._M = sight, actor, given, num_objectives

    def walk(self, copies: list[Copy], draws: Draws) -> Walks:
        """The next T steps of every copy."""
        n, T = draws.uniform.shape
        walks, here = self._empty(draws), self._sight.table(n, 1)[:, 0]
        rewards: list[list[bytes]] = [[] for _ in copies]
        for k, copy in enumerate(copies):
            here[k] = copy.observation if copy.walked else self._read(copy, copy.observation, 0)
        for t in range(T):
            actions = self._actor.act(self._sight.see(here), draws.at(t))
            walks.observation[:, t], walks.action[:, t] = here, actions
            for k, (copy, action) in enumerate(zip(copies, self._given(actions), strict=True)):
                rewards[k].append(self._step(walks, draws, (copy, k, t), here, action))
        walks.reward[:] = rewards_of(copies, [row for rows in rewards for row in rows], T, self._M)
        for k, copy in enumerate(copies):
            copy.stands(here[k], copy.elapsed, copy.age)
            copy.steps += T
        return walks if draws.forced is not None else walks.ageless()

    def _step(
        self, walks: Walks, draws: Draws, at: tuple[Copy, int, int], here: np.ndarray[Any, Any], action: Any
    ) -> bytes:
        """One step of copy k at time t: what it saw goes into `walks`, where it is now into `here`."""
        copy, k, t = at
        try:
            observation, reward, terminated, truncated, _ = copy.env.step(action)
            reward = packed(reward)
        except Exception as error:
            raise copy.raised(error, t) from error
        here[k] = walks.next_observation[k, t] = self._read(copy, observation, t)
        walks.age[k, t] = copy.age
        copy.elapsed, copy.age = copy.elapsed + 1, copy.age + 1
        forced = draws.forced is not None and draws.forced[k, t]
        if terminated or truncated or forced or copy.elapsed >= copy.limit:
            here[k] = self._read(copy, copy.restart(), t)
            walks.terminated[k, t] = terminated and not truncated
            if walks.terminated[k, t] and draws.average:
                walks.next_observation[k, t] = here[k]
        return reward

    def _read(self, copy: Copy, observation: Any, done: int) -> Any:
        """What is kept of an observation."""
        try:
            return self._sight.read(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise copy.failure(str(error).rstrip("."), done) from None

    def _empty(self, draws: Draws) -> Walks:
        n, T = draws.uniform.shape
        indices, vectors = np.empty((n, T), dtype=np.int32), draws.normal
        return Walks(
            self._sight.table(n, T),
            indices if vectors is None else np.empty(vectors.shape, dtype=np.float32),
            np.empty((n, T, self._M), dtype=np.float32),
            self._sight.table(n, T),
            np.zeros((n, T), dtype=bool),
            np.empty((n, T), dtype=np.int32),
        )
