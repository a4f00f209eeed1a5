"""The random numbers that an environment takes from where no seed of its own reaches."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

import numpy as np

_OWN = np.random.MT19937()


@contextlib.contextmanager
def seeded_globally(seed: int) -> Generator[None]:
    """NumPy's and Python's global generators seeded inside, and afterwards as they were.

    minecart draws its ore from the one, four-room its start from the other, whatever seed `reset` was given. Copies
    that share a process share these numbers: such an environment gives one result per number of workers.

    NumPy's is put aside whole and another takes its place: that costs a tenth of writing its 624 words back.
    """
    theirs, before = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002 - the environment's choice
    generator = np.random.get_bit_generator()
    np.random.set_bit_generator(_OWN)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_bit_generator(generator)
        if theirs["has_gauss"]:  # the second half of a pair of normal numbers, which the swap forgets
            np.random.set_state(theirs)  # noqa: NPY002
        random.setstate(before)
