"""Copies of an environment, each as it is: made, seeded, stepped; what goes wrong is one clear line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import gymnasium
import mo_gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from moac.types import SourceError

_NO_LIMIT = -1
"""What Gymnasium's `make` takes for no time limit."""


@final
@dataclass(frozen=True)
class Maker:
    """How a copy is made.

    Attributes:
        env: an id, also `package.module:Id-v0`, or a function that returns an environment.
        time_limit: whether the time limit of the registration holds.
        options: of the environment's constructor.
    """

    env: str | Callable[[], Any]
    time_limit: bool
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, **more: Any) -> tuple[Any, float]:
        """An environment without a time limit of its own around it, and the limit that is to be kept."""
        if not isinstance(self.env, str):
            env = self.env(**dict(self.options))
            return (env.env, env._max_episode_steps) if type(env) is TimeLimit else (env, math.inf)  # noqa: SLF001
        made = mo_gymnasium.make(self.env, max_episode_steps=_NO_LIMIT, **dict(self.options), **more)
        limit = gymnasium.spec(self.env).max_episode_steps
        return made, math.inf if limit is None or not self.time_limit else limit


@final
class Copy:
    """One environment and where it is.

    Attributes:
        number: which copy it is.
        steps: taken since it was made.
        elapsed: steps of this episode.
        age: steps since the last start of the chain.
        observation: what it showed last; between two walks, what the walk made of that.
        walked: whether it stands between two walks.
    """

    __slots__ = ("age", "elapsed", "env", "limit", "number", "observation", "steps", "walked")

    def __init__(self, maker: Maker, number: int, seed: int) -> None:
        self.number, self.walked = number, False
        self.steps = self.elapsed = self.age = 0
        self.env, self.limit = maker()
        self.observation: Any = None
        self.restart(seed=seed)

    def restart(self, **options: Any) -> Any:
        """A new episode; the first is seeded, those after it go on with the environment's own random numbers."""
        try:
            self.observation, _ = self.env.reset(**options)
        except Exception as error:
            raise self.failure(f"reset raised {_named(error)}") from error
        self.elapsed, self.age, self.walked = 0, 0, False
        return self.observation

    def stands(self, here: Any, elapsed: int, age: int, done: int) -> None:
        """End a walk of `done` steps at `here`."""
        self.observation, self.elapsed, self.age, self.walked = here, elapsed, age, True
        self.steps += done

    def failure(self, what: str, step: int | None = None) -> SourceError:
        """The error of this copy, one line."""
        at = self.steps if step is None else step
        return SourceError(f"the environment failed at step {at} of copy {self.number}: {what}.")

    def raised(self, error: Exception, done: int) -> SourceError:
        """The error of a step that raised, `done` steps after those counted."""
        return self.failure(f"step raised {_named(error)}", self.steps + done)


def rewards_of(copy: Copy, rows: list[Any], num_objectives: int) -> np.ndarray[Any, Any]:
    """Rewards of consecutive steps as [T, M], single precision; a wrong length or a number that is none is refused."""
    try:
        table = np.array(rows, dtype=np.float32)
    except (TypeError, ValueError):
        table = np.zeros(0)
    if table.shape != (len(rows), num_objectives):
        place, row = next((i, row) for i, row in enumerate(rows) if np.shape(row) != (num_objectives,))
        what = f"its reward must have length {num_objectives}, got {_shape(row)}"
        raise copy.failure(what, copy.steps + place)
    if not np.isfinite(table).all():
        place = int(np.argwhere(~np.isfinite(table))[0, 0])
        raise copy.failure(f"its reward must be finite, got {rows[place]}", copy.steps + place)
    return table


def plain(reward: Any) -> Any:
    """A reward of the caller's own: an environment may hand out its array, or a list."""
    return reward.tolist() if type(reward) is np.ndarray else np.array(reward).tolist()


def _shape(row: Any) -> str:
    shape = np.shape(row)
    return "a number" if shape == () else str(shape[0]) if len(shape) == 1 else f"shape {shape}"


def _named(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}{f': {text}' if text else ''}"
