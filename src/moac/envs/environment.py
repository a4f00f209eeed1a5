"""An environment as a source of training: its copies are stepped on the host, their transitions become batches."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from moac import settings
from moac.choices import counted
from moac.config import Setting
from moac.envs import evaluation
from moac.envs.rollout import Interface, draw, kept_globally
from moac.envs.workers import Simulator, SimulatorProcess
from moac.kept import with_owner
from moac.policies.observations import Moments, Scale, VectorSpec
from moac.training.trained import TrainedPolicy
from moac.types import Allowance, Batch, Evaluation, Hosted, Key, Params, Policy, Sampling, Spec

Simulators = list[Simulator] | list[SimulatorProcess]


@dataclass(eq=False)
class Chain:
    """The copies of one trial."""

    number: int  # by which simulators know them
    moments: Moments | None = None  # of the vectors seen; None where they are scaled by their bounds, or are states

    @property
    def memory(self) -> dict[str, Any]:
        """What new episodes go on with, as arrays by name: the moments, or nothing."""
        return {} if self.moments is None else dict(vars(self.moments))


class Environment(Hosted):
    """Copies of an environment, stepped side by side. Made by `moac.envs.make`.

    Attributes:
        interface: how copies are made, observed and acted on.
        evaluation_episodes: that an evaluation while training averages over.
        step_timeout: seconds that a step may take; None is no limit.
    """

    def __init__(self, interface: Interface, spec: Spec) -> None:
        self._spec, self.interface, options = spec, interface, spec.options or {}
        self.evaluation_episodes, self.step_timeout = options["evaluation_episodes"], options.get("step_timeout")
        self._num_workers, self._numbers = options["workers"], itertools.count()
        self._looking_steps = [interface.looking_steps]

    def __repr__(self) -> str:
        copies, objectives = counted(self.spec.num_chains, "copy"), counted(self.spec.num_objectives, "objective")
        return f"Environment({self.spec.name}, {copies}, {objectives})"

    @property
    def spec(self) -> Spec:
        """What the environment is."""
        return self._spec

    @property
    def compiled(self) -> bool:
        """Samples are drawn on the host."""
        return False

    @with_owner
    def conditioned(self, draw: str) -> Environment:
        """The same, whose episodes each have a preference behind their observations; the same object for one draw."""
        spec = settings.conditioned(self.spec)
        twin = Environment(replace(self.interface, encoder=spec.observations.encoder, draw=draw), spec)
        twin._looking_steps = self._looking_steps  # so that only one of the two tells them
        return twin

    def start(self, key: Key, memory: Any = None) -> Chain:
        """`num_envs` copies at the first step of an episode, each with a seed of its own from the key."""
        seeds = np.random.SeedSequence(np.asarray(key).tolist()).generate_state(self.spec.num_chains).tolist()
        chain = Chain(next(self._numbers), Moments.of(memory))
        _answered(self._simulators, "open", [(chain.number, list(range(a, b)), seeds[a:b]) for a, b in self._shares])
        weakref.finalize(chain, _close, self._simulators, chain.number)
        return chain

    def rollout(self, chain: Chain, policy: Policy, theta: Params, key: Key, sizes: Sampling) -> tuple[Chain, Batch]:
        """The next N·D + B transitions of the copies under θ [n, T]: one copy after the other, in the order of time."""
        n, theta = self.spec.num_chains, jax.tree.map(np.asarray, theta) if self._num_workers else theta
        draws = draw(key, (n, sizes.steps // n), sizes, self.spec.action_size)
        if sizes.deviations is not None and chain.moments is None:
            chain.moments = Moments.nothing(self.spec.observation_size, sizes.deviations)
        observations = self.spec.observations
        scale = observations.scale(chain.moments) if isinstance(observations, VectorSpec) else None
        requests = [(chain.number, policy, theta, scale, draws.of(a, b)) for a, b in self._shares]
        parts = _answered(self._simulators, "roll_out", requests)
        rollout = parts[0] if len(parts) == 1 else jax.tree.map(lambda *shares: np.concatenate(shares), *parts)
        if chain.moments is not None:
            chain.moments = chain.moments.including(rollout.observation.reshape(-1, self.spec.observation_size))
        return chain, _seen(rollout, scale, sizes)

    def undisturbed(self) -> AbstractContextManager[None]:
        """Global generators, which every rollout seeds, put back once and not after every rollout."""
        return kept_globally()

    def memory(self, sizes: Sampling) -> dict[str, Any]:
        """Running moments before anything was seen, or nothing."""
        if sizes.deviations is None:
            return {}
        return vars(Moments.nothing(self.spec.observation_size, sizes.deviations))

    def evaluate(self, policy: Policy, theta: Params, setting: Setting, memory: Any = None) -> Evaluation:
        """Mean returns of the policies (leading axis K) over a few episodes with seeds of their own."""
        trained = TrainedPolicy.of(policy, theta, self.spec, memory, setting)
        return evaluation.while_training(self, trained, setting, evaluation.Budget())

    def evaluate_within(
        self, allowance: Allowance, policy: Policy, theta: Params, setting: Setting, memory: Any = None
    ) -> Evaluation | None:
        """The same by fewer episodes, as many as fit into the allowance; None where it is too small."""
        trained = TrainedPolicy.of(policy, theta, self.spec, memory, setting)
        budget = evaluation.Budget(allowance.steps, allowance.longest_episode, allowance.typical_episode)
        if allowance.required or evaluation.is_enough(self, budget, trained, setting):
            return evaluation.while_training(self, trained, setting, budget)
        return None

    def typical_episode(self, chains: Sequence[Chain]) -> float:
        """Mean number of steps of the episodes that these chains have begun; 0 before the first step."""
        numbers = [chain.number for chain in chains]
        answers = _answered(self._simulators, "steps_and_episodes", [(numbers,)] * len(self._simulators))
        steps = sum(steps for steps, _ in answers)
        episodes = sum(episodes for _, episodes in answers)
        return steps / max(episodes, 1)

    def unreported_steps(self) -> int:
        """Steps that looked at the rewards before anything was trained, told once: whoever counts steps adds them."""
        steps, self._looking_steps[0] = self._looking_steps[0], 0
        return steps

    def play(self, *arguments: Any) -> evaluation.Episodes:
        """Episodes (`evaluation.episodes`) in the first worker process alone."""
        return _answered(self._simulators[:1], "play", [arguments])[0]

    def close(self) -> None:
        """End the worker processes."""
        for simulator in self._simulators:
            simulator.stop()

    @cached_property
    def _simulators(self) -> Simulators:
        if not self._num_workers:
            return [Simulator(self.interface)]
        return [SimulatorProcess(self.interface, number, self.step_timeout) for number in range(self._num_workers)]

    @cached_property
    def _shares(self) -> list[tuple[int, int]]:
        """Which copies each simulator has: first, and one past the last."""
        edges = np.linspace(0, self.spec.num_chains, len(self._simulators) + 1).round().astype(int).tolist()
        return list(itertools.pairwise(edges))


def _seen(rollout: Batch, scale: Scale | None, sizes: Sampling) -> Batch:
    """A rollout as the learner sees it: vectors scaled, and in the average setting nothing that terminates."""
    if scale is not None:
        seen = {name: scale(getattr(rollout, name)) for name in ("observation", "next_observation")}
        rollout = replace(rollout, **seen)
    return replace(rollout, terminated=None) if sizes.average else rollout


def _answered(simulators: Simulators, name: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
    """What simulators answer to a call, each with its own arguments; worker processes at the same time."""
    pending = [simulator.ask(name, *given) for simulator, given in zip(simulators, arguments, strict=True)]
    answers = [answer() for answer in pending]
    for error in (answer for answer in answers if isinstance(answer, Exception)):
        raise error
    return answers


def _close(simulators: Simulators, number: int) -> None:
    """Close a chain's environments."""
    for simulator in simulators:
        simulator.close(number)
