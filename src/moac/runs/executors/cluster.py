"""Ray: the same tasks on any number of machines. The only place that imports it, and only when it is asked for.

A task of Ray's is a watcher: it keeps a worker process of ours beside it, so that a time limit, a memory limit or a
crash ends that process and not Ray's, and is told the same way everywhere. Ray places the watchers, bounds them by the
cores there are, and runs one again whose machine was lost.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, NoReturn, TypeVar, final

from moac.machine import cores, one_thread, variables
from moac.runs.executors import Limits
from moac.runs.executors.process import Worker, end_with_parent, failed, outcome
from moac.tasks import Failure, Outcome

T = TypeVar("T")
R = TypeVar("R")
_PER_CORE = 2
"""Tasks in flight for each core: one that runs, one that waits beside it."""
_SECONDS_TO_CONNECT, _SECONDS_TO_START = 5.0, 120.0
_HERE = "127.0.0.1"
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray reads this when it is imported. It then has the address 127.0.0.1 and listens nowhere else, on any system."""
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_beside: list[Worker] = []
"""Of this process, where it is one of Ray's: the worker it watches."""


@final
class Ray:
    """A Ray cluster.

    Args:
        address: of a running one, as `ray start` prints it, or `auto`; None starts one on this machine. A process that
            is connected to one already uses that.
        workers: tasks at a time; None is one for each core.
        limits: of a task.
    """

    def __init__(self, address: str | None, workers: int | None, limits: Limits) -> None:
        self._address, self._workers, self._limits = address, workers, limits
        self._ray, self._joined = _library(address is None), False
        self._head: Head | None = None
        self._pending: dict[Any, int] = {}
        if address is not None:
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
            for index in islice(todo, max(0, self._room() - len(pending))):
                call = pickle.dumps((function, items[index]))
                pending[remote.remote(call, self._limits, one_thread())] = index
            if not pending:
                return
            done, _ = self._ray.wait(list(pending), num_returns=1)
            for reference in done:
                yield outcome(pending.pop(reference), self._answer(reference))

    def close(self) -> None:
        """Stop what runs; leave the cluster that was joined, and end the one that was started."""
        self._stop()
        if self._joined:
            self._ray.shutdown()
            self._joined = False
        if self._head is not None:
            self._head.close()
            self._head = None

    def _stop(self) -> None:
        """Stop what a `map` that was left early has started."""
        for reference in self._pending:
            self._ray.cancel(reference, force=True)
        self._pending = {}

    def _room(self) -> int:
        """How many tasks may be in flight; the cluster may have grown or shrunk."""
        return self._workers or max(1, _PER_CORE * int(self._ray.cluster_resources().get("CPU", 1)))

    def _answer(self, reference: Any) -> bytes:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            return failed(Failure("lost", f"Ray could not finish it: {why}", str(error)))

    def _connect(self) -> None:
        """Join or start a cluster, once, and keep it: it takes seconds."""
        if self._ray.is_initialized():
            return
        address = self._address or self._started()
        try:
            self._ray.init(address=address, **_QUIET)
        except Exception as error:  # Ray raises it as it is where a node takes too long
            raise ValueError(f"no Ray cluster answers at {address}: {' '.join(str(error).split())}") from None
        self._joined = True

    def _started(self) -> str:
        """The address of a cluster on this machine, which is started."""
        if self._ray.util.get_node_ip_address() != _HERE:
            name = next(iter(_LOOPBACK))
            raise ValueError(f"Ray was imported before it could be kept to this machine: set {name}=0, or ray.init().")
        self._head = Head(self._workers or cores())
        return self._head.address()


def watch(call: bytes, limits: Limits, environment: Mapping[str, str]) -> bytes:
    """What Ray runs: the worker process beside this one answers the call."""
    os.environ.update(environment)
    if not _beside:
        _beside.append(Worker())
    return _beside[0].attempt(call, limits)


def _library(here: bool) -> Any:
    """Ray; kept to this machine where it is imported for it."""
    try:
        with variables(_LOOPBACK if here else {}):
            return import_module("ray")
    except ImportError:
        raise ValueError("the ray executor needs Ray: pip install 'moac[cluster]'.") from None


def _check_listening(address: str) -> None:
    """Refuse at once an address where nobody listens: Ray itself asks for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # a name of Ray's, such as auto
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error.strerror or error}.") from None


@final
class Head:
    """A Ray cluster of this machine alone: a process group that ends as a whole, and at once with who started it.

    Left to itself, Ray listens on every interface, and its agents live on for a minute after their driver was killed.

    Args:
        cores: that Ray may use.
    """

    def __init__(self, cores: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, cores), daemon=True, name="moac-ray")
        with variables(_LOOPBACK):
            self._process.start()
        theirs.close()

    def address(self) -> str:
        """Where Ray answers, once it has started; where it does not, a ValueError."""
        failure = f"it took longer than {_SECONDS_TO_START:g} s"
        with contextlib.suppress(EOFError, OSError):
            if self._pipe.poll(_SECONDS_TO_START):
                address, failure = self._pipe.recv()
                if address is not None:
                    return address
        raise ValueError(f"Ray did not start on this machine: {failure.rstrip('.')}.")

    def close(self) -> None:
        """End Ray and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Any, cores: int) -> None:
    """Start Ray, say where it answers, and keep it until told otherwise."""
    os.setsid()
    end_with_parent(_end_group)
    os.dup2(2, 1)  # standard output belongs to whoever started this
    try:
        context = import_module("ray").init(address="local", num_cpus=cores, include_dashboard=False, **_QUIET)
    except Exception as error:
        pipe.send((None, " ".join(str(error).split()) or type(error).__name__))
        _end_group()
    pipe.send((context.address_info["gcs_address"], ""))
    signal.signal(signal.SIGTERM, _end_group)
    threading.Event().wait()


def _end_group(*_: Any) -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise SystemExit
