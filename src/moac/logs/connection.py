"""Connections to DuckDB, the only ones: an exception in the thread that waits, such as Ctrl-C, ends a query at once.

DuckDB itself makes an exception of a signal's handler a RuntimeError of its own, and lets its threads finish first.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb

T = TypeVar("T")
_LOOK_EVERY = 0.2
_FULL = ("no space left", "could not write", "max_temp_directory_size", "disk quota")
_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)


class Connection:
    """A database in memory; closed when it is left.

    A signal's handler runs in the main thread, which therefore waits while another thread is in DuckDB.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self._database = duckdb.connect(config=dict(config or {}))
        self._pool, self._busy = ThreadPoolExecutor(1), threading.Lock()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._end()
        self._pool.shutdown()
        self._database.close()

    def execute(self, query: str) -> Connection:
        """Run a query; its answer is then fetched."""
        self._call(self._database.execute, query)
        return self

    def register(self, name: str, table: Any) -> None:
        """Make a dataframe, or arrays by name, a table of SQL."""
        self._call(self._database.register, name, table)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row of the answer."""
        return self._call(self._database.fetchone)

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """The next rows of the answer."""
        return self._call(self._database.fetchmany, size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows of the answer that are left."""
        return self._call(self._database.fetchall)

    def fetchnumpy(self) -> dict[str, Any]:
        """The answer as arrays by name."""
        return self._call(self._database.fetchnumpy)

    @property
    def names(self) -> list[str]:
        """Of the columns of the answer."""
        return [name for name, *_ in self._database.description or ()]

    @property
    def progress(self) -> float:
        """The share of the query that runs that is done, where it was asked to be known."""
        return max(self._database.query_progress(), 0.0) / 100

    def run(self, work: Callable[[], T], look: Callable[[], Any] | None = None) -> T:
        """Work in the other thread, while `look` is called again and again; an exception here ends the query there."""
        running = self._pool.submit(self._work, work)
        try:
            while look is not None and not wait([running], _LOOK_EVERY).done:
                look()
            return running.result()
        except BaseException:
            self._end()
            raise

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        if threading.current_thread() is threading.main_thread():
            return self.run(lambda: function(*arguments))
        return function(*arguments)

    def _work(self, work: Callable[[], T]) -> T:
        with self._busy:
            return work()

    def _end(self) -> None:
        """Interrupt what still runs, again and again, since a query that has not begun does not hear of it.

        A connection that was left open may be closed by the garbage collector, when its thread has ended.
        """
        while self._busy.locked():
            self._database.interrupt()
            time.sleep(_LOOK_EVERY / 20)


@contextmanager
def naming_full_disk(path: Path) -> Generator[None]:
    """While entered, a full disk is an OSError that names the path, whoever finds it full."""
    try:
        yield
    except duckdb.Error as error:
        if not any(words in str(error).lower() for words in _FULL):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
    except OSError as error:
        if error.errno not in _FULL_CODES:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
