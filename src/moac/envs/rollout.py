"""Rollouts: the next steps of several copies of an environment under one policy, side by side.

The policy does not change within an iteration, so copies are independent of each other. Where an episode ends the copy
restarts in the same step; the successor that is kept is the true one, also after truncation and after a forced
restart. Where `terminated` and `truncated` are both true, the environment's clock has run out: that is truncation.
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from moac.choices import LARGEST_REWARD, not_real, shown
from moac.envs import acting, interrupts
from moac.envs.acting import Actor
from moac.policies.encoding import ActionBox, Encoder
from moac.policies.observations import Scale
from moac.types import Batch, Sampling, SourceError

SINGLE = np.dtype(np.float32)
"""The dtype of rewards."""
_NUMPY_GLOBAL: Any = np.random
"""NumPy's global generator, which some environments draw from."""
_kept: list[bool] = []
"""Not empty while somebody outside puts the global generators back: their state is large, and slow to copy."""


class WrongAnswerError(ValueError):
    """An answer of an environment that is not what Gymnasium asks for, in words."""


@dataclass(frozen=True, eq=False)
class Interface:
    """How an environment is made, observed and acted on; the same for all its copies."""

    # returns an environment without a time limit around it, and that limit; options are for its constructor
    make: Callable[..., tuple[Any, float]]
    encoder: Encoder  # of observations
    num_actions: int  # A; 0 where actions are vectors
    num_objectives: int  # M
    box: ActionBox | None = None  # how continuous actions are taken; None for A actions
    # how a copy draws a preference as an episode starts (`Config.preference_draw`); None is not at all
    draw: str | None = None
    limit: float = math.inf  # steps after which an episode is cut short
    looking_steps: int = 0  # that were taken to see the rewards, before anything was trained

    @property
    def tabular(self) -> bool:
        """Whether observations are states and actions are indices, so that a table of the policy can be stepped."""
        return self.encoder.num_states is not None and self.box is None

    def given(self, actions: np.ndarray[Any, Any]) -> Any:
        """Actions of a policy as the environment takes them, one after the other."""
        return actions.tolist() if self.box is None else self.box(actions)


class Copy:
    """One environment and where it is.

    Attributes:
        number: which copy it is.
        steps: taken since it was made.
        episodes: begun since it was made.
        elapsed: steps of this episode, which is the age of its chain.
        observation: the last one, as the environment gave it.
        preference: p of this episode, which belongs to its observations; None where none is drawn.
        here: what the last rollout made of the last observation; None before the first rollout.
    """

    __slots__ = (
        "_draw", "elapsed", "env", "episodes", "here", "limit", "number", "observation", "preference", "steps",
    )  # fmt: skip

    def __init__(self, interface: Interface, number: int, seed: int) -> None:
        self.number, self.steps = number, 0
        try:
            self.env, self.limit = interface.make()
        except BaseException as error:
            raise self.raised(error, 0, "making it") from error
        self.begin(interface, seed)

    def begin(self, interface: Interface, seed: int) -> None:
        """Start as a copy that was made anew, which some environments take long for."""
        self.here: Any = None
        self.steps = self.elapsed = self.episodes = 0
        self._draw = acting.preferences(interface.draw, interface.num_objectives, seed)
        self.restart(seed=seed)

    def restart(self, **options: Any) -> Any:
        """Start an episode; the first is seeded, later ones go on with the environment's own random numbers."""
        try:
            self.observation, _ = self.env.reset(**options)
        except BaseException as error:
            raise self.raised(error, 0, "reset") from error
        self.elapsed, self.preference = 0, self._draw()
        self.episodes += 1
        return self.observation

    def failure(self, what: str, done: int = 0) -> SourceError:
        """The error of this copy, one line; `done` steps after those counted."""
        return SourceError(f"the environment failed at step {self.steps + done + 1} of copy {self.number}: {what}.")

    def raised(self, error: BaseException, done: int, call: str = "step") -> SourceError:
        """The error of a call that raised, be it SystemExit; the user's own interruption goes on as it is."""
        if interrupts.is_of_user(error):
            raise error
        if isinstance(error, WrongAnswerError):
            return self.failure(str(error), done)
        return self.failure(f"{call} raised {described(error)}", done)

    def close(self) -> None:
        """Close the environment; one that fails in this has played all the same, so that it is only a warning."""
        close(self.env, f"copy {self.number} of the environment")

    def read(self, encode: Callable[..., Any], observation: Any, done: int) -> Any:
        """An encoded observation, with p where there is one; what does not fit is an error of this copy."""
        try:
            return encode(observation) if self.preference is None else encode(observation, self.preference)
        except Exception as error:  # an observation may be any object
            raise self.failure(" ".join(str(error).split()).rstrip("."), done) from None


