"""The history of a run, read and checked: a run from a stranger may say anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from moac import files
from moac.training.history import History


def read(path: Path, size: tuple[int, int]) -> History:
    """The history, with arrays of the shapes that K trials and M objectives ask for."""
    arrays, about = files.read_arrays(path)
    try:
        history = History.of_arrays(arrays, str(about["kind"]))
    except (KeyError, TypeError) as error:
        raise files.DamagedError(path, f"{error} is missing") from None
    (K, M), L = size, len(np.atleast_1d(history.iteration))
    cubes = ("returns", "weights", "min_norm_weights")
    for name, array in history.arrays().items():
        wanted = (L,) if name == "iteration" else (K, L, M) if name in cubes else (K, L)
        if array.shape != wanted or L == 0 or array.dtype.kind not in "fiu":
            told = f"`{name}` has shape {array.shape} and type {array.dtype}"
            raise files.DamagedError(path, f"{told} in place of {wanted} and numbers")
    return history
