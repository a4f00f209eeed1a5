"""Ray: the same tasks on any number of machines. The only place that imports it, and only when it is asked for.

A task of Ray's is a watcher: it keeps a worker process of ours beside it, so that a time limit, a memory limit or a
crash ends that process and not Ray's, and is told the same way everywhere. Ray places the watchers, bounds them by the
cores there are, and runs one again whose machine was lost.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from moac import choices
from moac.runs.executors import Worker, failed, outcome
from moac.tasks import Failure, Limits, Outcome, one_thread

T = TypeVar("T")
R = TypeVar("R")
_PER_CORE = 2  # tasks in flight for each core: one that runs, one that waits beside it
_SECONDS_TO_CONNECT = 5.0
_beside: list[Worker] = []  # of this process, where it is one of Ray's: the worker it watches


class Ray:
    """A Ray cluster, by the address that `ray start` prints; `auto` is the one of this machine.

    A process that is connected to a cluster already uses that. `workers` None is two tasks at a time for each core.
    """

    def __init__(self, address: str, workers: int | None, limits: Limits) -> None:
        self._address, self._workers, self._limits = address, workers, limits
        self._ray: Any = choices.package("ray", "cluster", "the ray executor")
        self._joined, self._pending = False, dict[Any, int]()
        _check_listening(address)

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end."""
        if not items:
            return
        self._stop()
        self._connect()
        remote = self._ray.remote(num_cpus=1, max_retries=self._limits.retries)(watch)
        todo, pending = iter(range(len(items))), self._pending
        while True:
            cores = int(self._ray.cluster_resources().get("CPU", 1))  # the cluster may have grown or shrunk
            room = self._workers or max(1, _PER_CORE * cores)
            for index in islice(todo, max(0, room - len(pending))):
                call = pickle.dumps((function, items[index]))
                pending[remote.remote(call, self._limits, one_thread())] = index
            if not pending:
                return
            done, _ = self._ray.wait(list(pending), num_returns=1)
            for reference in done:
                yield outcome(pending.pop(reference), self._answer(reference))

    def close(self) -> None:
        """Stop what runs, and leave the cluster that was joined."""
        self._stop()
        if self._joined:
            self._ray.shutdown()
        self._joined = False

    def _stop(self) -> None:
        """Stop what a `map` that was left early has started."""
        for reference in self._pending:
            self._ray.cancel(reference, force=True)
        self._pending = {}

    def _answer(self, reference: Any) -> bytes:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            return failed(Failure("lost", f"Ray could not finish it: {why}", str(error)))

    def _connect(self) -> None:
        """Join the cluster, once, and stay: it takes seconds."""
        if self._ray.is_initialized():
            return
        try:
            self._ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises it as it is where a node takes too long
            how = "start one with `ray start --head`, or name the address of one that runs"
            why = " ".join(str(error).split())
            raise ValueError(f"no Ray cluster answers at {self._address} ({how}): {why}") from None
        self._joined = True


def watch(call: bytes, limits: Limits, environment: Mapping[str, str]) -> bytes:
    """What Ray runs: the worker process beside this one answers the call."""
    os.environ.update(environment)
    if not _beside:
        _beside.append(Worker())
    return _beside[0].attempt(call, limits)


def _check_listening(address: str) -> None:
    """Refuse at once an address where nobody listens: Ray itself asks for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # a name of Ray's, such as auto
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error.strerror or error}.") from None
