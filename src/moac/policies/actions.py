"""Continuous actions as an environment takes them.

Policies act on k real numbers in single precision, in the environment's own units. What the environment is given has
the shape and the precision of its action space, and lies within its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float


@final
@dataclass(frozen=True)
class ActionBox:
    """A box of real numbers. Plain data, saved with a policy.

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
        low, high = ([x if math.isfinite(x) else None for x in side] for side in (self.low, self.high))
        return {"shape": list(self.shape), "dtype": self.dtype, "low": low, "high": high}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ActionBox:
        """A box from what `to_json` made; anything else is a ValueError."""
        try:
            low = tuple(-math.inf if x is None else float(x) for x in data["low"])
            high = tuple(math.inf if x is None else float(x) for x in data["high"])
            box = cls(tuple(int(n) for n in data["shape"]), np.dtype(data["dtype"]).name, low, high)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"`actions` must have a shape, a dtype, low and high: {error}.") from None
        if not len(low) == len(high) == math.prod(box.shape) or not np.issubdtype(box.dtype, np.floating):
            raise ValueError(f"`actions` must be real numbers with one bound each way, got {data}.")
        return box

    @cached_property
    def _bounds(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return np.array(self.low, dtype=self.dtype), np.array(self.high, dtype=self.dtype)
