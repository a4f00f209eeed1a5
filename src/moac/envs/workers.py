"""Worker processes for slow environments: each holds a share of every chain's copies and walks it alone.

A whole iteration is one message: the policy's parameters and random numbers there, the transitions back. Processes are
spawned, never forked: JAX's threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import time
import weakref
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any, final

from moac.envs.fleet import Fleet, Plan
from moac.envs.randomness import kept_globally
from moac.types import SourceError

_SECONDS_TO_END = 2.0
_LOOKS = 10
"""How often a worker is looked at within the time limit of a step."""


@final
class Worker:
    """A `Fleet` in another process; `ask` does not wait, `answer` does.

    Args:
        plan: of the environment.
        number: of the worker.
        step_timeout: seconds that a step may take; None is no limit.
    """

    def __init__(self, plan: Plan, number: int, step_timeout: float | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._number, self._step_timeout = number, step_timeout
        self._count: Any = None if step_timeout is None else context.RawValue("Q", 0)
        self._pipe, theirs = context.Pipe()
        told = (theirs, plan, self._count)
        self._process = context.Process(target=_serve, args=told, daemon=True, name=f"moac-{number}")
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
        if self._step_timeout is not None and self._hangs(self._step_timeout):
            self._process.kill()
            return SourceError(f"a step in worker process {self._number} took longer than {self._step_timeout:g} s.")
        try:
            failed, value = self._pipe.recv()
        except (EOFError, OSError):
            return self._ended()
        return SourceError(value) if failed else value

    def _hangs(self, seconds: float) -> bool:
        """Wait for an answer; whether one step takes so long that none will come."""
        count, since = self._count.value, time.monotonic()
        while not self._pipe.poll(seconds / _LOOKS):
            if self._count.value != count or count % 2 == 0:
                count, since = self._count.value, time.monotonic()
            elif time.monotonic() - since > seconds:
                return True
        return False

    def _ended(self) -> SourceError:
        self._process.join(_SECONDS_TO_END)
        return SourceError(f"worker process {self._number} ended with exit code {self._process.exitcode}.")


@final
class _Watched:
    """An environment with a count of what has begun and ended: it is odd during a step or a reset."""

    def __init__(self, env: Any, count: Any) -> None:
        self._env, self._count = env, count

    def step(self, action: Any) -> Any:
        """One step."""
        return self._counted(self._env.step, action)

    def reset(self, **options: Any) -> Any:
        """A new episode."""
        return self._counted(self._env.reset, **options)

    def _counted(self, call: Any, *arguments: Any, **options: Any) -> Any:
        self._count.value += 1
        try:
            return call(*arguments, **options)
        finally:
            self._count.value += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def _serve(pipe: Any, plan: Plan, count: Any) -> None:
    """Answer calls until the pipe closes. Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if count is not None:
        plan = replace(plan, maker=replace(plan.maker, around=partial(_Watched, count=count)))
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
