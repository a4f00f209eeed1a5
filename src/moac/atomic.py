"""Atomic files: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import IO


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path` wholly or not at all; where that fails, the error names it."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when all went well; else nothing has happened."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
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


def _settle(folder: Path) -> None:
    """Let the names in a folder survive a power cut too, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
