"""A folder that is there whole or not at all: built beside its place, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from moac import locks


@contextmanager
def building(out: Path) -> Generator[Path]:
    """A folder to build in, which becomes `out` at the end. An error leaves nothing; what a kill left is removed."""
    _prepare(out)
    for stale in out.absolute().parent.glob(f".{out.name}.building-*"):
        if not _alive(stale.name.rpartition("-")[2]):
            shutil.rmtree(stale, ignore_errors=True)
    folder = out.absolute().parent / f".{out.name}.building-{os.getpid()}"
    folder.mkdir()
    with _becoming(out, folder, kept=()):
        yield folder


@contextmanager
def resumable(out: Path) -> Generator[Path]:
    """Like `building`, for one process at a time; what an interrupt or a kill leaves is found by the next call."""
    _prepare(out)
    folder = out.absolute().parent / f".{out.name}.building"
    with locks.held(folder.with_suffix(".lock"), out):
        _prepare(out)  # it may have been finished just now
        folder.mkdir(exist_ok=True)
        with _becoming(out, folder, kept=(KeyboardInterrupt,)):
            yield folder


def _prepare(out: Path) -> None:
    if out.exists():
        raise ValueError(f"`out` must not exist yet, got {out}.")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _becoming(out: Path, folder: Path, kept: tuple[type[BaseException], ...]) -> Generator[None]:
    """The folder becomes `out`, or is removed where an error ends it that is none of `kept`."""
    try:
        yield
        folder.rename(out)
    except BaseException as error:
        if not isinstance(error, kept):
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
