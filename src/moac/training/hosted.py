"""Training on a source that is sampled on the host: the update is compiled, what it learns from is not.

Every trial calls the same compiled update for itself, so that trial i depends on (seed, i) alone, bit for bit, for any
number of trials. A run that is continued brings its chains back to where they stood; where the source cannot do that,
it starts them anew, from what they had learned, and the snapshot says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, UInt32

from moac import algorithm
from moac.parts import Parts
from moac.settings import Settings, sampling
from moac.training.compiled import compiler_options
from moac.training.history import History
from moac.training.pace import Pace
from moac.training.run import Run, Snapshot, Trial, bits, evaluation_iterations, host_shape, is_finite
from moac.types import Batch, Hosted, Key, Metrics, Spec, State


@final
@dataclass(frozen=True, eq=False)
class _Program:
    """The compiled functions of one trial.

    Attributes:
        first: (settings, seed, trial, its preference or None) ↦ its state at iteration 0, and the key of its chain.
        sample_key: state ↦ the key that the iteration to come samples with.
        step: (settings, state, critic batches, actor batch) ↦ the next state, metrics, and in one array for the host
            whether the state is finite and the next sample key.
    """

    first: Callable[..., tuple[State, Key]]
    sample_key: Callable[[State], Key]
    step: Callable[[Settings, State, Batch, Batch], tuple[State, Metrics, UInt32[Any, "3"]]]


@final
@dataclass(eq=False)
class _Live:
    """A trial that runs: state, chain, key to sample with, last metrics, when it stopped, whether its chain is new."""

    state: State
    chain: Any
    key: Key
    metrics: Metrics
    stopped: int = 0
    restarted: bool = False


@final
@dataclass(eq=False)
class _Clock:
    """How many chunks have begun."""

    ticks: int = 0


def iterate(run: Run, snapshot: Snapshot | None = None) -> Iterator[Snapshot]:
    """Train from the start, or from a snapshot, and yield a snapshot after each chunk; the last one is the result."""
    program, source = _program(run.source.spec, run.parts), cast(Hosted, run.source)
    sizes, settings = sampling(run.settings, source.spec), jax.device_put(run.settings)
    iteration = 0 if snapshot is None else snapshot.iteration
    history = History.empty() if snapshot is None else snapshot.history
    live = [_revived(run, program, index, snapshot) for index in range(run.num_trials)]
    clock, pace = _Clock(), Pace()
    restarted = iteration if any(trial.restarted for trial in live) else None
    for target in (int(t) for t in evaluation_iterations(run.settings) if t > iteration):
        while iteration < target:
            count = min(pace.longest, target - iteration)
            clock.ticks += 1
            with pace.timed(count), source.undisturbed():
                for _, trial in itertools.product(range(count), live):
                    _advance(trial, run, partial(program.step, settings), sizes)
            iteration += count
            trials = _stored(live, source)
            if iteration == target:
                metrics = _stack([trial.metrics for trial in live])
                found = source.evaluate(run.parts.policy, trials.state.theta, run.config.setting, trials.chain)
                history = history.extended(iteration, metrics, found)
            past = partial(_pasts, live, source, clock, clock.ticks)
            yield Snapshot.of(iteration, trials, history, past, restarted)
            restarted = None


def template(run: Run) -> Trial:
    """Shapes and dtypes of a snapshot's trials."""
    source = cast(Hosted, run.source)
    seed, index = jax.ShapeDtypeStruct((), jnp.uint32), jax.ShapeDtypeStruct((1,), jnp.int32)
    first = partial(_program(source.spec, run.parts).first, run.settings)
    state, _ = jax.eval_shape(jax.vmap(first, in_axes=(None, 0, None)), seed, index, None)
    memory = jax.tree.map(lambda x: np.asarray(x)[None], source.memory(sampling(run.settings, source.spec)))
    shapes = Trial(state, memory, cast(Any, jax.ShapeDtypeStruct((1,), np.int32)))
    return jax.tree.map(partial(host_shape, run.num_trials), shapes)


