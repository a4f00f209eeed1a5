"""Bring an environment back to where it stood: its generator as it was before the episode, then the same actions.

No environment can be stored as it is. What can be stored is how its episode began and what was done in it; that it came
out at the same place, with the same rewards and the same random numbers to come, is checked.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from moac.envs.copies import Copy, packed
from moac.envs.randomness import generator_state

LONGEST = 20_000
"""Steps of one copy that are remembered; an episode that is longer cannot be brought back."""


class Standing(NamedTuple):
    """Where a copy stands.

    Attributes:
        steps: taken since it was made.
        elapsed: steps of this episode.
        age: steps since the last start of its chain.
        first: whether this is its first episode, which its seed began.
        origin: state of its generator before the episode, where it is not the first.
        now: state of its generator.
        seen: what it shows: a state, or numbers.
    """

    steps: int
    elapsed: int
    age: int
    first: bool
    origin: Mapping[str, Any] | None
    now: Mapping[str, Any] | None
    seen: Any

    @property
    def storable(self) -> bool:
        """Whether the episode can begin again."""
        return self.elapsed <= LONGEST and (self.first or self.origin is not None)


class Past(NamedTuple):
    """A copy's episode.

    Attributes:
        standing: where it led.
        actions: what was done [elapsed, ...], as the policy gave it.
        rewards: what came of it [elapsed, M].
    """

    standing: Standing
    actions: Any
    rewards: np.ndarray[Any, Any]


@final
@dataclass(eq=False)
class Diary:
    """The last actions and rewards of a chain's copies, enough for an episode of each.

    Attributes:
        before: of each copy, what it did before the first walk; empty for a chain that started here.
    """

    before: Sequence[tuple[Any, Any]] = ()
    _walks: deque[tuple[Any, Any]] = field(default_factory=deque[tuple[Any, Any]])
    _steps: int = 0

    def add(self, actions: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> None:
        """The walk [n, T] of all copies."""
        self._walks.append((actions, rewards))
        self._steps += actions.shape[1]
        self.keep(LONGEST)

    def keep(self, steps: int) -> None:
        """Forget what lies further back."""
        while self._walks and self._steps - self._walks[0][0].shape[1] >= steps:
            self._steps -= self._walks.popleft()[0].shape[1]
            self.before = ()
        if self._steps >= steps:
            self.before = ()

    def last(self, copy: int, steps: int) -> list[np.ndarray[Any, Any]]:
        """A copy's last actions and rewards."""
        before = [part for part in self.before[copy : copy + 1] if len(part[0])]
        parts = [*before, *((actions[copy], rewards[copy]) for actions, rewards in self._walks)]
        return [np.concatenate(column)[-steps:] for column in zip(*parts, strict=True)]


def standing(copy: Copy, seen: Any) -> Standing:
    """Where a copy stands, and what it shows."""
    return Standing(copy.steps, copy.elapsed, copy.age, copy.first, copy.origin, generator_state(copy.env), seen)


def revived(copy: Copy, past: Past, given: Callable[[Any], Any], see: Callable[[Copy], Any]) -> bool:
    """Bring a new copy, made with the same seed, to where another stood; whether it got there.

    Args:
        copy: the new one.
        past: the other's.
        given: actions of a policy as the environment takes them.
        see: what a copy shows.
    """
    there = past.standing
    try:
        if not there.first:
            copy.env.unwrapped.np_random.bit_generator.state = there.origin
            copy.restart()
        actions = given(past.actions) if there.elapsed else ()
        for action, reward in zip(actions, past.rewards, strict=True):
            copy.observation, earned, terminated, truncated, _ = copy.env.step(action)
            if packed(earned) != reward.tobytes() or terminated or truncated:
                return False
        copy.steps, copy.elapsed, copy.age = there.steps, there.elapsed, there.age
        same = generator_state(copy.env) == there.now and len(actions) == there.elapsed
        return same and bool(np.array_equal(see(copy), there.seen))
    except Exception:  # whatever a file from a stranger makes it do: it did not get there
        return False


def packed_up(seeds: Sequence[int], standings: Sequence[Standing], diary: Diary) -> dict[str, np.ndarray[Any, Any]]:
    """All of a chain as arrays by name."""
    diary.keep(max(there.elapsed for there in standings))
    plain = [there._replace(seen=None)._asdict() for there in standings]
    told = [diary.last(k, there.elapsed) for k, there in enumerate(standings) if there.elapsed]
    return {
        "seeds": np.asarray(seeds, dtype=np.uint32),
        "seen": np.asarray([there.seen for there in standings]),
        "standing": np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8),
        **{name: np.concatenate(x) for name, x in zip(("actions", "rewards"), zip(*told, strict=True), strict=False)},
    }


def unpacked(stored: Mapping[str, np.ndarray[Any, Any]]) -> list[Past]:
    """What `packed_up` made; what is not such a thing raises whatever it raises."""
    pasts: list[Past] = []
    done = 0
    for plain, seen in zip(json.loads(stored["standing"].tobytes()), stored["seen"], strict=True):
        there = Standing(**plain)._replace(seen=seen)
        here = slice(done, done := done + there.elapsed)
        told = (stored[name][here] if there.elapsed else np.zeros((0, 0)) for name in ("actions", "rewards"))
        pasts.append(Past(there, *told))
    return pasts
