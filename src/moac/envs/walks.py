"""The steps of an iteration: what is drawn before, and what is left behind.

The policy does not change within an iteration, so that copies are independent of each other. Where an episode ends the
copy restarts in the same step; the successor that is kept is the true one, also after truncation and after a forced
restart. Where `terminated` and `truncated` are both true, the environment's clock has run out: that is truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float

from moac.types import Sampling


class Noise(NamedTuple):
    """The random numbers of n actions.

    Attributes:
        uniform: [n].
        normal: [n, k], standard; None where actions are indices.
    """

    uniform: Float[np.ndarray, " n"]
    normal: Float[np.ndarray, "n k"] | None


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
class Walks:
    """What n copies did in T steps, leading axes [n, T].

    Observations are states, or vectors as they came; actions are indices, or vectors as the policy gave them.
    """

    observation: np.ndarray[Any, Any]
    action: np.ndarray[Any, Any]
    reward: Float[np.ndarray, "n T M"]
    next_observation: np.ndarray[Any, Any]
    terminated: Bool[np.ndarray, "n T"]
    age: Any

    def ageless(self) -> Walks:
        """The same without ages, which only `visitation="discounted"` asks for."""
        return replace(self, age=None)

    @classmethod
    def joined(cls, parts: list[Walks]) -> Walks:
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
