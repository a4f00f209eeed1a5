"""One process at a time: a lock that the system lets go of when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from contextvars import ContextVar
from pathlib import Path

try:
    import fcntl
except ImportError:  # a system without it: nothing is locked
    fcntl = None

_NAME = ".lock"
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


class InUseError(ValueError):
    """Another process, or thread, has the lock."""


@contextlib.contextmanager
def held(file: Path, what: Path) -> Generator[None]:
    """Hold the lock `file` of the folder `what`; ValueError where another process, or thread, has it.

    Who holds it already may take it again. The file is gone afterwards; one that a kill left holds nothing.
    """
    file = file.absolute()
    if file in _held.get():
        yield
        return
    descriptor = _taken(file, what)
    token = _held.set(_held.get() | {file})
    try:
        yield
    finally:
        _held.reset(token)
        file.unlink(missing_ok=True)  # before it is let go: who waits for the old file sees that it is gone
        os.close(descriptor)


@contextlib.contextmanager
def folder(path: Path) -> Generator[None]:
    """Make a folder and hold it; one that was made here, and that a mistake leaves empty, is removed."""
    made = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        with held(path / _NAME, path):
            yield
    except ValueError:
        if made and is_empty(path):
            path.rmdir()
        raise


def is_empty(path: Path) -> bool:
    """Whether a folder holds nothing, but for a lock that a kill has left."""
    return all(each.name == _NAME for each in path.iterdir())


def _taken(file: Path, what: Path) -> int:
    """A descriptor that holds the lock of the file that is there now, and not of one that was removed meanwhile."""
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ValueError(f"{what} cannot be written: {error.strerror}.") from None
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(file, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace")
            os.close(descriptor)
            raise InUseError(f"{what} is in use by process {holder or '?'}: wait until it ends.") from None
        except OSError as error:
            os.close(descriptor)
            raise ValueError(f"{what} cannot be locked: {error.strerror}.") from None
        os.close(descriptor)


def _is(file: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    return False
