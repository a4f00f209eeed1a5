"""Folders for one process at a time: a lock that ends with its holder, however it ends; folders whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Generator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from moac.files import DamagedError, below, making, nearest, read_bytes, remove_unfinished

_NAME = ".lock"
_PATIENCE, _LOOK_EVERY = 0.2, 0.05
"""Seconds: a holder that ends just now removes the file, and whoever has opened it must open the next one."""
_DIGITS = 20


class InUseError(ValueError):
    """The lock is held, by another process or by this one."""


@contextlib.contextmanager
def held(file: Path, what: Path) -> Generator[None]:
    """Hold the lock `file` of the folder `what`; ValueError where it is held already.

    Files that a killed holder left unfinished are removed. The lock file is removed on exit; a stale one is harmless.
    A link, or a file that is no lock, is refused and stays as it is.
    """
    file = file.absolute()
    lock = _taken(file, what)
    try:
        remove_unfinished(what)
        yield
    finally:
        with contextlib.suppress(OSError):  # before it is let go: who waits for the old file sees that it is gone
            file.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def folder(path: Path) -> Generator[None]:
    """Make a folder and hold it; folders that were made here, and that an error leaves empty, are removed."""
    with making(path), held(path / _NAME, path):
        yield


def clear(path: Path) -> None:
    """Remove all that a folder holds but its lock, which the holder removes last."""
    for each in path.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        elif each.name != _NAME:
            each.unlink(missing_ok=True)


def is_empty(path: Path) -> bool:
    """Whether a folder holds nothing, but for a lock that a kill has left."""
    return all(each.name == _NAME for each in path.iterdir())


def refuse_existing(target: Path, name: str | None = None) -> None:
    """Nothing of the user's is written over; `name` is the argument that names the place."""
    if target.exists() or target.is_symlink():
        right = f"`{name}` must not exist yet, got {target}" if name else f"{target} exists already"
        raise ValueError(f"{right}: use it, or remove it first.")


def check_room(folder: Path, what: str, needed: int) -> None:
    """Say that a disk is too small before the work, not hours later."""
    free = shutil.disk_usage(nearest(folder)).free
    if needed > free:
        raise ValueError(f"{folder}: the disk is too full: {what} needs {needed:,} bytes, {free:,} are free.")


@contextlib.contextmanager
def becoming(out: Path, fingerprint: str | None = None) -> Generator[Path]:
    """A folder to work in that becomes `out` at the end, for one process at a time. An error leaves nothing.

    Args:
        out: must not exist.
        fingerprint: of what is made. What an interrupt or a kill has left of the same is found in the folder by the
            next call; None, or a change of it, starts with an empty one.
    """
    place = out.absolute()
    unfinished = f".{out.name}.building-"
    folder = below(place.parent, f"{unfinished}{fingerprint or 'new'}")
    with making(place.parent), held(place.with_name(f".{out.name}.lock"), out):
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
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(error.errno, os.strerror(error.errno), str(place.parent)) from None
            raise


def _taken(file: Path, what: Path) -> BaseFileLock:
    """The lock, with this process's number in it."""
    if not file.parent.is_dir():  # FileLock would make it
        raise ValueError(f"{what} cannot be written: {file.parent} is not a folder.")
    lock = FileLock(file, _PATIENCE, thread_local=False, poll_interval=_LOOK_EVERY, on_acquired=_sign)
    try:
        lock.acquire()
    except Timeout:
        raise InUseError(f"{what} is in use by process {_holder(file)}: wait until it ends.") from None
    except DamagedError:
        raise ValueError(f"{what} cannot be locked: {file} is not a lock file.") from None
    except OSError as error:
        if file.is_symlink():
            raise ValueError(f"{what} cannot be locked: {file} is a symbolic link.") from None
        raise ValueError(f"{what} cannot be written: {error.strerror}.") from None
    return lock


def _sign(descriptor: int) -> None:
    """Write this process's number over that of an earlier holder, and over nothing else."""
    status = os.fstat(descriptor)
    single = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    if not single or not _is_number(os.read(descriptor, _DIGITS + 1)):
        raise DamagedError(Path(_NAME), "it is not a lock")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, str(os.getpid()).encode())


def _holder(file: Path) -> str:
    """The number of the process that has the lock, where it can be read."""
    with contextlib.suppress(OSError, ValueError):
        content = read_bytes(file)
        return content.decode() if content and _is_number(content) else "?"
    return "?"


def _is_number(content: bytes) -> bool:
    return not content or (content.isdigit() and len(content) <= _DIGITS)
