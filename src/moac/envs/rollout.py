"""Rollouts: the next steps of several copies of an environment under one policy, side by side.

The policy does not change within an iteration, so copies are independent of each other. Where an episode ends the copy
restarts in the same step; the successor that is kept is the true one, also after truncation and after a forced
restart. Where `terminated` and `truncated` are both true, the environment's clock has run out: that is truncation.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from moac.envs.acting import Actor, Noise
from moac.policies.encoding import ActionBox, Encoder
from moac.policies.observations import Scale
from moac.types import Sampling, SourceError

_FLOAT_BYTES = np.dtype(np.float32).itemsize
_NUMPY_GLOBAL: Any = np.random
"""NumPy's global generator, which some environments draw from."""
_kept: list[bool] = []
"""Not empty while somebody outside puts the global generators back: their state is large, and slow to copy."""


@final
@dataclass(frozen=True, eq=False)
class Interface:
    """How an environment is made, observed and acted on; the same for all its copies.

    Attributes:
        make: returns an environment without a time limit around it, and that limit; options are for its constructor.
        encoder: of observations.
        num_actions: A; 0 where actions are vectors.
        num_objectives: M.
        box: how continuous actions are taken; None for A actions.
    """

    make: Callable[..., tuple[Any, float]]
    encoder: Encoder
    num_actions: int
    num_objectives: int
    box: ActionBox | None = None

    @property
    def tabular(self) -> bool:
        """Whether observations are states and actions are indices, so that a table of the policy can be stepped."""
        return self.encoder.num_states is not None and self.box is None

    def given(self, actions: np.ndarray[Any, Any]) -> Any:
        """Actions of a policy as the environment takes them, one after the other."""
        return actions.tolist() if self.box is None else self.box(actions)


