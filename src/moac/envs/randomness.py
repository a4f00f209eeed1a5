"""The random numbers that an environment takes from where no seed of its own reaches."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

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
