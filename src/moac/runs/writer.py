"""Checkpoints that are written while the training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from moac import training
from moac.runs.checkpoints import Checkpoints


class Writer:
    """Writes the checkpoints of one training, one at a time, in a thread of its own.

    A training that is killed repeats at most `every` seconds and the present chunk; seconds count from when the state
    of the newest complete checkpoint was taken. A state is taken where the one after the next chunk might be complete
    too late, judged by the last chunk and the last checkpoint. While a checkpoint is being written no other is taken;
    the training waits for it only where the complete one is older than `every`, so with 0 after each chunk.
    """

    def __init__(self, checkpoints: Checkpoints, every: float, written: int | None) -> None:
        self._checkpoints, self._every = checkpoints, every
        self._pool = ThreadPoolExecutor(1)  # a thread that waits for a disk hears of no signal: not the main one
        self._work: Future[float] | None = None
        self._written, self._next = written, written  # iterations: of the newest complete one, of the newest taken
        self._complete = self._taken = self._seen = time.monotonic()  # when both were taken; when the last chunk began
        self._cost = 0.0  # seconds that the last one took to write

    def offer(self, snapshot: training.Snapshot) -> None:
        """Take a snapshot, which the training has just reached, if one is due."""
        now = time.monotonic()
        overdue = now - self._complete >= self._every
        if overdue or self._work is None or self._work.done():
            self._wait()
            if now - self._taken + (now - self._seen) + self._cost >= self._every:
                self._take(snapshot, now)
        if now - self._complete >= self._every:
            self._wait()
        self._seen = time.monotonic()

    def finish(self, snapshot: training.Snapshot | None) -> None:
        """Store the last snapshot of the training, if it has one, and return when that is complete."""
        try:
            self._wait()
        finally:
            try:
                if snapshot is not None and snapshot.iteration != self._written:
                    self._take(snapshot, time.monotonic())
                    self._wait()
            finally:
                self._pool.shutdown()

    def _take(self, snapshot: training.Snapshot, now: float) -> None:
        self._work = self._pool.submit(_timed, self._checkpoints.writing(snapshot))
        self._next, self._taken = snapshot.iteration, now

    def _wait(self) -> None:
        """Let the checkpoint at work be complete; if it cannot be written, the error is raised here."""
        if self._work is not None:
            work, self._work = self._work, None
            self._cost = work.result()
            self._written, self._complete = self._next, self._taken


def _timed(write: Callable[[], None]) -> float:
    began = time.monotonic()
    write()
    return time.monotonic() - began