@dataclass(frozen=True, eq=False)
class Draws:
    """The random numbers of n copies' next T steps, and how their chains go on."""

    uniform: Float[np.ndarray, "n T"]  # [n, T], one per action
    # [n, T], whether the chain restarts after the step; None is never, and keeps no age
    forced: Bool[np.ndarray, "n T"] | None
    average: bool  # the successor of a terminated transition is the restart state
    normal: Float[np.ndarray, "n T k"] | None = None  # [n, T, k], where actions are vectors

    @property
    def seed(self) -> int:
        """For what the environment draws without a generator of its own."""
        return int(self.uniform[0, 0] * 2**32)

    def of(self, first: int, last: int) -> Draws:
        """Those of some copies."""
        if last - first == len(self.uniform):
            return self
        forced, normal = (None if x is None else x[first:last] for x in (self.forced, self.normal))
        return Draws(self.uniform[first:last], forced, self.average, normal)


_PHILOX: Any = np.random.Philox(0)
_START: dict[str, Any] = _PHILOX.state
_GENERATOR = np.random.Generator(_PHILOX)


def draw(key: Any, shape: tuple[int, int], sizes: Sampling, action_size: int = 0) -> Draws:
    """The random numbers of an iteration, by the data of its key."""
    # as of Philox(key=key), which would ask the system for entropy first
    _PHILOX.state = _START | {"state": {"counter": np.zeros(4, np.uint64), "key": np.asarray(key, dtype=np.uint64)}}
    uniform = _GENERATOR.random(shape)
    forced = None if sizes.survival is None else _GENERATOR.random(shape) >= sizes.survival
    normal = _GENERATOR.standard_normal((*shape, action_size)) if action_size else None
    return Draws(uniform, forced, sizes.average, normal)


def roll_out(copies: list[Copy], interface: Interface, actor: Actor, scale: Scale | None, draws: Draws) -> Batch:
    """The next T steps of every copy [n, T], one call of the actor per time; the actor sees vectors scaled.

    Observations are states, or vectors as they came; actions are indices, or vectors as the policy gave them; ages are
    None unless chains restart by force.
    """
    encode, dtype = (interface.encoder.state, int) if scale is None else (interface.encoder.flat, np.float64)
    now = [copy.read(encode, copy.observation, 0) if copy.here is None else copy.here for copy in copies]
    here = np.array(now, dtype=dtype)
    kept = _Kept(interface, draws, np.empty((2, draws.uniform.shape[1], *here.shape), dtype=dtype))
    for t in range(draws.uniform.shape[1]):
        normal = None if draws.normal is None else draws.normal[:, t]
        actions = actor(here if scale is None else scale(here), draws.uniform[:, t], normal)
        kept.began[t], arrived = here, kept.arrived[t]
        starts = kept.step(copies, actions, encode, t)
        here = _after_restarts(copies, arrived, starts, t)
        if starts and draws.average:
            arrived[kept.ended[t]] = here[kept.ended[t]]
    for copy, now in zip(copies, here, strict=True):
        copy.here = now
    return kept.batch(copies)


class _Kept:
    """What a rollout keeps of its steps, [T, n, …]: vectors in double precision, rewards as bytes.

    Args:
        interface: of the environment.
        draws: of the rollout.
        observations: [2, T, n, …], where steps begin and arrive.
    """

    def __init__(self, interface: Interface, draws: Draws, observations: Any) -> None:
        self.began, self.arrived = observations
        self.ended = np.zeros(draws.uniform.T.shape, dtype=bool)
        self._interface, self._forced = interface, None if draws.forced is None else draws.forced.T
        self._actions, self._ages = list[Any](), list[list[int]]()
        self._rewards: list[list[bytes]] = [[] for _ in draws.uniform]
        self._shape = interface.encoder.plain_shape if observations.ndim == 4 else None

    def step(self, copies: list[Copy], actions: Any, encode: Callable[..., Any], t: int) -> dict[int, Any]:
        """One step of every copy; observations of those that start anew. Little is called: it is per step and copy."""
        self._actions.append(actions)
        restarts, starts, row, shape = (), dict[int, Any](), self.arrived[t], self._shape
        if self._forced is not None:
            self._ages.append([copy.elapsed for copy in copies])
            restarts = np.flatnonzero(self._forced[t]).tolist()
        for k, (copy, action) in enumerate(zip(copies, self._interface.given(actions), strict=True)):
            try:
                observation, reward, terminated, truncated, _ = copy.env.step(action)
                self._rewards[k].append(packed(reward))
                if over := terminated or truncated:
                    check_flags(terminated, truncated)
            except BaseException as error:
                raise copy.raised(error, t) from error
            plain = type(observation) is np.ndarray and observation.shape == shape and observation.dtype.kind == "f"
            row[k] = observation if plain and copy.preference is None else copy.read(encode, observation, t)
            copy.elapsed += 1
            if over or copy.elapsed >= copy.limit or k in restarts:
                starts[k] = np.array(copy.read(encode, copy.restart(), t))  # the environment may write to it
                self.ended[t, k] = terminated and not truncated
        return starts

    def batch(self, copies: list[Copy]) -> Batch:
        """The rollout, one copy after the other."""
        T, interface = len(self.ended), self._interface
        began, arrived = (x if x.ndim == 3 else x.astype(np.int32) for x in (self.began, self.arrived))
        action = np.array(self._actions, dtype=np.int32 if interface.box is None else np.float32)
        ages = None if self._forced is None else np.array(self._ages, dtype=np.int32).T
        rows = [row for rewards in self._rewards for row in rewards]
        reward = rewards_of(copies, rows, T, interface.num_objectives)
        for copy in copies:
            copy.steps += T
        began, action, arrived, ended = (x.swapaxes(0, 1) for x in (began, action, arrived, self.ended))
        rollout: list[Any] = [began, action, reward, arrived, ended, ages]
        return Batch(*rollout)


