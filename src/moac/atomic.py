"""Files that are whole or not there: written beside their place, flushed to disk, then renamed; read if regular."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_LARGEST = 2**28
"""Bytes of a file that is read into memory at once."""
_DEEPEST = 32
_WHOLE = range(-(2**63), 2**64)
"""Levels of nesting and whole numbers that data may have: beyond them Python and NumPy raise other errors."""


class DamagedError(ValueError):
    """A file that is there and cannot be read as what it should be."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why.removesuffix('.')}.")


def check_regular(path: Path) -> None:
    """Refuse a FIFO, a device, a socket or a folder before it is opened: some wait for ever, some act."""
    _check_regular(path, path.stat())


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of reasonable size; whatever is there, the call does not wait for it."""
    check_regular(path)
    with open(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
        status = os.fstat(file.fileno())
        _check_regular(path, status)
        if status.st_size > _LARGEST:
            raise DamagedError(path, f"it has {status.st_size} bytes, more than {_LARGEST}")
        return file.read()


def read_json(path: Path) -> Any:
    """Read JSON, with one clear line where the file is damaged."""
    content = read_bytes(path)
    try:
        return checked(json.loads(content.decode()))
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, str(error)) from None


def checked(data: Any, levels: int = _DEEPEST) -> Any:
    """JSON or TOML data from a stranger, as it is; ValueError where it is nested too deeply or a number is huge."""
    if not levels:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    if isinstance(data, int) and data not in _WHOLE:
        raise ValueError("a whole number in it needs more than 64 bits")
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        checked(value, levels - 1)
    return data


def no_follow(path: str, flags: int) -> int:
    """An `opener` for `open`: what is written goes into the file of that name, never to where a link leads."""
    return os.open(path, flags | _NO_FOLLOW | _NO_WAIT, 0o666)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path` wholly or not at all; where that fails, the error names it."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when all went well; else nothing has happened."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process of the same number, or put there as a trap
        with open(temporary, "xb", opener=no_follow) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _settle(path.parent)
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError(path, "it is not a regular file")


def _settle(folder: Path) -> None:
    """Let the names in a folder survive a power cut too, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