@final
class Copy:
    """One environment and where it is.

    Attributes:
        number: which copy it is.
        steps: taken since it was made.
        elapsed: steps of this episode.
        age: steps since the last start of the chain.
        observation: the last one, as the environment gave it.
        here: what the last rollout made of the last observation; None before the first rollout.
    """

    __slots__ = ("age", "elapsed", "env", "here", "limit", "number", "observation", "steps")

    def __init__(self, interface: Interface, number: int, seed: int) -> None:
        self.number = number
        self.here: Any = None
        self.steps = self.elapsed = self.age = 0
        self.env, self.limit = interface.make()
        self.restart(seed=seed)

    def restart(self, **options: Any) -> Any:
        """Start an episode; the first is seeded, later ones go on with the environment's own random numbers."""
        try:
            self.observation, _ = self.env.reset(**options)
        except Exception as error:
            raise self.failure(f"reset raised {described(error)}") from error
        self.elapsed = self.age = 0
        return self.observation

    def failure(self, what: str, done: int = 0) -> SourceError:
        """The error of this copy, one line; `done` steps after those counted."""
        return SourceError(f"the environment failed at step {self.steps + done + 1} of copy {self.number}: {what}.")

    def raised(self, error: Exception, done: int) -> SourceError:
        """The error of a step that raised."""
        return self.failure(f"step raised {described(error)}", done)

    def read(self, encode: Callable[[Any], Any], observation: Any, done: int) -> Any:
        """An encoded observation; one that does not fit is an error of this copy."""
        try:
            return encode(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise self.failure(str(error).rstrip("."), done) from None


@final
@dataclass(frozen=True, eq=False)
class Draws:
    """The random numbers of n copies' next T steps, and how their chains go on.

    Attributes:
        uniform: [n, T], one per action.
        forced: [n, T], whether the chain restarts after the step; None is never, and keeps no age.
        average: the successor of a terminated transition is the restart state.
        normal: [n, T, k], where actions are vectors.
    """

    uniform: Float[np.ndarray, "n T"]
    forced: Bool[np.ndarray, "n T"] | None
    average: bool
    normal: Float[np.ndarray, "n T k"] | None = None

    @property
    def seed(self) -> int:
        """For what the environment draws without a generator of its own."""
        return int(self.uniform[0, 0] * 2**32)

    def of(self, first: int, last: int) -> Draws:
        """Those of some copies."""
        forced, normal = (None if x is None else x[first:last] for x in (self.forced, self.normal))
        return Draws(self.uniform[first:last], forced, self.average, normal)

    def at(self, t: int) -> Noise:
        """Those of all copies' actions at one time."""
        return Noise(self.uniform[:, t], None if self.normal is None else self.normal[:, t])


@final
@dataclass(frozen=True, eq=False)
class Rollout:
    """T transitions of each of n copies, leading axes [n, T].

    Observations are states, or vectors as they came; actions are indices, or vectors as the policy gave them; ages are
    None unless chains restart by force.
    """

    observation: np.ndarray[Any, Any]
    action: np.ndarray[Any, Any]
    reward: Float[np.ndarray, "n T M"]
    next_observation: np.ndarray[Any, Any]
    terminated: Bool[np.ndarray, "n T"]
    age: Any

    @classmethod
    def joined(cls, parts: list[Rollout]) -> Rollout:
        """Several groups of copies as one."""
        if len(parts) == 1:
            return parts[0]
        columns: list[list[Any]] = [[getattr(part, f.name) for part in parts] for f in fields(cls)]
        joined: list[Any] = [None if column[0] is None else np.concatenate(column) for column in columns]
        return cls(*joined)


_PHILOX: Any = np.random.Philox(0)
_START: dict[str, Any] = _PHILOX.state


def draw(key: Any, shape: tuple[int, int], sizes: Sampling, action_size: int = 0) -> Draws:
    """The random numbers of an iteration, by the data of its key."""
    _PHILOX.state = _START | {"state": {"counter": np.zeros(4, np.uint64), "key": np.asarray(key, dtype=np.uint64)}}
    generator = np.random.Generator(_PHILOX)  # as of Philox(key=key), which would ask the system for entropy first
    uniform = generator.random(shape)
    forced = None if sizes.survival is None else generator.random(shape) >= sizes.survival
    normal = generator.standard_normal((*shape, action_size)) if action_size else None
    return Draws(uniform, forced, sizes.average, normal)


def roll_out(copies: list[Copy], interface: Interface, actor: Actor, scale: Scale | None, draws: Draws) -> Rollout:
    """The next T steps of every copy, one call of the actor per time; vectors are scaled, states are not."""
    encode = interface.encoder.state if scale is None else partial(_vector, interface.encoder)
    rollout = _empty(interface, scale, draws)
    here, rewards = np.empty_like(rollout.observation[:, 0]), [list[bytes]() for _ in copies]
    for k, copy in enumerate(copies):
        here[k] = copy.read(encode, copy.observation, 0) if copy.here is None else copy.here
    for t in range(draws.uniform.shape[1]):
        actions = actor(here if scale is None else scale(here), draws.at(t))
        rollout.observation[:, t], rollout.action[:, t] = here, actions
        for k, (copy, action) in enumerate(zip(copies, interface.given(actions), strict=True)):
            try:
                observation, reward, terminated, truncated, _ = copy.env.step(action)
                rewards[k].append(packed(reward))
            except Exception as error:
                raise copy.raised(error, t) from error
            here[k] = rollout.next_observation[k, t] = copy.read(encode, observation, t)
            rollout.age[k, t] = copy.age
            copy.elapsed, copy.age = copy.elapsed + 1, copy.age + 1
            forced = draws.forced is not None and draws.forced[k, t]
            if terminated or truncated or forced or copy.elapsed >= copy.limit:
                here[k] = copy.read(encode, copy.restart(), t)
                rollout.terminated[k, t] = terminated and not truncated
                if rollout.terminated[k, t] and draws.average:
                    rollout.next_observation[k, t] = here[k]
    return _finished(rollout, copies, here, rewards, draws.forced is not None)


def _vector(encoder: Encoder, observation: Any) -> Float[np.ndarray, " d"]:
    """The numbers of an observation as they came; they must be finite."""
    flat = encoder.flat(observation)
    if not np.isfinite(flat).all():
        raise ValueError(f"its observation must be finite, got {flat.tolist()}.")
    return flat


def _empty(interface: Interface, scale: Scale | None, draws: Draws) -> Rollout:
    """Room for a rollout; vectors are kept in double precision."""
    n, T = draws.uniform.shape
    kept, dtype = ((n, T), np.int32) if scale is None else ((n, T, interface.encoder.size), np.float64)
    normal = draws.normal
    return Rollout(
        np.empty(kept, dtype),
        np.empty((n, T), np.int32) if normal is None else np.empty(normal.shape, np.float32),
        np.empty((n, T, interface.num_objectives), np.float32),
        np.empty(kept, dtype),
        np.zeros((n, T), dtype=bool),
        np.empty((n, T), dtype=np.int32),
    )


def _finished(rollout: Rollout, copies: list[Copy], here: Any, rewards: list[list[bytes]], aged: bool) -> Rollout:
    """The rollout with its rewards, and without ages unless they are asked for; its copies stand where it ended."""
    _, T, M = rollout.reward.shape
    rollout.reward[:] = rewards_of(copies, [row for rows in rewards for row in rows], T, M)
    for k, copy in enumerate(copies):
        copy.here = here[k]
        copy.steps += T
    return rollout if aged else replace(rollout, age=None)


def packed(reward: Any) -> bytes:
    """A reward as the bytes of its numbers in single precision: a copy, whatever array the environment hands out."""
    return np.asarray(reward, dtype=np.float32).tobytes()


def rewards_of(copies: list[Copy], rows: list[bytes], steps: int, num_objectives: int) -> Float[np.ndarray, "n T M"]:
    """Rewards of `steps` steps of each copy, one copy after the other; a wrong length, or NaN, is refused."""
    if set(map(len, rows)) != {num_objectives * _FLOAT_BYTES}:
        bad = next(i for i, row in enumerate(rows) if len(row) != num_objectives * _FLOAT_BYTES)
        what = f"its reward must have length {num_objectives}, got {len(rows[bad]) // _FLOAT_BYTES}"
        raise copies[bad // steps].failure(what, bad % steps)
    table = np.frombuffer(b"".join(rows), dtype=np.float32).reshape(len(copies), steps, num_objectives)
    if not np.isfinite(table).all():
        k, t, _ = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        raise copies[k].failure(f"its reward must be finite, got {table[k, t].tolist()}", t)
    return table


@contextlib.contextmanager
def kept_globally() -> Generator[None]:
    """NumPy's and Python's global generators afterwards as they were; keeping them again inside costs nothing."""
    if _kept:
        yield
        return
    before = _NUMPY_GLOBAL.get_state(legacy=False), random.getstate()
    _kept.append(True)
    try:
        yield
    finally:
        _kept.pop()
        _NUMPY_GLOBAL.set_state(before[0])
        random.setstate(before[1])


@contextlib.contextmanager
def seeded_globally(seed: int) -> Generator[None]:
    """NumPy's and Python's global generators seeded inside, and afterwards as they were.

    minecart draws its ore from the one, four-room its start from the other, whatever seed `reset` was given. Copies
    that share a process share these numbers: such an environment gives one result per number of workers.
    """
    with kept_globally():
        _NUMPY_GLOBAL.seed(seed)
        random.seed(seed)
        yield


def described(error: Exception) -> str:
    """An error as one line, without a full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}{f': {text}' if text else ''}"
