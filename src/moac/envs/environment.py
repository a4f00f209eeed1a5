"""An environment as a source of training."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import jax
import numpy as np

from moac.config import Setting
from moac.envs import replay
from moac.envs.fleet import Fleet, Order, Plan
from moac.envs.randomness import kept_globally
from moac.envs.replay import Diary, Standing
from moac.envs.walks import Walks, draw
from moac.envs.workers import Worker
from moac.policies.encoding import Moments, Scale
from moac.types import Batch, Evaluation, Key, Params, Policy, Sampling, SourceError, Spec


@final
@dataclass(eq=False)
class Chain:
    """The copies of one trial.

    Attributes:
        number: by which the fleets know them.
        seeds: one for each copy.
        moments: of the vectors seen; None where they are scaled by their bounds, or are states.
        diary: what its copies did lately.
    """

    number: int
    seeds: list[int]
    moments: Moments | None = None
    diary: Diary = field(default_factory=Diary)


@final
class Environment:
    """Copies of an environment, stepped side by side. Made by `moac.envs.make`."""

    def __init__(
        self, plan: Plan, spec: Spec, workers: int, evaluation_episodes: int, step_timeout: float | None = None
    ) -> None:
        self.spec, self.plan, self.evaluation_episodes, self.step_timeout = (
            spec,
            plan,
            evaluation_episodes,
            step_timeout,
        )
        self._num_workers, self._numbers = workers, itertools.count()

    @property
    def compiled(self) -> bool:
        """Samples are drawn on the host."""
        return False

    def start(self, key: Key) -> Chain:
        """`num_envs` copies at the first step of an episode, each with a seed of its own from the key."""
        return self._open(
            np.random.SeedSequence(np.asarray(key).tolist()).generate_state(self.spec.num_chains).tolist()
        )

    def _open(self, seeds: list[int]) -> Chain:
        chain = Chain(next(self._numbers), seeds)
        shares = [(chain.number, list(range(a, b)), seeds[a:b]) for a, b in self._shares]
        self._all("open", shares)
        weakref.finalize(chain, _close, self._fleets, chain.number)
        return chain

    def sample(
        self, chain: Chain, policy: Policy, theta: Params, key: Key, sizes: Sampling
    ) -> tuple[Chain, Batch, Batch]:
        """The next N·D + B transitions of the copies under θ; copies side by side, in the order of time."""
        n, host = self.spec.num_chains, jax.tree.map(np.asarray, theta)
        draws = draw(key, (n, sizes.steps // n), sizes, self.spec.action_size)
        if sizes.running_scale and chain.moments is None:
            chain.moments = Moments.nothing(self.spec.observation_size)
        scale = self.scale(chain.moments)
        orders = [(Order(chain.number, policy, host, scale, draws.of(first, last)),) for first, last in self._shares]
        walks = Walks.joined(self._all("walk", orders))
        chain.diary.add(walks.action, walks.reward)
        if chain.moments is not None:
            chain.moments = chain.moments.including(walks.observation.reshape(-1, self.spec.observation_size))
        return chain, *_batches(walks, scale, sizes)

    def undisturbed(self) -> contextlib.AbstractContextManager[None]:
        """Global generators, which every walk seeds, put back once and not after every walk."""
        return kept_globally()

    def memory(self, sizes: Sampling) -> dict[str, Any]:
        """Running moments before anything was seen, or nothing."""
        return vars(Moments.nothing(self.spec.observation_size)) if sizes.running_scale else {}

    def recall(self, chain: Chain, memory: dict[str, Any]) -> None:
        """Let a new chain scale as another did."""
        chain.moments = Moments.of(memory)

    def learned(self, chain: Chain) -> dict[str, Any]:
        """The chain's moments, or nothing."""
        return {} if chain.moments is None else dict(vars(chain.moments))

    def past(self, chain: Chain) -> dict[str, Any]:
        """All that `revive` needs; nothing where the environment cannot be brought back."""
        found: list[list[Standing] | None] = self._all("standing", [(chain.number,)] * len(self._shares))
        if any(part is None or not all(there.storable for there in part) for part in found):
            return {}
        standings = [there for part in found for there in part or ()]
        return replay.packed_up(chain.seeds, standings, chain.diary)

    def revive(self, past: Mapping[str, Any]) -> Chain | None:
        """A chain that stands where another stood, or None where it did not get there."""
        try:
            pasts, seeds = replay.unpacked(past), [int(seed) for seed in past["seeds"]]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None
        if not len(pasts) == len(seeds) == self.spec.num_chains:
            return None
        chain = self._open(seeds)
        if not all(self._all("revive", [(chain.number, pasts[a:b]) for a, b in self._shares])):
            return None
        chain.diary = Diary([(past.actions, past.rewards) for past in pasts])
        return chain

    def evaluate(self, policy: Policy, theta: Params, setting: Setting, memory: Any = None) -> Evaluation:
        """Mean returns of the policies (leading axis K) over a few episodes with seeds of their own."""
        from moac.envs import evaluation

        return evaluation.while_training(self, policy, theta, setting, memory)

    def asked(self, name: str, *arguments: Any) -> Any:
        """Call the first fleet alone."""
        return _answered(self._fleets[:1], name, [arguments])[0]

    def close(self) -> None:
        """End the worker processes."""
        for fleet in self._fleets:
            if isinstance(fleet, Worker):
                fleet.close()

    def scale(self, moments: Moments | None) -> Scale | None:
        """How vectors come into [0, 1]; None for states."""
        return None if self.spec.num_states is not None else self.plan.encoder.scale(moments)

    def _all(self, name: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """Call every fleet with its own arguments."""
        return _answered(self._fleets, name, arguments)

    @cached_property
    def _fleets(self) -> list[Fleet | Worker]:
        if not self._num_workers:
            return [Fleet(self.plan)]
        return [Worker(self.plan, number, self.step_timeout) for number in range(self._num_workers)]

    @cached_property
    def _shares(self) -> list[tuple[int, int]]:
        """Which copies each fleet has: first, and one past the last."""
        edges = np.linspace(0, self.spec.num_chains, len(self._fleets) + 1).round().astype(int).tolist()
        return list(itertools.pairwise(edges))


def fingerprint(name: str, plan: Plan, num_envs: int) -> str:
    """A short hash of what a run depends on: name, spaces, options, number of copies."""
    maker = plan.maker
    about: list[Any] = [name, plan.encoder.to_json(), plan.num_actions, plan.num_objectives, num_envs, maker.time_limit]
    about.append([[key, repr(value)] for key, value in maker.options])
    about += [] if plan.box is None else [plan.box.to_json()]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _batches(walks: Walks, scale: Scale | None, sizes: Sampling) -> tuple[Batch, Batch]:
    """[n, T] to the critic's [N, D] and the actor's [B]: time first, copies side by side."""
    N, D = sizes.num_critic_steps, sizes.critic_batch_size

    def ordered(table: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        flat = table.swapaxes(0, 1).reshape(-1, *table.shape[2:])
        return flat[: N * D].reshape(N, D, *flat.shape[1:]), flat[N * D :]

    see: Callable[[Any], Any] = (lambda x: x) if scale is None else scale
    terminated = None if sizes.average else walks.terminated
    columns = (see(walks.observation), walks.action, walks.reward, see(walks.next_observation), terminated, walks.age)
    critic, actor = zip(*((None, None) if x is None else ordered(x) for x in columns), strict=True)
    return Batch(*critic), Batch(*actor)


def _answered(fleets: Sequence[Fleet | Worker], name: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
    """What fleets say to a call, each with its own arguments; workers at the same time."""
    pairs = list(zip(fleets, arguments, strict=True))
    for fleet, given in pairs:
        if isinstance(fleet, Worker):
            fleet.ask(name, *given)
    answers = [f.answer() if isinstance(f, Worker) else f.call(name, *given) for f, given in pairs]
    for error in (answer for answer in answers if isinstance(answer, Exception)):
        raise error
    return answers


def _close(fleets: list[Fleet | Worker], number: int) -> None:
    """Close a chain's environments."""
    for fleet in fleets:
        if isinstance(fleet, Fleet):
            fleet.close(number)
        else:
            with contextlib.suppress(SourceError):
                fleet.ask("close", number)
