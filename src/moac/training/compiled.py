"""Training on a source whose samples are drawn inside the compiled program.

Trials run in blocks of fixed width, each block the same compiled program on whatever device, so that trial i depends
on (seed, i) alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int

from moac import algorithm
from moac.parts import Parts
from moac.settings import NETWORKS, Settings, sampling
from moac.training.history import History
from moac.training.pace import Pace
from moac.training.run import Run, Snapshot, Trial, bits, evaluation_iterations, host_shape, is_finite
from moac.types import Carrying, Evaluation, Metrics, Source

WIDTH = 64
"""Trials per block of small policies; networks fill a core with one trial."""
_OPTIONS: dict[str, Any] = {
    "xla_cpu_multi_thread_eigen": False,  # blocks are the parallelism; threads inside one cost more than they save
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION",  # its calls are slow if small
}


def iterate(run: Run, snapshot: Snapshot | None = None) -> Iterator[Snapshot]:
    """Train from the start, or from a snapshot, and yield a snapshot after each chunk; the last one is the result."""
    program, pace = _of(run), Pace()
    blocks = program.start(run) if snapshot is None else program.restart(snapshot.trials)
    iteration = 0 if snapshot is None else snapshot.iteration
    history = History.empty() if snapshot is None else snapshot.history
    for target in (int(t) for t in evaluation_iterations(run.settings) if t > iteration):
        while iteration < target:
            count = min(pace.longest, target - iteration)
            with pace.timed(count):
                advanced = jax.block_until_ready([program.advance(run, block, count) for block in blocks])
            blocks, iteration = [block for block, _ in advanced], iteration + count
            if iteration == target:
                metrics = _join([metrics for _, metrics in advanced], run.num_trials)
                history = history.extended(iteration, metrics, _evaluation(run, blocks))
            yield Snapshot(iteration, partial(_join, blocks, run.num_trials), history)


@final
@dataclass(frozen=True, eq=False)
class _Program:
    """The two compiled functions of a row of blocks, one block per device.

    Attributes:
        first: (settings, seed, trial indices, their preferences or None) ↦ trials at iteration 0.
        step: (settings, data, trials, count) ↦ the trials `count` iterations later, and the metrics of the last.
        data: the source's arrays that the program takes as an argument, on every device.
        sharding: a row's, over the devices.
        width: trials per block.
    """

    first: Callable[..., Trial]
    step: Callable[..., tuple[Trial, Metrics]]
    data: Any
    sharding: NamedSharding
    width: int

    @property
    def num_devices(self) -> int:
        """Devices that work side by side."""
        return self.sharding.num_devices

    def advance(self, run: Run, block: Trial, count: int) -> tuple[Trial, Metrics]:
        """The block `count` iterations later, and the metrics of the last."""
        return self.step(run.settings, self.data, block, count)

    def start(self, run: Run) -> list[Trial]:
        """All rows at iteration 0."""
        seed = jnp.asarray(run.seed, jnp.uint32)
        rows = self._rows(run.num_trials)
        return [self.first(run.settings, seed, jnp.asarray(row), run.preference(row)) for row in rows]

    def restart(self, trials: Trial) -> list[Trial]:
        """Host trials back to rows, the last padded with copies of its last trial."""
        key = jax.random.wrap_key_data(jnp.asarray(trials.state.key))
        trials = replace(trials, state=replace(trials.state, key=key))
        last = len(trials.stopped) - 1
        picked = [np.minimum(row, last) for row in self._rows(last + 1)]
        return [jax.device_put(jax.tree.map(lambda x, i=i: x[i], trials), self.sharding) for i in picked]

    def _rows(self, count: int) -> Int[np.ndarray, "R W"]:
        """Indices of `count` trials, in rows of one block per device."""
        width = self.width * self.num_devices
        return np.arange(-(-count // width) * width).reshape(-1, width)


def _width(settings: Settings) -> int:
    """Trials per block: the same for every number of trials, so that each is computed in the same way."""
    return 1 if settings.policy in NETWORKS or settings.critic == "mlp" else WIDTH


def _devices(run: Run) -> tuple[Any, ...]:
    """As many devices as there are blocks to give them."""
    found = jax.local_devices()
    return tuple(found[: min(len(found), -(-run.num_trials // _width(run.settings)))])


@lru_cache(maxsize=2)
def compiler_options(**more: Any) -> dict[str, Any] | None:
    """`_OPTIONS` and more, or None where this build of XLA does not know them."""
    options = _OPTIONS | more
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return options


def _of(run: Run) -> _Program:
    return _program(run.source, run.parts, _devices(run), _width(run.settings))


@lru_cache(maxsize=16)
def _program(source: Source, parts: Parts, devices: tuple[Any, ...], width: int) -> _Program:
    """The settings are an argument: one compilation serves all values of the numbers that they declare as traced."""
    M = source.spec.num_objectives

    def first(settings: Settings, seed: Int[Array, ""], index: Int[Array, ""], preference: Any) -> Trial:
        key_chain, key_state = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
        init, _ = algorithm.build(settings, source.spec, *parts)
        state = init(key_state, preference)
        if settings.start == "behaviour" and isinstance(source, Carrying):
            theta = source.initial()
            state = replace(state, theta=theta, theta_random=theta)
        return Trial(state, source.start(key_chain), jnp.zeros((), jnp.int32))

    def firsts(settings: Settings, seed: Any, indices: Any, preferences: Any) -> Trial:
        return jax.vmap(partial(first, settings), in_axes=(None, 0, 0))(seed, indices, preferences)

    def iteration(settings: Settings, bound: Source, trial: Trial) -> tuple[Trial, Metrics]:
        """Sample under θ_t and update; a trial whose update is not finite stays where it was."""
        _, update = algorithm.build(settings, source.spec, *parts)
        sizes = sampling(settings, source.spec)
        key_state, key_sample = jax.random.split(trial.state.key)
        state = replace(trial.state, key=key_state)
        chain, critic_batches, actor_batch = bound.sample(trial.chain, parts.policy, state.theta, key_sample, sizes)
        new, metrics = update(state, critic_batches, actor_batch)
        healthy = is_finite((new.theta, new.w, new.mu, metrics.weights))
        running = healthy & (trial.stopped == 0)
        kept = jax.tree.map(partial(jnp.where, running), (new, chain), (trial.state, trial.chain))
        stopped = jnp.where(healthy | (trial.stopped > 0), trial.stopped, new.t)
        return Trial(kept[0], kept[1], stopped), metrics

    def advance(settings: Settings, data: Any, block: Trial, count: Int[Array, ""]) -> tuple[Trial, Metrics]:
        """`count` iterations, and the metrics of the last."""
        bound = source.bound(data) if isinstance(source, Carrying) else source
        once = jax.vmap(partial(iteration, settings, bound))
        nothing = Metrics(jnp.full((width, M, M), jnp.nan), jnp.full((width, M), jnp.nan))
        return lax.fori_loop(0, count, lambda _, carry: once(carry[0]), (block, nothing))

    mesh, along, same = Mesh(np.array(devices), ("device",)), PartitionSpec("device"), PartitionSpec()
    per_device = jax.shard_map(advance, mesh=mesh, in_specs=(same, same, along, same), out_specs=along, check_vma=False)
    sharding = NamedSharding(mesh, along)
    data = jax.device_put(source.data, NamedSharding(mesh, same)) if isinstance(source, Carrying) else ()
    return _Program(
        jax.jit(firsts, out_shardings=sharding),
        jax.jit(per_device, compiler_options=compiler_options()),
        data,
        sharding,
        width,
    )


def template(run: Run) -> Trial:
    """Shapes and dtypes of a snapshot's trials."""
    program = _of(run)
    index = jax.ShapeDtypeStruct((program.width * program.num_devices,), jnp.int32)
    first = partial(program.first, run.settings)
    shapes = jax.eval_shape(first, jax.ShapeDtypeStruct((), jnp.uint32), index, None)
    return jax.tree.map(partial(host_shape, run.num_trials), shapes)


def _evaluation(run: Run, blocks: list[Trial]) -> Evaluation:
    theta = _join([block.state.theta for block in blocks], run.num_trials)
    return run.source.evaluate(run.parts.policy, theta, run.config.setting)


def _join(blocks: list[Any], count: int) -> Any:
    """Blocks to one host pytree of `count` trials; keys as their data."""
    return jax.tree.map(lambda *x: np.concatenate([part for leaf in x for part in _parts(leaf)])[:count], *blocks)


def _parts(leaf: Array) -> list[np.ndarray[Any, Any]]:
    """What each device holds of a leaf, in order; on a CPU without a copy, which large states make dear."""
    return [np.asarray(shard.data) for shard in bits(leaf).addressable_shards]
