"""What all learners share: trials over devices, phases, and what validation users say meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, final

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from moac.logs.dataset import LoggedDataset
from moac.logs.sampling import Data
from moac.offline import evaluate
from moac.offline.baselines.options import Common, whole
from moac.offline.baselines.problem import Problem
from moac.policies import SoftmaxMLP
from moac.policies.networks import Weights
from moac.training.compiled import compiler_options
from moac.types import Key


class Carry(Protocol):
    """What a learner carries from step to step: a pytree with these among its attributes."""

    @property
    def theta(self) -> Weights:
        """Of the policy that is returned."""
        ...

    @property
    def weights(self) -> Float[Array, " M"]:
        """Of the signals."""
        ...


class Learner(Protocol):
    """A method, as a pytree: where it starts, and its phases. The last one is that of the policy, and is watched."""

    @property
    def problem(self) -> Problem:
        """What it knows of the log."""
        ...

    @property
    def phases(self) -> tuple[Callable[[Data, Any, Key], Any], ...]:
        """A step of each, (data, carry, key) ↦ carry."""
        ...

    def init(self, data: Data, key: Key) -> Any:
        """What is carried into the first step."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """Policies of K trials; every array has leading axis K.

    Attributes:
        policy: the network, for `evaluate.probabilities(dataset, policy, theta, rows)`.
        theta: its weights.
        steps: [L] of the last phase, after which validation users were asked; the last is after all.
        weights_history: [K, L, M] of the signals.
        values_history: [K, L, M] NCIS on validation users, rewards as in the dataset.
        carry: everything that the learner held at the end.
    """

    policy: SoftmaxMLP
    theta: Weights
    steps: Int[np.ndarray, " L"]
    weights_history: Float[np.ndarray, "K L M"]
    values_history: Float[np.ndarray, "K L M"]
    carry: Any


def train(dataset: LoggedDataset, learner: Learner, options: Common, trials: int, seed: int) -> Learned:
    """Run K trials through all phases; trial i depends on (seed, i) alone, for any number of trials and devices."""
    whole("trials", trials, 1)
    whole("seed", seed, 0)
    devices = tuple(jax.local_devices()[:trials])
    row = NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))
    data = jax.device_put(dataset.data, NamedSharding(row.mesh, PartitionSpec()))
    padded = np.arange(-(-trials // len(devices)) * len(devices)).reshape(-1, len(devices))
    blocks = [_first(row)(learner, data, np.uint32(seed), index) for index in padded]
    *before, count = options.counts
    for phase, own in enumerate(before):
        blocks = [_advance(phase, row)(learner, data, block, own) for block in blocks]
    steps = np.unique(np.linspace(count, 1, min(options.num_evaluations, count)).astype(int))
    logged: list[tuple[Any, Any]] = []
    carry: Any = None
    for more in np.diff(steps, prepend=0):
        blocks = [_advance(len(before), row)(learner, data, block, more) for block in blocks]
        carry = _joined([block[0] for block in blocks], trials)
        logged.append((carry.weights, _values(dataset, learner.problem.policy, carry.theta)))
    weights, values = (np.stack(column, axis=1) for column in zip(*logged, strict=True))
    return Learned(learner.problem.policy, carry.theta, steps, weights, values, carry)


@lru_cache(maxsize=8)
def _first(row: NamedSharding) -> Callable[..., Any]:
    """(learner, data, seed, trial indices) ↦ a row of trials, one per device."""

    def first(learner: Learner, data: Data, seed: Int[Array, ""], index: Int[Array, ""]) -> tuple[Any, Key]:
        key_init, key_steps = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
        return learner.init(data, key_init), key_steps

    return jax.jit(jax.vmap(first, in_axes=(None, None, None, 0)), out_shardings=row)


@lru_cache(maxsize=8)
def _advance(phase: int, row: NamedSharding) -> Callable[..., Any]:
    """(learner, data, row of trials, count) ↦ the row `count` steps of a phase later; each device runs one trial."""

    def once(learner: Learner, data: Data, trial: tuple[Any, Key]) -> tuple[Any, Key]:
        key, key_step = jax.random.split(trial[1])
        return learner.phases[phase](data, trial[0], key_step), key

    def advance(learner: Learner, data: Data, trials: tuple[Any, Key], count: Int[Array, ""]) -> Any:
        return lax.fori_loop(0, count, lambda _, own: jax.vmap(partial(once, learner, data))(own), trials)

    along, same = row.spec, PartitionSpec()
    specs = (same, same, along, same)
    per_device = jax.shard_map(advance, mesh=row.mesh, in_specs=specs, out_specs=along, check_vma=False)
    return jax.jit(per_device, compiler_options=compiler_options())


def _joined(blocks: list[Any], count: int) -> Any:
    """Rows of trials to one host pytree of `count` trials."""
    return jax.tree.map(lambda *x: np.concatenate([np.asarray(leaf) for leaf in x])[:count], *blocks)


def _values(dataset: LoggedDataset, policy: SoftmaxMLP, theta: Weights) -> Float[np.ndarray, "K M"]:
    """NCIS on validation users."""
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(theta)):
        raise ValueError("training diverged: `step_size` or `critic_step_size` must be smaller.")
    return evaluate.estimate(dataset, policy, theta).returns
