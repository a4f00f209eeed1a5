"""Walks of copies whose observations are vectors: all copies side by side, so that one call acts for all of them."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac.encoding import Encoder, Scale
from moac.envs.acting import CompiledActor, VectorActor
from moac.envs.copies import Copy, packed, rewards_of
from moac.envs.walks import Draws, Walks


@final
class VectorWalker:
    """Walks copies under one policy; the observations it leaves are as they came, not scaled."""

    def __init__(self, encoder: Encoder, scale: Scale, actor: VectorActor | CompiledActor, num_objectives: int) -> None:
        self._encoder, self._scale, self._actor, self._M = encoder, scale, actor, num_objectives

    def walk(self, copies: list[Copy], draws: Draws) -> Walks:
        """The next T steps of every copy."""
        n, T = draws.uniform.shape
        walks = _empty(n, T, self._encoder.size, self._M)
        rewards: list[list[bytes]] = [[] for _ in copies]
        stand = [c.observation if c.walked else self._flat(c, c.observation, 0) for c in copies]
        here = np.stack(stand)
        for t in range(T):
            actions = self._actor.act(self._scale(here), draws.uniform[:, t])
            walks.observation[:, t], walks.action[:, t] = here, actions
            for k, copy in enumerate(copies):
                rewards[k].append(self._step(walks, draws, (copy, k, t), here))
        walks.reward[:] = rewards_of(copies, [row for rows in rewards for row in rows], T, self._M)
        for k, copy in enumerate(copies):
            copy.stands(here[k].copy(), copy.elapsed, copy.age)
            copy.steps += T
        return walks if draws.forced is not None else walks.ageless()

    def _step(self, walks: Walks, draws: Draws, at: tuple[Copy, int, int], here: Float[np.ndarray, "n d"]) -> bytes:
        """One step of copy k at time t: what it saw goes into `walks`, where it is now into `here`."""
        copy, k, t = at
        try:
            observation, reward, terminated, truncated, _ = copy.env.step(int(walks.action[k, t]))
            reward = packed(reward)
        except Exception as error:
            raise copy.raised(error, t) from error
        here[k] = walks.next_observation[k, t] = self._flat(copy, observation, t)
        walks.age[k, t] = copy.age
        copy.elapsed, copy.age = copy.elapsed + 1, copy.age + 1
        forced = draws.forced is not None and draws.forced[k, t]
        if terminated or truncated or forced or copy.elapsed >= copy.limit:
            here[k] = self._flat(copy, copy.restart(), t)
            if terminated and not truncated and draws.average:
                walks.next_observation[k, t] = here[k]
            walks.terminated[k, t] = terminated and not truncated and not draws.average
        return reward

    def _flat(self, copy: Copy, observation: Any, done: int) -> Float[np.ndarray, " d"]:
        """The numbers of an observation."""
        try:
            flat = self._encoder.flat(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise copy.failure(str(error).rstrip("."), done) from None
        if not np.isfinite(flat).all():
            raise copy.failure(f"its observation must be finite, got {flat.tolist()}", done)
        return flat


def _empty(n: int, T: int, d: int, M: int) -> Walks:
    return Walks(
        np.empty((n, T, d)),
        np.empty((n, T), dtype=np.int32),
        np.empty((n, T, M), dtype=np.float32),
        np.empty((n, T, d)),
        np.zeros((n, T), dtype=bool),
        np.empty((n, T), dtype=np.int32),
    )
