"""What may go wrong with a place to write to, said in one line before or when it does."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def refuse_existing(target: Path) -> None:
    """Nothing of the user's is written over."""
    if target.exists() or target.is_symlink():
        raise ValueError(f"{target} exists already: use it, or remove it first.")


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
