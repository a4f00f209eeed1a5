"""Folders that are there whole or not at all, and one line where a disk is too small for them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from moac import locks


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
    folder = place.with_name(f".{out.name}.building-{fingerprint or 'new'}")
    with locks.held(place.with_name(f".{out.name}.lock"), out):
        refuse_existing(out, "out")
        for left in place.parent.glob(f".{out.name}.building-*"):
            if left != folder or fingerprint is None:
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