def _after_restarts(copies: list[Copy], arrived: Any, starts: dict[int, Any], t: int) -> Any:
    """Where all copies [n, …] are after a step: where they arrived, or started anew; both must be finite."""
    _check_finite(copies, arrived, t)
    if not starts:
        return arrived
    here = arrived.copy()
    here[list(starts)] = list(starts.values())
    _check_finite(copies, here, t)
    return here


def _check_finite(copies: list[Copy], observations: Any, t: int) -> None:
    """Refuse observations of all copies [n, …] that are not finite: one test for all of them, since it is per step."""
    if not np.isfinite(observations).all():
        k = int(np.argwhere(~np.isfinite(observations))[0, 0])
        raise copies[k].failure(f"its observation must be finite, got {observations[k].tolist()}", t)


def packed(reward: Any) -> bytes:
    """A reward as the bytes of its numbers in single precision: a copy, whatever array the environment hands out."""
    if type(reward) is np.ndarray and reward.dtype is SINGLE and reward.ndim == 1:
        return reward.tobytes()
    return real_reward(reward).astype(SINGLE).tobytes()


def real_reward(reward: Any) -> np.ndarray[Any, Any]:
    """A reward as an array; what holds no real numbers, or has more than one axis, is refused."""
    numbers = np.asarray(reward)
    if (held := not_real(numbers)) is not None:
        raise WrongAnswerError(f"its reward must be a vector of real numbers, got {held}")
    if numbers.ndim > 1:
        raise WrongAnswerError(f"its reward must be a vector, got an array of shape {numbers.shape}")
    return numbers


def check_flags(terminated: Any, truncated: Any) -> None:
    """Refuse what ends an episode and is neither true nor false, such as a text; looked at when an episode ends."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag is not False and flag is not True and (np.size(flag) != 1 or np.asarray(flag).dtype.kind not in "bui"):
            raise WrongAnswerError(f"`{name}` must be true or false, got {shown(flag)}")


def rewards_of(copies: list[Copy], rows: list[bytes], steps: int, num_objectives: int) -> Float[np.ndarray, "n T M"]:
    """Rewards of `steps` steps of each copy, one copy after the other; a wrong length or size, or NaN, is refused."""
    if set(map(len, rows)) != {num_objectives * SINGLE.itemsize}:
        bad = next(i for i, row in enumerate(rows) if len(row) != num_objectives * SINGLE.itemsize)
        what = f"its reward must have length {num_objectives}, got {len(rows[bad]) // SINGLE.itemsize}"
        raise copies[bad // steps].failure(what, bad % steps)
    table = np.frombuffer(b"".join(rows), dtype=np.float32).reshape(len(copies), steps, num_objectives)
    right = np.abs(table) <= LARGEST_REWARD
    if not right.all():
        k, t, _ = (int(i) for i in np.argwhere(~right)[0])
        rule = f"finite and within ±{LARGEST_REWARD:.0e}"
        raise copies[k].failure(f"its reward must be {rule}, got {table[k, t].tolist()}", t)
    return table


@contextlib.contextmanager
def kept_globally() -> Generator[None]:
    """NumPy's and Python's global generators afterwards as they were; keeping them again inside costs nothing.

    All that environments do is done inside, so that this is where signals are listened to.
    """
    if _kept:
        yield
        return
    before = _NUMPY_GLOBAL.get_state(legacy=False), random.getstate()
    _kept.append(True)
    try:
        with interrupts.listening():
            yield
    finally:
        _kept.pop()
        _NUMPY_GLOBAL.set_state(before[0])
        random.setstate(before[1])


@contextlib.contextmanager
def seeded_globally(seed: int) -> Generator[None]:
    """NumPy's and Python's global generators seeded inside, and afterwards as they were; overflow is no warning there.

    minecart draws its ore from the one, four-room its start from the other, whatever seed `reset` was given. Copies
    that share a process share these numbers: such an environment gives one result per number of workers.
    """
    with kept_globally(), np.errstate(over="ignore"):  # a reward that overflows is refused when all are looked at
        _NUMPY_GLOBAL.seed(seed)
        random.seed(seed)
        yield


def close(env: Any, what: str) -> None:
    """Close an environment; whatever goes wrong is a warning, but for the user's own interruption."""
    with interrupts.listening():
        try:
            env.close()
        except BaseException as error:
            if interrupts.is_of_user(error):
                raise
            warnings.warn(f"closing {what} raised {described(error)}.", RuntimeWarning, stacklevel=2)


def described(error: BaseException) -> str:
    """An error as one line, without a full stop; one that cannot even say what it is by its type alone."""
    text = ""
    with contextlib.suppress(Exception):
        text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}{f': {text}' if text else ''}"
