"""Folders of data: written whole or not at all; a dataset's manifest and arrays, checked before they are believed.

`manifest.json` says what the dataset was built from and what came out; `encoding.json` what was fitted; the arrays are
safetensors: `shared` of all logs together, `rows` of the log trained on, `random` of random exposure.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moac import files, locks
from moac.files import Arrays, DamagedError
from moac.logs.splits import SPLITS

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

FORMAT = 2
MANIFEST = "manifest.json"
ENCODING = "encoding.json"
PARTS = ("rows", "random")
"""The log trained on, and the log of random exposure beside it."""


class Expected(NamedTuple):
    """What an array must be.

    Attributes:
        axes: a name for each; the same name is the same length everywhere.
        kinds: of its numbers, as NumPy's letters.
        below: its numbers are at least 0 and less than the length of that name; None is any.
    """

    axes: str
    kinds: str = "iu"
    below: str | None = None


_SHARED = {
    "user_ids": Expected("U"), "item_ids": Expected("I"), "action_ids": Expected("K"), "users": Expected("Ud", "iuf"),
    "items": Expected("Ie", "iuf"), "history": Expected("H", below="I"), "first": Expected("U", below="P"),
    "split": Expected("U", below="S"), "action_items": Expected("K", below="I"), "views": Expected("U"),
}  # fmt: skip
"""Of all logs together. A position P lies in the history, or just after it."""
_ROWS = {
    "user": Expected("N", below="U"), "action": Expected("N", below="K"), "reward": Expected("NM", "f"),
    "time": Expected("N"), "context": Expected("NC"), "end": Expected("N", below="P"),
    "truncated": Expected("N", "b"),
}  # fmt: skip
"""Of one log."""


def refuse_existing(target: Path, name: str | None = None) -> None:
    """Nothing of the user's is written over; `name` is the argument that names the place."""
    if target.exists() or target.is_symlink():
        right = f"`{name}` must not exist yet, got {target}" if name else f"{target} exists already"
        raise ValueError(f"{right}: use it, or remove it first.")


def check_room(folder: Path, what: str, needed: int) -> None:
    """Say that a disk is too small before the work, not hours later."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(f"{folder}: the disk is too full: {what} needs {needed:,} bytes, {free:,} are free.")


@contextmanager
def full_disk_said(folder: Path, cure: str) -> Generator[None]:
    """A disk that fills up is a user's problem, not a defect; `cure` says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ValueError(f"{folder}: the disk is full. {cure}") from None


@contextmanager
def becoming(out: Path, fingerprint: str | None = None) -> Generator[Path]:
    """A folder to work in that becomes `out` at the end, for one process at a time. An error leaves nothing.

    Args:
        out: must not exist.
        fingerprint: of what is made. What an interrupt or a kill has left of the same is found in the folder by the
            next call; None, or a change of it, starts with an empty one.
    """
    place = out.absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = f".{out.name}.building-"
    folder = files.below(place.parent, f"{unfinished}{fingerprint or 'new'}")
    with locks.held(place.with_name(f".{out.name}.lock"), out):
        refuse_existing(out, "out")
        for left in place.parent.iterdir():
            if left.name.startswith(unfinished) and (left != folder or fingerprint is None):
                shutil.rmtree(left)
        folder.mkdir(exist_ok=True)
        try:
            yield folder
            folder.rename(out)
        except BaseException as error:
            if fingerprint is None or not isinstance(error, KeyboardInterrupt):
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place.parent)) from None
            raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset, with one clear line where there is none or it is not ours."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} is no dataset: it has no {MANIFEST}. Build one with moac data kuairand build.")
    about = files.read_json(path)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{folder} was built by another version of moac: build the dataset again.")
    return about


def read_shared(folder: Path) -> Arrays:
    """The arrays of all logs together, checked."""
    return _checked(folder / "arrays" / "shared.safetensors", _SHARED, {"S": len(SPLITS)})


