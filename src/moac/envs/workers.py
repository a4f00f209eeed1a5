"""Worker processes for slow environments: each holds a share of every chain's copies and walks it alone.

A whole iteration is one message: the policy's parameters and random numbers there, the transitions back. Processes are
spawned, never forked: JAX's threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import weakref
from multiprocessing.process import BaseProcess
from typing import Any, final

from moac.envs.fleet import Fleet, Plan
from moac.envs.randomness import kept_globally
from moac.types import SourceError

_SECONDS_TO_END = 2.0


@final
class Worker:
    """A `Fleet` in another process; `ask` does not wait, `answer` does."""

    def __init__(self, plan: Plan, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._number = number
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, plan), daemon=True, name=f"moac-{number}")
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(f"`env` must be an id or a function of a module for workers: {error}.") from None
        theirs.close()
        self.close = weakref.finalize(self, _end, self._pipe, self._process)

    def ask(self, name: str, *arguments: Any) -> None:
        """Send a call."""
        try:
            self._pipe.send((name, arguments))
        except OSError:
            raise self._ended() from None

    def answer(self) -> Any:
        """What the last call returned, or the error that it raised."""
        try:
            failed, value = self._pipe.recv()
        except (EOFError, OSError):
            return self._ended()
        return SourceError(value) if failed else value

    def _ended(self) -> SourceError:
        self._process.join(_SECONDS_TO_END)
        return SourceError(f"worker process {self._number} ended with exit code {self._process.exitcode}.")


def _serve(pipe: Any, plan: Plan) -> None:
    """Answer calls until the pipe closes. Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fleet = Fleet(plan)
    with contextlib.suppress(EOFError, OSError), kept_globally():
        while True:
            name, arguments = pipe.recv()
            if name == "close":  # nobody waits for an answer
                fleet.close(*arguments)
                continue
            try:
                answer = False, fleet.call(name, *arguments)
            except SourceError as error:
                answer = True, str(error)
            except Exception as error:
                answer = True, f"{type(error).__name__}: {error}"
            pipe.send(answer)


def _end(pipe: Any, process: BaseProcess) -> None:
    """Let a worker go: it ends when its pipe closes."""
    pipe.close()
    process.join(_SECONDS_TO_END)
    if process.is_alive():
        process.terminate()
