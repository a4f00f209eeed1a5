"""How policies see an environment: observations as state indices or vectors in [0, 1]^d, actions as k numbers.

Encoder and action box are plain data, saved with a policy, so that it acts on the environment's own observations
without the environment's package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

MAX_STATES = 100_000
"""Where the bounds of a space allow more states than this, observations are vectors."""
KINDS = ("integer", "binary", "float")


@final
@dataclass(frozen=True)
class Leaf:
    """One array of an observation.

    Attributes:
        path: keys and positions that lead to it inside dictionaries and tuples.
        kind: `integer`, `binary` (whatever is not 0 counts as 1) or `float`.
        low: smallest value of each number, in C order.
        high: largest value of each number.
    """

    path: tuple[str | int, ...]
    kind: str
    low: tuple[float, ...]
    high: tuple[float, ...]


@final
@dataclass(frozen=True)
class Encoder:
    """The arrays of an observation, one after the other.

    Attributes:
        leaves: in the order in which they are strung together.
    """

    leaves: tuple[Leaf, ...]

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
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    @property
    def whole(self) -> bool:
        """Whether every number is whole, with finite bounds."""
        return self.bounded and all(leaf.kind != "float" for leaf in self.leaves)

    @cached_property
    def num_states(self) -> int | None:
        """S = Π (high − low + 1) where all numbers are whole and S is at most `MAX_STATES`; else None."""
        if not self.whole:
            return None
        count = math.prod(int(high - low) + 1 for low, high in zip(self.low, self.high, strict=True))
        return count if count <= MAX_STATES else None

    @cached_property
    def lookup_key(self) -> Callable[[Any], Hashable]:
        """Observation ↦ something to look it up by, equal for equal observations of one dtype; cheap."""
        if len(self.leaves) == 1 and not self.leaves[0].path:
            return lambda observation: (
                observation.tobytes() if type(observation) is np.ndarray else _scalar(observation)
            )
        return lambda observation: self.flat(observation).tobytes()

    def flat(self, observation: Any) -> Float[np.ndarray, " d"]:
        """All numbers of an observation, as float64."""
        parts = [_part(leaf, observation) for leaf in self.leaves]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def state(self, observation: Any) -> int:
        """The index of a state: its numbers as the digits of one, the last the fastest."""
        flat = self.flat(observation)
        if not ((flat >= self.low) & (flat <= self.high) & (flat == np.floor(flat))).all():
            raise ValueError(f"an observation must lie in its space, got {_numbers(flat)}.")
        return int((flat - self.low) @ self._strides)

    def scale(self, moments: Moments | None) -> Scale:
        """How vectors come into [0, 1]: by their moments, or where these are not kept, by the bounds of the space."""
        return Scale.between(self.low, self.high) if moments is None else moments.scale()

    def to_json(self) -> list[dict[str, Any]]:
        """As plain JSON data; infinite bounds are null."""
        return [
            {"path": list(leaf.path), "kind": leaf.kind, "low": _finite(leaf.low), "high": _finite(leaf.high)}
            for leaf in self.leaves
        ]

    @classmethod
    def from_json(cls, data: Any) -> Encoder:
        """An encoder from what `to_json` made; anything else is a ValueError."""
        try:
            return cls(tuple(_leaf(entry) for entry in data))
        except (KeyError, TypeError) as error:
            raise ValueError(f"`encoder` must be a list of leaves with path, kind, low and high: {error}.") from None

    @cached_property
    def _strides(self) -> Int[np.ndarray, " d"]:
        radix = (self.high - self.low + 1).astype(np.int64)
        return np.append(np.cumprod(radix[::-1])[-2::-1], 1)


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """x ↦ clip((x − shift)·gain, 0, 1): where the numbers of an observation lie between two ends.

    Attributes:
        shift: [d], what becomes 0.
        gain: [d], 1 / (what becomes 1 − shift).
    """

    shift: Float[np.ndarray, " d"]
    gain: Float[np.ndarray, " d"]

    def __call__(self, flat: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """The scaled vectors, in single precision."""
        return np.clip((flat - self.shift) * self.gain, 0.0, 1.0).astype(np.float32)

    @classmethod
    def between(cls, low: Float[np.ndarray, " d"], high: Float[np.ndarray, " d"]) -> Scale:
        """From `low` to `high`; a number that cannot move becomes 0."""
        width = high - low
        return cls(low, np.divide(1.0, width, out=np.zeros_like(width), where=width > 0))


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """Running mean and spread of observations (Chan, Golub and LeVeque, 1983).

    Attributes:
        count: observations seen.
        mean: [d].
        squares: [d] sum of squared deviations.
        reach: how many standard deviations from the mean are told apart.
    """

    count: Float[np.ndarray, ""]
    mean: Float[np.ndarray, " d"]
    squares: Float[np.ndarray, " d"]
    reach: Float[np.ndarray, ""]

    @classmethod
    def nothing(cls, size: int, reach: float = 3.0) -> Moments:
        """Nothing seen yet."""
        return cls(np.zeros(()), np.zeros(size), np.zeros(size), np.array(reach))

    @classmethod
    def of(cls, memory: Mapping[str, Any] | None, trial: int | None = None) -> Moments | None:
        """The moments that a chain has kept, or of one of K; None where it keeps none."""
        if not memory:
            return None
        return cls(**{name: np.asarray(value if trial is None else value[trial]) for name, value in memory.items()})

    def including(self, flat: Float[np.ndarray, "n d"]) -> Moments:
        """The moments after n more observations."""
        n, mean = len(flat), flat.mean(axis=0)
        total, delta = self.count + n, mean - self.mean
        squares = self.squares + ((flat - mean) ** 2).sum(axis=0) + delta**2 * self.count * n / total
        return Moments(np.asarray(total), self.mean + delta * n / total, squares, self.reach)

    def scale(self) -> Scale:
        """From mean − reach·σ to mean + reach·σ; σ = 1 before anything is seen, and where nothing moves."""
        sigma = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        sigma = np.where(sigma > 1e-8, sigma, 1.0)
        return Scale.between(self.mean - self.reach * sigma, self.mean + self.reach * sigma)


@final
@dataclass(frozen=True)
class ActionBox:
    """The bounds, shape and precision of continuous actions, as the environment takes them.

    Policies act on k real numbers in single precision, in the environment's own units.

    Attributes:
        shape: of an action.
        dtype: of its numbers, by name.
        low: smallest value of each number, in C order; may be infinite.
        high: largest value of each number.
    """

    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """k."""
        return len(self.low)

    def __call__(self, flat: Float[np.ndarray, "... k"]) -> np.ndarray[Any, Any]:
        """What the environment takes, a new array [..., *shape]; a number outside its bounds becomes the nearest."""
        low, high = self._bounds
        inside = np.clip(np.asarray(flat, dtype=self.dtype), low, high)
        return inside.reshape(*np.shape(flat)[:-1], *self.shape)

    def flat(self, action: Any) -> Float[np.ndarray, " k"]:
        """The numbers of one action, as policies see them."""
        numbers = np.asarray(action, dtype=np.float32).reshape(-1)
        if len(numbers) != self.size:
            raise ValueError(f"`action` must have {self.size} numbers, got {len(numbers)}.")
        return numbers

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data; infinite bounds are null."""
        return {"shape": list(self.shape), "dtype": self.dtype, "low": _finite(self.low), "high": _finite(self.high)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ActionBox:
        """A box from what `to_json` made; anything else is a ValueError."""
        try:
            low, high = _bounds(data)
            box = cls(tuple(int(n) for n in data["shape"]), np.dtype(data["dtype"]).name, low, high)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"`actions` must have a shape, a dtype, low and high: {error}.") from None
        if not len(low) == len(high) == math.prod(box.shape) or not np.issubdtype(box.dtype, np.floating):
            raise ValueError(f"`actions` must be real numbers with one bound each way, got {data}.")
        return box

    @cached_property
    def _bounds(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return np.array(self.low, dtype=self.dtype), np.array(self.high, dtype=self.dtype)


def _part(leaf: Leaf, observation: Any) -> Float[np.ndarray, " n"]:
    for key in leaf.path:
        observation = observation[key]
    flat = np.array(observation, dtype=np.float64).reshape(-1)
    if len(flat) != len(leaf.low):
        raise ValueError(f"an observation must have {len(leaf.low)} numbers at {_where(leaf.path)}, got {len(flat)}.")
    return (flat != 0).astype(np.float64) if leaf.kind == "binary" else flat


def _where(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) or "its only array"


def _scalar(observation: Any) -> Hashable:
    return observation if isinstance(observation, int | np.integer) else np.asarray(observation).tobytes()


def _numbers(flat: Float[np.ndarray, " d"]) -> str:
    return f"[{', '.join(f'{value:g}' for value in flat[:16])}{', …' if len(flat) > 16 else ''}]"


def _finite(values: tuple[float, ...]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _leaf(entry: Mapping[str, Any]) -> Leaf:
    if entry["kind"] not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {entry['kind']!r}.")
    return Leaf(tuple(entry["path"]), entry["kind"], *_bounds(entry))


def _bounds(data: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Low and high from JSON, where null is infinite."""
    low = tuple(-math.inf if value is None else float(value) for value in data["low"])
    return low, tuple(math.inf if value is None else float(value) for value in data["high"])
