"""A folder that is there whole or not at all: built beside its place, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def building(out: Path) -> Generator[Path]:
    """A folder to build in, which becomes `out` at the end. An error leaves nothing; what a kill left is removed."""
    if out.exists():
        raise ValueError(f"`out` must not exist yet, got {out}.")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    for stale in out.absolute().parent.glob(f".{out.name}.building-*"):
        if not _alive(stale.name.rpartition("-")[2]):
            shutil.rmtree(stale, ignore_errors=True)
    folder = out.absolute().parent / f".{out.name}.building-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
        folder.rename(out)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out.absolute().parent)) from None
        raise


def _alive(process: str) -> bool:
    """Whether a process of that number runs."""
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
