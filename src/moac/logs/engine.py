"""DuckDB under a memory cap, its errors as one line each. The only door to DuckDB."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import duckdb

from moac import machine

Connection = duckdb.DuckDBPyConnection
Unreadable = (duckdb.InvalidInputException, duckdb.ConversionException)
"""What a file that is not what it should be makes DuckDB raise."""
_RESERVED = 400_000_000
"""Of any cap: for Python, NumPy, and a bucket at a time."""
SMALLEST = _RESERVED + 100_000_000
_LOOK_EVERY = 0.2
_FULL = ("no space left", "could not write", "max_temp_directory_size", "disk quota")


@final
@dataclass(frozen=True)
class Limits:
    """What a build may use.

    Attributes:
        memory: the cap on the process, in bytes.
        threads: of DuckDB; None is one per core.
    """

    memory: int
    threads: int | None = None

    @property
    def engine_memory(self) -> int:
        """What is left for DuckDB."""
        return self.memory - _RESERVED


def limits(memory: str, threads: int | None) -> Limits:
    """From `2GB` to bytes."""
    size = machine.size("memory_limit", memory)
    if size < SMALLEST:
        raise ValueError(f"`memory_limit` must be at least {SMALLEST // 10**6}MB, got {memory}.")
    if threads is not None and threads < 1:
        raise ValueError(f"`threads` must be at least 1, got {threads}.")
    return Limits(size, threads)


@contextmanager
def connect(limits: Limits, spill: Path) -> Generator[Connection]:
    """A database in memory that spills into the folder `spill`."""
    config: dict[str, Any] = {
        "memory_limit": f"{limits.engine_memory}B",
        "temp_directory": str(spill),
        "threads": limits.threads or os.cpu_count() or 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with translated(limits, spill), duckdb.connect(config=config) as connection:
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        yield connection


def watch(connection: Connection, work: Callable[[], None], show: Callable[[float], None]) -> None:
    """Run a long query in a thread and show the share of it that is done; Ctrl-C ends it."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        try:
            while not wait([running], timeout=_LOOK_EVERY).done:
                show(max(connection.query_progress(), 0.0) / 100)
        except BaseException:
            connection.interrupt()
            raise
    running.result()


@contextmanager
def translated(limits: Limits, folder: Path) -> Generator[None]:
    """DuckDB's errors as ours, of one line: a full disk is an OSError, all others are ValueErrors."""
    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if any(words in text.lower() for words in _FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from None
        if isinstance(error, duckdb.OutOfMemoryException):
            cap = limits.memory // 10**6
            raise ValueError(f"`memory_limit` of {cap}MB is too small for this data: give more.") from None
        raise ValueError(f"{folder.parent} cannot be worked on: {text.splitlines()[0].rstrip('.')}.") from error
