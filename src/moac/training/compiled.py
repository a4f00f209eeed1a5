"""Training on a source whose samples are drawn inside the compiled program.

Trials run in blocks of fixed width, each by the same compiled program of one device, so that trial i depends on
(seed, i) alone, bit for bit. As many blocks run at a time as JAX has devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.stages import Lowered, Wrapped
from jaxtyping import Int

from moac import compiling
from moac.compiling import compiler_options
from moac.kept import with_owner
from moac.parts import Parts
from moac.settings import Settings, sampling
from moac.training.run import Run, Snapshot, Trial, first_state, is_finite, joined, learner
from moac.types import Allowance, Drawn, Evaluation, Metrics, Preparing, Shape, Source, Spec

WIDTH = 32
"""Trials per block of small policies; networks fill a core with one trial."""


class Blocks:
    """All trials of a run, in blocks on the device."""

    def __init__(self, run: Run, snapshot: Snapshot | None) -> None:
        self._run, self._program = run, _program_of(run)
        self._data = jax.device_put(run.source.data)
        _compile(run, self._program, self._data, snapshot is None)
        self._blocks = self._first_blocks() if snapshot is None else self._blocks_of(snapshot.trials)
        # Compiled already. Fetched in this thread, where the caller's options of JAX hold, such as `enable_x64`.
        self._step = _lowered(run, self._program, self._data, self._blocks[0]).compile()
        self._metrics: list[Metrics] = []

    def advance(self, count: int) -> None:
        """Do `count` iterations."""
        arguments = _arguments(self._run, self._data, count)

        def step(block: Trial) -> tuple[Trial, Metrics]:
            return jax.block_until_ready(self._step(*arguments, block))

        # One thread per block that runs: a program compiled for several devices would round in another way than one
        # for a single device, and calls of one thread run one after the other.
        with ThreadPoolExecutor(len(jax.local_devices())) as threads:
            pairs = list(threads.map(step, self._blocks))
        self._blocks, self._metrics = [block for block, _ in pairs], [metrics for _, metrics in pairs]

    def metrics(self) -> Metrics:
        """The metrics of the last iteration, leading axis K; NaN for a stopped trial, which takes no step."""
        metrics = _join(self._metrics, self._run.num_trials)
        stopped = _join([block.stopped for block in self._blocks], self._run.num_trials)
        for values in (metrics.gram, metrics.weights):
            values[stopped > 0] = np.nan
        return metrics

    def evaluate(self, allowance: Allowance) -> Evaluation:
        """The evaluation of all trials' policies, which takes no environment steps."""
        del allowance
        run, theta = self._run, _join([block.state.theta for block in self._blocks], self._run.num_trials)
        return run.source.evaluate(run.parts.policy, theta, run.config.setting)

    def stored(self) -> Callable[[], list[Trial]]:
        """A function that returns all trials on the host, as they are now, block by block."""
        return partial(_on_host, self._blocks, self._run.num_trials)

    def _first_blocks(self) -> list[Trial]:
        """All blocks at iteration 0."""
        run, seed = self._run, jnp.asarray(self._run.seed, jnp.uint32)
        rows = self._program.rows(run.num_trials)
        first = partial(self._program.first, run.settings, self._data, seed)
        return [first(_Numbered.of(run, row)) for row in rows]

    def _blocks_of(self, trials: Trial) -> list[Trial]:
        """Trials from the host as blocks, the last one padded with copies of the last trial."""
        last = len(trials.stopped) - 1
        indices = [np.minimum(row, last) for row in self._program.rows(last + 1)]
        return [jax.device_put(jax.tree.map(lambda x, i=i: x[i], trials)) for i in indices]


