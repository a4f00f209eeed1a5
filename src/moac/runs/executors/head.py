"""A Ray cluster of this machine alone: a process group that ends as a whole, and at once with who started it.

Left to itself, Ray listens on every interface, and its agents live on for a minute after their driver was killed.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from importlib import import_module
from multiprocessing import connection
from typing import Any, NoReturn, final

from moac.machine import variables

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray reads this when it is imported. It then has the address 127.0.0.1 and listens nowhere else, on any system."""
_SECONDS_TO_START = 120.0


@final
class Head:
    """The process that starts Ray and keeps it.

    Args:
        cores: that Ray may use.
    """

    def __init__(self, cores: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, cores), daemon=True, name="moac-ray")
        with variables(LOOPBACK):
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)  # standard output belongs to whoever started this
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        context = import_module("ray").init(address="local", num_cpus=cores, **options)
    except Exception as error:
        pipe.send((None, " ".join(str(error).split()) or type(error).__name__))
        _end_group()
    pipe.send((context.address_info["gcs_address"], ""))
    signal.signal(signal.SIGTERM, _end_group)
    threading.Event().wait()


def _end_with_parent() -> NoReturn:
    parent: Any = multiprocessing.parent_process()
    connection.wait([parent.sentinel])
    _end_group()


def _end_group(*_: Any) -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise SystemExit