@lru_cache(maxsize=16)
def _program(spec: Spec, parts: Parts) -> _Program:
    def first(settings: Settings, seed: Int[Any, ""], index: Int[Any, ""], preference: Any) -> tuple[State, Key]:
        key_chain, key_state = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
        init, _ = algorithm.build(settings, spec, *parts)
        return init(key_state, preference), jax.random.key_data(key_chain)

    def sample_key(state: State) -> Key:
        return jax.random.key_data(jax.random.split(state.key)[1])

    def step(
        settings: Settings, state: State, critic_batches: Batch, actor_batch: Batch
    ) -> tuple[State, Metrics, UInt32[Any, "3"]]:
        _, update = algorithm.build(settings, spec, *parts)
        key_state, _ = jax.random.split(state.key)
        new, metrics = update(replace(state, key=key_state), critic_batches, actor_batch)
        healthy = is_finite((new.theta, new.w, new.mu, metrics.weights))
        return new, metrics, jnp.append(sample_key(new), healthy.astype(jnp.uint32))

    # An update is a hundred small operations: in the order that needs least memory they run one after the other, while
    # handing them from thread to thread would cost more than they do.
    options = compiler_options(xla_cpu_scheduler_type="CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED")
    return _Program(jax.jit(first), jax.jit(sample_key), jax.jit(step, compiler_options=options))


def _advance(trial: _Live, run: Run, step: Callable[..., Any], sizes: Any) -> None:
    """Sample under θ_t and update; a trial whose update is not finite stays where it was."""
    if trial.stopped:
        return
    policy, theta = run.parts.policy, trial.state.theta
    trial.chain, critic_batches, actor_batch = run.source.sample(trial.chain, policy, theta, trial.key, sizes)
    new, trial.metrics, signal = step(trial.state, critic_batches, actor_batch)
    *key, healthy = np.asarray(signal).tolist()
    if healthy:
        trial.state, trial.key = new, key
    else:
        trial.stopped = int(new.t)


def _revived(run: Run, program: _Program, index: int, snapshot: Snapshot | None) -> _Live:
    """A trial at iteration 0, or as a snapshot has it."""
    preference = run.preference(index)
    state, key_chain = program.first(run.settings, np.uint32(run.seed), np.int32(index), preference)
    M, source = run.source.spec.num_objectives, cast(Hosted, run.source)
    nothing = Metrics(jnp.full((M, M), jnp.nan), jnp.full(M, jnp.nan))
    if snapshot is None:
        return _Live(state, source.start(key_chain), program.sample_key(state), nothing)
    kept = jax.tree.map(lambda x: x[index], snapshot.trials)
    key = jax.random.wrap_key_data(jnp.asarray(kept.state.key))
    state = replace(jax.tree.map(jnp.asarray, kept.state), key=key)
    past = _under(f"{index}.", snapshot.past() or {})
    chain = source.revive(past)
    restarted = chain is None
    if restarted:
        again = jax.random.fold_in(jax.random.wrap_key_data(key_chain), snapshot.iteration)
        chain = source.start(jax.random.key_data(again))
    source.recall(chain, kept.chain)
    metrics = Metrics(*(jnp.asarray(past.get(name, empty)) for name, empty in vars(nothing).items()))
    return _Live(state, chain, program.sample_key(state), metrics, int(kept.stopped), restarted)


def _stored(live: list[_Live], source: Hosted) -> Trial:
    """All trials on the host, as a snapshot keeps them."""
    state = _stack([trial.state for trial in live])
    memory = _stack([source.learned(trial.chain) for trial in live])
    return Trial(state, memory, cast(Any, np.array([trial.stopped for trial in live], dtype=np.int32)))


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *x: np.stack([np.asarray(bits(leaf)) for leaf in x]), *trees)


def _pasts(live: list[_Live], source: Hosted, clock: _Clock, ticks: int) -> dict[str, Any] | None:
    """Of every trial, by its number and a name: its chain's past, its metrics; None once the chains have gone on."""
    if clock.ticks != ticks:
        return None
    return {
        f"{index}.{name}": array
        for index, trial in enumerate(live)
        for name, array in {**jax.tree.map(np.asarray, vars(trial.metrics)), **source.past(trial.chain)}.items()
    }


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
