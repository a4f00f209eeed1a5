"""Episodes of a trained policy as pictures, of environments that render."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import gymnasium
import numpy as np
from jaxtyping import UInt8

from moac.envs.environment import Environment
from moac.envs.evaluation import Player
from moac.envs.randomness import seeded_globally
from moac.training.trained import TrainedPolicy


@final
@dataclass(frozen=True, eq=False)
class Recording:
    """Some episodes.

    Attributes:
        frames: of each episode, pictures [h, w, 3], the first before the first step.
        returns: [E, M] undiscounted.
        lengths: [E] steps.
    """

    frames: list[list[UInt8[np.ndarray, "h w 3"]]]
    returns: list[list[float]]
    lengths: list[int]


def episodes(environment: Environment, trained: TrainedPolicy, count: int, seed: int, most_frames: int) -> Recording:
    """Whole episodes with seeds that follow each other, until there are so many, or enough pictures."""
    env, limit = _rendering(environment)
    player, recording = Player.of(environment.plan, trained), Recording([], [], [])
    try:
        for number in range(seed, seed + count):
            left = most_frames - sum(map(len, recording.frames))
            if left <= 0:
                break
            with seeded_globally(number):
                _record(recording, env, player, number, min(limit, left))
    finally:
        env.close()
    return recording


def _rendering(environment: Environment) -> tuple[Any, float]:
    name = environment.spec.name
    try:
        env, limit = environment.plan.maker(render_mode="rgb_array")
    except (gymnasium.error.Error, AssertionError, TypeError) as error:
        raise ValueError(f"{name} cannot be watched: {' '.join(str(error).split())}") from None
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        env.close()
        raise ValueError(f"{name} cannot be watched: it renders no pictures (rgb_array).")
    try:
        env.reset(seed=0)
        _picture(env)
    except Exception as error:  # drivers fail in ways of their own
        raise ValueError(f"{name} cannot be watched: {type(error).__name__}: {' '.join(str(error).split())}") from None
    return env, limit


def _record(recording: Recording, env: Any, player: Player, seed: int, limit: float) -> None:
    generator = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    frames, total, steps, over = [_picture(env)], 0.0, 0, False
    while not over and steps < limit:
        (action,) = player.act([player.see(observation)], [generator])
        observation, reward, terminated, truncated, _ = env.step(action)
        frames.append(_picture(env))
        total, steps, over = total + np.asarray(reward, dtype=np.float64), steps + 1, terminated or truncated
    recording.frames.append(frames)
    recording.returns.append(np.atleast_1d(total).tolist())
    recording.lengths.append(steps)


def _picture(env: Any) -> UInt8[np.ndarray, "h w 3"]:
    return np.asarray(env.render(), dtype=np.uint8)[..., :3]