def read_rows(folder: Path, part: str, shared: Mapping[str, Any], about: Mapping[str, Any]) -> Arrays:
    """The arrays of one log, checked against those that are shared and against the manifest."""
    sizes = {"U": len(shared["user_ids"]), "K": len(shared["action_ids"]), "H": len(shared["history"])}
    sizes |= {"M": len(about["signals"]), "C": len(about["context"])}
    return _checked(folder / "arrays" / f"{part}.safetensors", _ROWS, sizes)


def load(folder: Path) -> LoggedDataset:
    """The dataset of a folder."""
    about = read_manifest(folder)
    try:
        return _loaded(folder, about)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(folder / MANIFEST, f"{error} is missing or wrong") from None


def _loaded(folder: Path, about: dict[str, Any]) -> LoggedDataset:
    from moac.logs.dataset import LoggedDataset
    from moac.logs.states import Tables

    shared: dict[str, Any] = read_shared(folder)
    context = {str(name): int(size) for name, size in about["context"].items()}
    features = {name: shared[name] for name in ("users", "items", "history", "first")}
    tables = Tables(**features, context_sizes=tuple(context.values()), window=int(about["window"]))
    common: dict[str, Any] = {
        "tables": tables,
        **{name: shared[name] for name in ("split", "user_ids", "action_ids", "action_items", "item_ids")},
        "signal_names": tuple(about["signals"]),
        "signs": tuple(signal["sign"] for signal in about["signals"].values()),
        "context_names": tuple(context),
        "feature_names": _feature_names(files.read_json(folder / ENCODING), context, tables.window),
    }
    if not set(common["signs"]) <= {1, -1} or len(common["feature_names"]) != tables.size:
        raise ValueError(f"{folder} is damaged: its signals or features are not those of its arrays.")
    parts = {part: read_rows(folder, part, shared, about) for part in PARTS if part in about["parts"]}
    uniform = {part: part == "random" or about["primary"] == "random" for part in parts}
    num_actions = len(shared["action_ids"])
    columns = {part: _columns(rows, num_actions if uniform[part] else None) for part, rows in parts.items()}
    random = None
    if "random" in parts:
        name, fingerprint = f"{about['name']}-random", f"{about['content'][:16]}:random"
        random = LoggedDataset(name, **columns["random"], **common, fingerprint=fingerprint)
    about_rows: dict[str, Any] = {"fingerprint": about["content"][:16], "folder": str(folder.resolve())}
    return LoggedDataset(about["name"], **columns["rows"], **common, **about_rows, random=random)


def _columns(rows: Arrays, num_actions: int | None) -> dict[str, Any]:
    """Columns of one log; where exposure was uniform the propensity, given that the item is an action, is 1/K."""
    count = len(rows["user"])
    propensity = None if num_actions is None else np.full(count, 1 / num_actions, dtype=np.float32)
    return rows | {"terminated": np.zeros(count, dtype=bool), "propensity": propensity}


def _feature_names(encoding: Any, context: Mapping[str, int], window: int) -> tuple[str, ...]:
    """Of all numbers of a state, in the order of `states.features`."""
    codes = (f"{name}={code}" for name, size in context.items() for code in range(size))
    items = ("seen", *encoding["item_names"])
    viewed = (f"item -{k}: {name}" for k in range(1, window + 1) for name in items)
    return (*encoding["user_names"], *codes, *viewed)


def _checked(path: Path, expected: Mapping[str, Expected], sizes: dict[str, int]) -> Arrays:
    arrays = files.read_arrays(path)[0]
    for name, (axes, kinds, below) in expected.items():
        if name not in arrays:
            raise DamagedError(path, f"`{name}` is missing")
        array = arrays[name]
        wanted = [sizes.get(axis, length) for axis, length in zip(axes, array.shape, strict=False)]
        if len(axes) != array.ndim or list(array.shape) != wanted:
            raise DamagedError(path, f"`{name}` has shape {array.shape} in place of {tuple(wanted)}")
        if array.dtype.kind not in kinds:
            raise DamagedError(path, f"`{name}` holds {array.dtype}")
        sizes |= dict(zip(axes, array.shape, strict=True))
        limit = None if below is None else sizes["H"] + 1 if below == "P" else sizes[below]
        if limit is not None and array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
            raise DamagedError(path, f"`{name}` must be in [0, {limit})")
    return {name: arrays[name] for name in expected}
