"""The random numbers that an environment takes from where no seed of its own reaches."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

_kept: list[bool] = []
"""Not empty while somebody outside puts the global generators back."""


@contextlib.contextmanager
def kept_globally() -> Generator[None]:
    """NumPy's and Python's global generators afterwards as they were; inside, keeping them again costs nothing."""
    if _kept:
        yield
        return
    before = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002 - it is the environment's choice
    _kept.append(True)
    try:
        yield
    finally:
        _kept.pop()
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])


@contextlib.contextmanager
def seeded_globally(seed: int) -> Generator[None]:
    """NumPy's and Python's global generators seeded inside, and afterwards as they were.

    minecart draws its ore from the one, four-room its start from the other, whatever seed `reset` was given. Copies
    that share a process share these numbers: such an environment gives one result per number of workers.
    """
    with kept_globally():
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        yield


def used_globally(seed: int) -> bool:
    """Whether somebody took a number since both global generators were seeded with `seed`; they are not put back."""
    before = np.random.random_sample(), random.random()  # noqa: NPY002, S311
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    return before != (np.random.random_sample(), random.random())  # noqa: NPY002, S311


def generator_state(env: Any) -> Mapping[str, Any] | None:
    """The state of an environment's own generator as plain data; None where it has none, or not such a one."""
    with contextlib.suppress(AttributeError, TypeError):
        found = env.unwrapped.np_random.bit_generator.state
        return found if isinstance(found["state"].get("inc"), int) else None
    return None