class _Program(NamedTuple):
    """The two compiled functions of a block, and what they are called with."""

    first: Wrapped  # (settings, data, seed, trials by number) ↦ trials at iteration 0
    # (settings, data, count, trials) ↦ the trials `count` iterations later, and the metrics of the last
    step: Wrapped
    width: int  # trials per block
    compiled_for: set[Any]  # the static settings, and the shapes of the data, that the functions were compiled for

    def rows(self, count: int) -> Int[np.ndarray, "R W"]:
        """Indices of `count` trials, in rows of one block each."""
        return np.arange(-(-count // self.width) * self.width).reshape(-1, self.width)


def _program_of(run: Run) -> _Program:
    """The program of a run's blocks, which have the same width for every number of trials."""
    width = 1 if run.settings.has_network else WIDTH
    if run.source.shape is None or run.given:
        return _own_program(run.source, run.parts, width)
    return _shared_program(run.source.shape, run.parts, width)


@with_owner
def _own_program(source: Source, parts: Parts, width: int) -> _Program:
    """The program of one source. The source owns the program, so the program must not own the source."""
    return _program(weakref.proxy(source), parts, width)


@lru_cache(maxsize=16)
def _shared_program(shape: Shape, parts: Parts, width: int) -> _Program:
    """The program of all sources of a shape, which it takes as an argument."""
    return _program(shape, parts, width)


def _program(source: Source | Shape, parts: Parts, width: int) -> _Program:
    """The program takes settings as an argument: one compilation serves all values of those declared as traced."""
    return _Program(
        jax.jit(partial(_first, source, parts), compiler_options=compiling.known(compiling.AT_ONCE)),
        jax.jit(partial(_advance, source, parts), compiler_options=compiler_options()),
        width,
        set(),
    )


class _Numbered(NamedTuple):
    """The trials of a block by number, each with its preference or None."""

    index: Any
    preference: Any

    @classmethod
    def of(cls, run: Run, row: Int[np.ndarray, " W"]) -> _Numbered:
        """The trials of these numbers."""
        return cls(jnp.asarray(row), run.preference(row))


def _first(unbound: Source | Shape, parts: Parts, settings: Settings, data: Any, seed: Any, trials: _Numbered) -> Trial:
    """A block of trials at iteration 0."""
    source = unbound.bound(data)

    def first(index: Int[Array, ""], preference: Any) -> Trial:
        state, key_chain = first_state(unbound.spec, parts, settings, seed, index, preference)
        if settings.start == "behaviour":
            theta = source.initial()
            state = replace(state, theta=theta, theta_random=theta)
        return Trial(state, source.start(key_chain), jnp.zeros((), jnp.int32))

    return jax.vmap(first)(*trials)


def _advance(
    source: Source | Shape, parts: Parts, settings: Settings, data: Any, count: Int[Array, ""], block: Trial
) -> tuple[Trial, Metrics]:
    """A block after `count` iterations, and the metrics of the last."""
    spec = source.spec
    once = jax.vmap(partial(_iteration, source.bound(data), spec, parts, settings))
    width, M = len(block.stopped), spec.num_objectives
    nothing = Metrics(jnp.full((width, M, M), jnp.nan), jnp.full((width, M), jnp.nan))
    return lax.fori_loop(0, count, lambda _, carry: once(carry[0]), (block, nothing))


def _iteration(source: Drawn, spec: Spec, parts: Parts, settings: Settings, trial: Trial) -> tuple[Trial, Metrics]:
    """Sample under θ_t and update; a trial whose update is not finite stays where it was."""
    _, update = learner(settings, spec, parts)
    sizes = sampling(settings, spec)
    key_state, key_sample = jax.random.split(trial.state.key)
    state = replace(trial.state, key=key_state)
    chain, critic_batches, actor_batch = source.sample(trial.chain, parts.policy, state.theta, key_sample, sizes)
    new, metrics = update(state, critic_batches, actor_batch)
    finite = is_finite((new.theta, new.w, new.mu, metrics.weights))
    running = finite & (trial.stopped == 0)
    state, chain = jax.tree.map(partial(jnp.where, running), (new, chain), (trial.state, trial.chain))
    stopped = jnp.where(finite | (trial.stopped > 0), trial.stopped, new.t)
    return Trial(state, chain, stopped), metrics


def _compile(run: Run, program: _Program, data: Any, begins: bool) -> None:
    """Compile all that the first snapshot needs: while XLA compiles one function, Python traces the next."""
    called_with = (run.settings.static, compiling.shapes_of(data))
    if called_with in program.compiled_for:
        return
    program.compiled_for.add(called_with)
    row = program.rows(run.num_trials)[0]
    first = program.first.lower(run.settings, data, jnp.uint32(run.seed), _Numbered.of(run, row))
    block = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first.out_info)
    with ThreadPoolExecutor(2) as threads:
        if begins:
            threads.submit(first.compile)
        threads.submit(_lowered(run, program, data, block).compile)
        if isinstance(run.source, Preparing):
            run.source.prepare(run.parts.policy, run.config.setting)


def _lowered(run: Run, program: _Program, data: Any, block: Any) -> Lowered:
    """The function that advances a block, lowered; JAX caches what it has lowered or compiled."""
    return program.step.lower(*_arguments(run, data, 1), block)


def _arguments(run: Run, data: Any, count: int) -> tuple[Settings, Any, Array]:
    """The arguments that every block's program takes, on the device."""
    return jax.device_put(run.settings), data, jnp.asarray(count)


def _join(blocks: list[Any], count: int) -> Any:
    """Blocks as one host pytree of `count` trials, without padding."""
    return joined(_on_host(blocks, count))


def _on_host(blocks: list[Any], count: int) -> list[Any]:
    """Blocks of `count` trials on the host, without padding; on a CPU views, not copies."""
    width = len(jax.tree.leaves(blocks[0])[0])
    sizes = [max(count - k * width, 0) for k in range(len(blocks))]
    return [jax.tree.map(lambda x, n=n: np.asarray(x)[:n], x) for n, x in zip(sizes, blocks, strict=True)]
