"""The arrays of a dataset's folder, which may come from a stranger.

What they say of themselves is checked before it is believed: sizes before anything is allocated, indices before
anything is looked up by them.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np

from moac.files import DamagedError, check_regular
from moac.kuairand.schema import SIGNALS
from moac.logs.splits import SPLITS

Arrays = dict[str, np.ndarray[Any, Any]]
_FORMAT = (1, 0)
"""Of headers of at most 64 KB; that of longer ones is not read."""


class Kind(NamedTuple):
    """What an array must be.

    Attributes:
        axes: a name for each; the same name is the same length everywhere.
        kinds: of its numbers, as NumPy's letters.
        below: its numbers are at least 0 and less than the length of that name; None is any.
    """

    axes: str
    kinds: str = "iu"
    below: str | None = None


SHARED = {
    "user_ids": Kind("U"),
    "item_ids": Kind("I"),
    "action_ids": Kind("K"),
    "users": Kind("Ud", "iuf"),
    "items": Kind("Ie", "iuf"),
    "history": Kind("H", below="I"),
    "first": Kind("U", below="P"),
    "split": Kind("U", below="S"),
    "action_items": Kind("K", below="I"),
}
"""Of all parts together. A position P lies in the history, or just after it."""
ROWS = {
    "user": Kind("N", below="U"),
    "action": Kind("N", below="K"),
    "reward": Kind("NM", "f"),
    "time": Kind("N"),
    "context": Kind("NC"),
    "end": Kind("N", below="P"),
    "truncated": Kind("N", "b"),
}
"""Of one log."""


def shared(folder: Path) -> Arrays:
    """The arrays of all parts, checked."""
    return _checked(folder, "", SHARED, {"S": len(SPLITS)})


def rows(folder: Path, part: str, known: Mapping[str, np.ndarray[Any, Any]]) -> Arrays:
    """The arrays of one log, checked against those that are shared."""
    sizes = {"U": len(known["user_ids"]), "K": len(known["action_ids"]), "H": len(known["history"])}
    return _checked(folder, f"{part}/", ROWS, sizes | {"M": len(SIGNALS), "C": 3})


def _checked(folder: Path, prefix: str, kinds: Mapping[str, Kind], sizes: dict[str, int]) -> Arrays:
    found: Arrays = {}
    for name, kind in kinds.items():
        path = folder / "arrays" / f"{prefix}{name}.npy"
        found[name] = array(path)
        wanted = [sizes.get(axis, length) for axis, length in zip(kind.axes, found[name].shape, strict=False)]
        if len(kind.axes) != found[name].ndim or list(found[name].shape) != wanted:
            raise ValueError(f"{path} is damaged: it has shape {found[name].shape} in place of {tuple(wanted)}.")
        if found[name].dtype.kind not in kind.kinds:
            raise ValueError(f"{path} is damaged: it holds {found[name].dtype}.")
        sizes |= dict(zip(kind.axes, found[name].shape, strict=True))
        if kind.below is not None:
            _check_range(path, found[name], sizes["H"] + 1 if kind.below == "P" else sizes[kind.below])
    return found


def _check_range(path: Path, found: np.ndarray[Any, Any], below: int) -> None:
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < below:
        raise ValueError(f"{path} is damaged: its numbers must be in [0, {below}).")


def array(path: Path) -> np.ndarray[Any, Any]:
    """An array that stays on disk until it is used, and is no larger than its file."""
    try:
        check_regular(path)
        there = path.stat().st_size
        with path.open("rb") as file:
            start = _header(file, there)
        return np.load(path, mmap_mode="r" if there > start else None, allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: build the dataset again.") from None
    except DamagedError:
        raise
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def bundle(path: Path) -> Arrays:
    """The arrays of an .npz that `np.savez` wrote: not compressed, so that they are no larger than it."""
    try:
        with zipfile.ZipFile(path) as members:
            infos = members.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise ValueError("its arrays must not be compressed")
            needed, there = sum(info.file_size for info in infos), path.stat().st_size
            if needed > there:
                raise ValueError(f"its arrays speak of {needed} bytes, it has {there}")
            return {info.filename.removesuffix(".npy"): _member(members, info) for info in infos}
    except (*_DAMAGE, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise _damaged(path, error) from None


def _member(members: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    with members.open(info) as file:
        _header(file, info.file_size)
    with members.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


_DAMAGE = (ValueError, TypeError, OverflowError, RecursionError, MemoryError, OSError)
"""What a file that is none of ours makes NumPy raise."""


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is damaged: {' '.join(str(error).split()).rstrip('.')}.")


def _header(file: IO[bytes], there: int) -> int:
    """Where the numbers of an array start; refused where they do not end after so many bytes."""
    if np.lib.format.read_magic(file) != _FORMAT:
        raise ValueError("its format is not known")
    try:
        with warnings.catch_warnings(action="error"):  # it guesses at headers of Python 2, and says so
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (SyntaxError, TokenError, Warning) as error:
        raise ValueError(f"its header is none: {error}") from None
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError(f"it must hold numbers, got {dtype}")
    start = file.tell()
    needed = start + math.prod(shape) * dtype.itemsize
    if needed != there:
        raise ValueError(f"its header speaks of {needed} bytes, it has {there}")
    return start
