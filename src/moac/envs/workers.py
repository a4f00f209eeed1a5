"""Where the copies of an environment live: in this process, or in worker processes for slow environments.

Each worker holds a share of every chain's copies and steps it alone. A whole iteration is one message: the policy's
parameters and random numbers there, the transitions back. Processes are spawned, never forked: JAX's threads do not
survive a fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

from moac.envs import acting, evaluation
from moac.envs.rollout import Copy, Draws, Interface, described, kept_globally, roll_out, seeded_globally
from moac.envs.tabular import StateIndex, TabularRollout
from moac.policies.observations import Scale
from moac.types import Batch, Params, Policy, SourceError

_SECONDS_TO_END = 2.0
_POLLS = 10  # how often a worker is looked at within the time limit of a step


class Simulator:
    """The copies that live in one process, by chain; asked as `SimulatorProcess` is."""

    def __init__(self, interface: Interface) -> None:
        self._interface, self._index = interface, StateIndex(interface.encoder)
        self._copies: dict[int, list[Copy]] = {}

    def open(self, chain: int, numbers: list[int], seeds: list[int]) -> None:
        """Make the copies of a chain, each reset with its seed."""
        pairs = zip(numbers, seeds, strict=True)
        with seeded_globally(seeds[0]):
            self._copies[chain] = [Copy(self._interface, number, seed) for number, seed in pairs]

    def roll_out(self, chain: int, policy: Policy, theta: Params, scale: Scale | None, draws: Draws) -> Batch:
        """The next steps of a chain's copies under θ; vectors are scaled, states are not."""
        interface, copies = self._interface, self._copies[chain]
        with seeded_globally(draws.seed):
            if interface.tabular:
                logits = acting.table(policy, theta, interface.encoder.num_states or 0, interface.num_actions)
                return TabularRollout(self._index, logits, interface.num_objectives).roll_out(copies, draws)
            actor = acting.of_policy(policy, theta, continuous=interface.box is not None)
            return roll_out(copies, interface, actor, scale, draws)

    def steps_and_episodes(self, chains: list[int]) -> tuple[int, int]:
        """Steps that the copies of some chains have taken, and episodes that they have begun."""
        copies = [copy for chain in chains for copy in self._copies[chain]]
        return sum(copy.steps for copy in copies), sum(copy.episodes for copy in copies)

    def play(self, *arguments: Any) -> evaluation.Episodes:
        """Whole episodes of copies of their own."""
        trained, seeds, gamma, longest = arguments
        with evaluation.reused() as copies:
            return evaluation.episodes(self._interface, trained, seeds, gamma, longest, copies)

    def close(self, chain: int) -> None:
        """Close the environments of a chain."""
        for copy in self._copies.pop(chain, []):
            copy.close()

    def ask(self, name: str, *arguments: Any) -> Callable[[], Any]:
        """Call a method by its name; what is returned gives the answer."""
        answer = getattr(self, name)(*arguments)
        return lambda: answer

    def stop(self) -> None:
        """Nothing: there is no process to end."""


class SimulatorProcess:
    """A `Simulator` in another process. A step may take `step_timeout` seconds."""

    def __init__(self, interface: Interface, number: int, step_timeout: float | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._number, self._step_timeout = number, step_timeout
        self._count: Any = None if step_timeout is None else context.RawValue("Q", 0)
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, interface, self._count)
        self._process = context.Process(target=_serve, args=arguments, daemon=True, name=f"moac-{number}")
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(f"`env` must be an id or a function of a module for workers: {error}.") from None
        theirs.close()
        self.stop = weakref.finalize(self, _end, self._pipe, self._process)

    def ask(self, name: str, *arguments: Any) -> Callable[[], Any]:
        """Send a call; what is returned waits for the answer, which may be an error."""
        try:
            self._pipe.send((name, arguments))
        except OSError:
            raise self._ended() from None
        return self._answer

    def _answer(self) -> Any:
        if self._step_timeout is not None and self._hangs(self._step_timeout):
            self._process.kill()
            return SourceError(f"a step in worker process {self._number} took longer than {self._step_timeout:g} s.")
        try:
            failed, value = self._pipe.recv()
        except (EOFError, OSError):
            return self._ended()
        return SourceError(value) if failed else value

    def close(self, chain: int) -> None:
        """Close the environments of a chain, whenever the worker comes to it."""
        with contextlib.suppress(SourceError):
            self.ask("close", chain)

    def _hangs(self, seconds: float) -> bool:
        """Wait for an answer; whether one step takes so long that none will come."""
        count, since = self._count.value, time.monotonic()
        while not self._pipe.poll(seconds / _POLLS):
            if self._count.value != count or count % 2 == 0:
                count, since = self._count.value, time.monotonic()
            elif time.monotonic() - since > seconds:
                return True
        return False

    def _ended(self) -> SourceError:
        self._process.join(_SECONDS_TO_END)
        return SourceError(f"worker process {self._number} ended with exit code {self._process.exitcode}.")


class _Counting:
    """An environment with a count of what has begun and ended: it is odd during a step or a reset."""

    def __init__(self, env: Any, count: Any) -> None:
        self._env, self._count = env, count
        self.step, self.reset = partial(self._counted, env.step), partial(self._counted, env.reset)

    def _counted(self, call: Any, *arguments: Any, **options: Any) -> Any:
        self._count.value += 1
        try:
            return call(*arguments, **options)
        finally:
            self._count.value += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def _serve(pipe: Any, interface: Interface, count: Any) -> None:
    """Answer calls until the pipe closes. Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def counting(**options: Any) -> tuple[Any, float]:
        env, limit = interface.make(**options)
        return _Counting(env, count), limit

    simulator = Simulator(interface if count is None else replace(interface, make=counting))
    with contextlib.suppress(EOFError, OSError), kept_globally():
        while True:
            name, arguments = pipe.recv()
            if name == "close":  # nobody waits for an answer
                simulator.close(*arguments)
                continue
            try:
                answer = False, getattr(simulator, name)(*arguments)
            except SourceError as error:
                answer = True, str(error)
            except BaseException as error:  # be it SystemExit: there is no Ctrl-C here
                answer = True, described(error)
            pipe.send(answer)


def _end(pipe: Any, process: BaseProcess) -> None:
    """Let a worker go: it ends when its pipe closes."""
    pipe.close()
    process.join(_SECONDS_TO_END)
    if process.is_alive():
        process.terminate()
