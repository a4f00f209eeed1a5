"""Copies of an environment, each as it is: made, seeded, stepped; what goes wrong is one clear line."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from jaxtyping import Float

from moac.envs.randomness import generator_state
from moac.types import SourceError

importlib.import_module("mo_gymnasium")  # registers its environments

_BYTES = np.dtype(np.float32).itemsize
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
        around: puts something around every environment that is made; None leaves it as it is.
    """

    env: str | Callable[[], Any]
    time_limit: bool
    options: tuple[tuple[str, Any], ...] = ()
    around: Callable[[Any], Any] | None = None

    def __call__(self, **more: Any) -> tuple[Any, float]:
        """An environment without a time limit of its own around it, and the limit that is to be kept."""
        env, limit = self._made(**more)
        return (env if self.around is None else self.around(env)), limit

    def _made(self, **more: Any) -> tuple[Any, float]:
        if not isinstance(self.env, str):
            env = self.env(**dict(self.options), **more)
            if type(env) is not TimeLimit:
                return env, math.inf
            return env.env, vars(env)["_max_episode_steps"] if self.time_limit else math.inf
        options: dict[str, Any] = dict(self.options) | more
        made = gymnasium.make(self.env, max_episode_steps=_NO_LIMIT, disable_env_checker=True, **options)
        made = made.env if type(made) is OrderEnforcing else made  # it would cost each step to say what we do anyway
        limit = gymnasium.spec(self.env.rpartition(":")[2]).max_episode_steps
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
        origin: state of the environment's generator before this episode; None in the first one, and where unknown.
        first: whether this is the first episode, which is seeded.
    """

    __slots__ = ("age", "elapsed", "env", "first", "limit", "number", "observation", "origin", "steps", "walked")

    def __init__(self, maker: Maker, number: int, seed: int) -> None:
        self.number, self.walked = number, False
        self.steps = self.elapsed = self.age = 0
        self.env, self.limit = maker()
        self.observation: Any = None
        self.restart(seed=seed)

    def restart(self, **options: Any) -> Any:
        """A new episode; the first is seeded, those after it go on with the environment's own random numbers."""
        self.first = "seed" in options
        self.origin = None if self.first else generator_state(self.env)
        try:
            self.observation, _ = self.env.reset(**options)
        except Exception as error:
            raise self.failure(f"reset raised {_named(error)}") from error
        self.elapsed, self.age, self.walked = 0, 0, False
        return self.observation

    def stands(self, here: Any, elapsed: int, age: int) -> None:
        """End a walk at `here`."""
        self.observation, self.elapsed, self.age, self.walked = here, elapsed, age, True

    def failure(self, what: str, done: int = 0) -> SourceError:
        """The error of this copy, one line; `done` steps after those counted."""
        return SourceError(f"the environment failed at step {self.steps + done + 1} of copy {self.number}: {what}.")

    def raised(self, error: Exception, done: int) -> SourceError:
        """The error of a step that raised."""
        return self.failure(f"step raised {_named(error)}", done)


def packed(reward: Any) -> bytes:
    """A reward as the bytes of its numbers in single precision: a copy, whatever array the environment hands out."""
    return np.asarray(reward, dtype=np.float32).tobytes()


def rewards_of(copies: list[Copy], rows: list[bytes], steps: int, num_objectives: int) -> Float[np.ndarray, "n T M"]:
    """Rewards of `steps` steps of each copy, one copy after the other; a wrong length, or NaN, is refused."""
    if set(map(len, rows)) != {num_objectives * _BYTES}:
        bad = next(i for i, row in enumerate(rows) if len(row) != num_objectives * _BYTES)
        what = f"its reward must have length {num_objectives}, got {len(rows[bad]) // _BYTES}"
        raise copies[bad // steps].failure(what, bad % steps)
    table = np.frombuffer(b"".join(rows), dtype=np.float32).reshape(len(copies), steps, num_objectives)
    if not np.isfinite(table).all():
        k, t, _ = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        raise copies[k].failure(f"its reward must be finite, got {table[k, t].tolist()}", t)
    return table


def _named(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}{f': {text}' if text else ''}"
