"""The spaces of an environment as plain data: observations as state indices or vectors, actions as k numbers.

Encoder and action box are saved with a policy, so that it acts without the environment's package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from moac.choices import not_real

MAX_STATES = 100_000
"""Where the bounds of a space allow more states than this, observations are vectors."""
_INTEGERS = (int, np.integer)
KINDS = ("integer", "binary", "float", "preference")


@dataclass(frozen=True)
class Leaf:
    """One array of an observation."""

    path: tuple[str | int, ...]  # keys and positions that lead to it inside dictionaries and tuples
    # `integer`, `binary` (whatever is not 0 counts as 1), `float`, or `preference`: p, which stands beside the
    # observation and not in it
    kind: str
    low: tuple[float, ...]  # smallest value of each number, in C order
    high: tuple[float, ...]  # largest value of each number

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Leaf:
        """A leaf from an entry of what `Encoder.to_json` made."""
        if entry["kind"] not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {entry['kind']!r}.")
        return cls(tuple(entry["path"]), entry["kind"], *_read_bounds(entry))

    def flat(self, observation: Any) -> Float[np.ndarray, " n"]:
        """The leaf's numbers in an observation, as float64."""
        where = ".".join(map(str, self.path)) or "its only array"
        try:
            for key in self.path:
                observation = observation[key]
        except (IndexError, KeyError, TypeError):
            raise ValueError(f"`observation` must have {len(self.low)} numbers at {where}, got none.") from None
        try:
            numbers = np.asarray(observation)
        except ValueError:
            raise ValueError(f"`observation` must hold numbers at {where}, got lists of several lengths.") from None
        if (held := not_real(numbers)) is not None:
            raise ValueError(f"`observation` must hold real numbers at {where}, got {held}.")
        flat = numbers.astype(np.float64).reshape(-1)
        if len(flat) != len(self.low):
            raise ValueError(f"`observation` must have {len(self.low)} numbers at {where}, got {len(flat)}.")
        return (flat != 0).astype(np.float64) if self.kind == "binary" else flat


@dataclass(frozen=True)
class Encoder:
    """The arrays of an observation, one after the other."""

    leaves: tuple[Leaf, ...]

    def __reduce__(self) -> Any:
        return type(self), (self.leaves,)  # without functions that are kept

    @cached_property
    def low(self) -> Float[np.ndarray, " d"]:
        """Smallest values, all leaves."""
        return np.array([value for leaf in self.leaves for value in leaf.low], dtype=np.float64)

    @cached_property
    def high(self) -> Float[np.ndarray, " d"]:
        """Largest values, all leaves."""
        return np.array([value for leaf in self.leaves for value in leaf.high], dtype=np.float64)

    @property
    def size(self) -> int:
        """d, how many numbers an observation holds."""
        return len(self.low)

    @property
    def bounded(self) -> bool:
        """Whether every number has finite bounds."""
        return bool(np.isfinite([self.low, self.high]).all())

    @property
    def whole(self) -> bool:
        """Whether every number is whole, with finite bounds."""
        return self.bounded and all(leaf.kind in ("integer", "binary") for leaf in self.leaves)

    @cached_property
    def bare(self) -> Encoder:
        """Without the preference."""
        return Encoder(tuple(leaf for leaf in self.leaves if leaf.kind != "preference"))

    @cached_property
    def preference_size(self) -> int:
        """M, where a preference follows the observation; else 0."""
        return self.size - self.bare.size

    def with_preference(self, size: int) -> Encoder:
        """With a preference of so many numbers at the end; once."""
        return Encoder((*self.bare.leaves, Leaf((), "preference", (0.0,) * size, (1.0,) * size)))

    @cached_property
    def num_states(self) -> int | None:
        """S = Π (high − low + 1) where all numbers are whole and S is at most `MAX_STATES`; else None."""
        if not self.whole:
            return None
        # In floats, whose product ends at infinity: the whole number of an image's states has a million digits.
        count = math.prod(float(high - low) + 1.0 for low, high in zip(self.low, self.high, strict=True))
        return int(count) if count <= MAX_STATES else None

    @cached_property
    def lookup_key(self) -> Callable[[Any], Hashable]:
        """Observation ↦ something to look it up by, equal for equal observations of one dtype; cheap."""
        if len(self.leaves) == 1 and not self.leaves[0].path:
            return lambda x: x if isinstance(x, _INTEGERS) else np.asarray(x).tobytes()
        return lambda x: self.flat(x).tobytes()

    def flat(self, observation: Any, preference: Any = None) -> Float[np.ndarray, " d"]:
        """All numbers of an observation, those of a preference last; a vector of real numbers is read at once."""
        if type(observation) is np.ndarray and observation.shape == self.plain_shape and observation.dtype.kind == "f":
            return np.concatenate((observation, preference)) if self.preference_size else observation
        parts = [leaf.flat(preference if leaf.kind == "preference" else observation) for leaf in self.leaves]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def state(self, observation: Any) -> int:
        """The index of a state: its numbers as the digits of one, the last the fastest."""
        flat = self.flat(observation)
        if not ((flat >= self.low) & (flat <= self.high) & (flat == np.floor(flat))).all():
            numbers = np.array2string(flat, threshold=16, separator=", ", formatter={"float_kind": "{:g}".format})
            raise ValueError(f"`observation` must lie in its space, got {numbers}.")
        return int((flat - self.low) @ self.strides)

    def to_json(self) -> list[dict[str, Any]]:
        """As plain JSON data; infinite bounds are null."""
        return [{"path": list(leaf.path), "kind": leaf.kind, **_written_bounds(leaf)} for leaf in self.leaves]

    @classmethod
    def from_json(cls, data: Any) -> Encoder:
        """An encoder from what `to_json` made; anything else is a ValueError."""
        try:
            return cls(tuple(map(Leaf.from_json, data)))
        except (KeyError, TypeError) as error:
            raise ValueError(f"`encoder` must be a list of leaves with path, kind, low and high: {error}.") from None

    @cached_property
    def plain_shape(self) -> tuple[int] | None:
        """The shape of observations that are one vector of real numbers; None where they are something else."""
        plain = [(leaf.path, leaf.kind) for leaf in self.bare.leaves] == [((), "float")]
        return (self.bare.size,) if plain else None

    @cached_property
    def strides(self) -> Int[np.ndarray, " d"]:
        """How far the index of a state moves with each number."""
        radix = (self.high - self.low + 1).astype(np.int64)
        return np.append(np.cumprod(radix[::-1])[-2::-1], 1)


