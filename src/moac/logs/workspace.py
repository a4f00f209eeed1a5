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
    with _removed_unless(folder, kept=()):
        yield folder
        folder.rename(out)


@contextmanager
def resumable(out: Path) -> Generator[tuple[Path, Path]]:
    """Like `building`, for one process at a time; what an interrupt or a kill leaves is found by the next call.

    Two folders: one for notes on the work, and in it the one that becomes `out`. The notes go after that, so there is
    no moment at which a kill would cost more than the step it stops.
    """
    folder = out.absolute().parent / f".{out.name}.building"
    if not folder.exists():
        _prepare(out)
    with locks.held(folder.with_suffix(".lock"), out):
        if out.exists():  # finished just now, or by a build that was killed as it removed its notes
            shutil.rmtree(folder, ignore_errors=True)
        _prepare(out)
        inner = folder / "dataset"
        inner.mkdir(parents=True, exist_ok=True)
        with _removed_unless(folder, kept=(KeyboardInterrupt,)):
            yield folder, inner
            inner.rename(out)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(out: Path) -> None:
    if out.exists():
        raise ValueError(f"`out` must not exist yet, got {out}.")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _removed_unless(folder: Path, kept: tuple[type[BaseException], ...]) -> Generator[None]:
    """The folder is removed where an error comes that is none of `kept`."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, kept):
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.parent)) from None
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
