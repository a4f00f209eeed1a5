"""From Gymnasium's spaces to an encoder of observations, and to a number of actions or the box they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from moac.policies.encoding import ActionBox, Encoder, Leaf

_KNOWN = "Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these"


def encoder_of(space: Any) -> Encoder:
    """The encoder of an observation space; what it cannot hold is a ValueError that names the part."""
    return Encoder(tuple(_leaves(space, ())))


def actions_of(space: Any) -> int | ActionBox:
    """A of a discrete action space, or the box of a continuous one."""
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise ValueError(f"`action_space` must start at 0, got {space}.")
        return int(space.n)
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"`action_space` must be Discrete or a Box of real numbers, got {space}.")
    low, high = _bounds(space)
    if not low or any(a >= b for a, b in zip(low, high, strict=True)):
        raise ValueError(f"`action_space` must leave every number some room between its bounds, got {space}.")
    return ActionBox(tuple(space.shape), np.dtype(space.dtype).name, low, high)


def _leaves(space: Any, path: tuple[str | int, ...]) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            yield from _leaves(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, place))
    else:
        yield _leaf(space, path)


def _leaf(space: Any, path: tuple[str | int, ...]) -> Leaf:
    if isinstance(space, spaces.Discrete):
        return Leaf(path, "integer", (float(space.start),), (float(space.start + space.n - 1),))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        return Leaf(path, "integer", _flat(start), _flat(start + space.nvec - 1))
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return Leaf(path, "binary", (0.0,) * count, (1.0,) * count)
    if isinstance(space, spaces.Box):
        whole = np.issubdtype(space.dtype, np.integer) or np.issubdtype(space.dtype, np.bool_)
        return Leaf(path, "integer" if whole else "float", *_bounds(space))
    where = f" at {'.'.join(map(str, path))}" if path else ""
    raise ValueError(f"`observation_space` must be {_KNOWN}, got {space}{where}.")


def _bounds(space: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds; one that stands for no bound, such as the largest float, is infinite."""
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    low, high = np.where(low < -1e30, -np.inf, low), np.where(high > 1e30, np.inf, high)
    return _flat(low), _flat(high)


def _flat(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in np.asarray(values).reshape(-1))