@dataclass(frozen=True)
class ActionBox:
    """The bounds, shape and precision of continuous actions, as the environment takes them.

    Policies act on k real numbers in single precision, in the environment's own units.
    """

    shape: tuple[int, ...]  # of an action
    dtype: str  # of its numbers, by name
    low: tuple[float, ...]  # smallest value of each number, in C order; may be infinite
    high: tuple[float, ...]  # largest value of each number

    @property
    def size(self) -> int:
        """k."""
        return len(self.low)

    def __call__(self, flat: Float[np.ndarray, "... k"]) -> np.ndarray[Any, Any]:
        """What the environment takes, a new array [..., *shape]; a number outside its bounds becomes the nearest."""
        low, high = self._bounds
        inside = np.minimum(np.maximum(np.asarray(flat, dtype=self.dtype), low), high)
        return inside.reshape(*np.shape(flat)[:-1], *self.shape)

    def flat(self, action: Any) -> Float[np.ndarray, " k"]:
        """The numbers of one action, as policies see them."""
        numbers = np.asarray(action, dtype=np.float32).reshape(-1)
        if len(numbers) != self.size:
            raise ValueError(f"`action` must have {self.size} numbers, got {len(numbers)}.")
        return numbers

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data; infinite bounds are null."""
        return {"shape": list(self.shape), "dtype": self.dtype, **_written_bounds(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ActionBox:
        """A box from what `to_json` made; anything else is a ValueError."""
        try:
            low, high = _read_bounds(data)
            box = cls(tuple(int(n) for n in data["shape"]), np.dtype(data["dtype"]).name, low, high)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"`actions` must have a shape, a dtype, low and high: {error}.") from None
        if not len(low) == len(high) == math.prod(box.shape) or not np.issubdtype(box.dtype, np.floating):
            raise ValueError(f"`actions` must be real numbers with one bound each way, got {data}.")
        return box

    @cached_property
    def _bounds(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return np.array(self.low, dtype=self.dtype), np.array(self.high, dtype=self.dtype)


def _read_bounds(data: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Low and high from JSON, where null is infinite."""
    low = tuple(-math.inf if value is None else float(value) for value in data["low"])
    return low, tuple(math.inf if value is None else float(value) for value in data["high"])


def _written_bounds(bounded: Any) -> dict[str, list[float | None]]:
    """`low` and `high` of an object for JSON, where infinite is null."""
    return {name: [x if math.isfinite(x) else None for x in getattr(bounded, name)] for name in ("low", "high")}
