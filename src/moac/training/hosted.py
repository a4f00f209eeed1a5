"""Training on a source that is sampled on the host: only the update is compiled.

Every trial calls the same compiled update for itself, so that trial i depends on (seed, i) alone, bit for bit, for any
number of trials. A run that is resumed starts new episodes, with seeds that follow from (seed, trial, iteration), and
keeps what its chains have learned, such as the scale of observations.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from moac import compiling
from moac.compiling import compiler_options
from moac.kept import with_owner
from moac.parts import Parts
from moac.settings import Settings, sampling
from moac.training.run import Run, Snapshot, Trial, first_state, is_finite, learner
from moac.types import Allowance, Batch, Evaluation, Hosted, Key, Metrics, Spec, State


@dataclass(eq=False)
class _Live:
    """A running trial: its state and chain, the key to sample with, the last metrics, the iteration it stopped at."""

    state: State
    chain: Any
    key: Key
    metrics: Metrics
    stopped: int = 0


class Chains:
    """All trials of a run, one after the other."""

    def __init__(self, run: Run, snapshot: Snapshot | None) -> None:
        self._run, self._source = run, cast(Hosted, run.source)
        self._program = _program(run.source.spec, run.parts, run.settings.has_network)
        self._sizes, self._settings = sampling(run.settings, run.source.spec), jax.device_put(run.settings)
        M = run.source.spec.num_objectives
        self._no_metrics = Metrics(jnp.full((M, M), jnp.nan), jnp.full(M, jnp.nan))
        self._trials = [self._trial(index, snapshot) for index in range(run.num_trials)]
        self._longest_episode = 0

    def advance(self, count: int) -> None:
        """Do `count` iterations."""
        with self._source.undisturbed():
            for _, trial in itertools.product(range(count), self._trials):
                if not trial.stopped:
                    self._iterate(trial)

    def metrics(self) -> Metrics:
        """The metrics of the last iteration, leading axis K; NaN for a stopped trial, which takes no step."""
        return _stack([trial.metrics for trial in self._trials])

    def evaluate(self, allowance: Allowance) -> Evaluation | None:
        """The evaluation of all trials' policies, with what their chains have learned; None where steps are too few."""
        run, theta = self._run, _stack([trial.state.theta for trial in self._trials])
        memory = _stack([trial.chain.memory for trial in self._trials])
        typical = self._source.typical_episode([trial.chain for trial in self._trials])
        allowance = replace(allowance, longest_episode=self._longest_episode, typical_episode=typical)
        setting = run.config.setting
        evaluation = self._source.evaluate_within(allowance, run.parts.policy, theta, setting, memory)
        if evaluation is not None:
            self._longest_episode = max(self._longest_episode, evaluation.longest_episode)
        return evaluation

    def stored(self) -> Callable[[], list[Trial]]:
        """A function that returns all trials on the host, as they are now, in one block."""
        now = [Trial(trial.state, trial.chain.memory, cast(Any, np.int32(trial.stopped))) for trial in self._trials]
        return lambda: [_stack(now)]

    def _iterate(self, trial: _Live) -> None:
        """Sample under θ_t and update; a trial whose update is not finite stays where it was."""
        policy, theta = self._run.parts.policy, trial.state.theta
        trial.chain, rollout = self._source.rollout(trial.chain, policy, theta, trial.key, self._sizes)
        new, trial.metrics, signal = self._program.step(self._settings, trial.state, rollout)
        *key, finite = np.asarray(signal).tolist()
        if finite:
            trial.state, trial.key = new, key
        else:
            trial.stopped, trial.metrics = int(new.t), self._no_metrics

    def _trial(self, index: int, snapshot: Snapshot | None) -> _Live:
        """A trial at iteration 0, or as a snapshot stored it, in new episodes."""
        run, program = self._run, self._program
        first = (np.uint32(run.seed), np.int32(index), run.preference(index))
        state, key_chain = program.first(run.settings, *first)
        if snapshot is None:
            return _Live(state, self._source.start(key_chain), program.sample_key(state), self._no_metrics)
        stored = jax.tree.map(lambda x: x[index], snapshot.trials)
        state = jax.tree.map(jnp.asarray, stored.state)
        # The state's key is another after every iteration, also where a new stage counts iterations from 0 again.
        key_episodes = jax.random.fold_in(key_chain, stored.state.key[-1])
        chain = self._source.start(key_episodes, stored.chain)
        return _Live(state, chain, program.sample_key(state), self._no_metrics, int(stored.stopped))


class _Program(NamedTuple):
    """The compiled functions of one trial."""

    # (settings, seed, trial, its preference or None) ↦ its state at iteration 0, and the key of its chain
    first: Callable[..., tuple[State, Key]]
    sample_key: Callable[[State], Key]  # state ↦ the key that the iteration to come samples with
    # (settings, state, rollout) ↦ the next state, its metrics, and, in one array for the host, the next sample key and
    # whether the state is finite
    step: Callable[..., tuple[State, Metrics, UInt32[Any, "3"]]]


@with_owner
def _program(spec: Spec, parts: Parts, has_network: bool) -> _Program:
    spec = weakref.proxy(spec)  # the spec owns the program, so the program must not own the spec
    # An update is a hundred small operations: in the order that needs least memory they run one after the other, while
    # handing them from thread to thread would cost more than they do.
    options: dict[str, Any] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
    if not has_network:  # XLA's fusion emitters double the time to compile; tables train as fast without them
        options["xla_cpu_use_fusion_emitters"] = False
    step = jax.jit(partial(_step, spec, parts), compiler_options=compiler_options(**options))
    once = partial(jax.jit, compiler_options=compiling.known(compiling.AT_ONCE))
    return _Program(once(partial(first_state, spec, parts)), once(_sample_key), step)


def _sample_key(state: State) -> Key:
    return jax.random.split(state.key)[1]


def _step(
    spec: Spec, parts: Parts, settings: Settings, state: State, rollout: Batch
) -> tuple[State, Metrics, UInt32[Any, "3"]]:
    _, update = learner(settings, spec, parts)
    key_state, _ = jax.random.split(state.key)
    new, metrics = update(replace(state, key=key_state), *sampling(settings, spec).split(rollout))
    finite = is_finite((new.theta, new.w, new.mu, metrics.weights))
    return new, metrics, jnp.append(_sample_key(new), finite.astype(jnp.uint32))


def _stack(trees: list[Any]) -> Any:
    """Pytrees as one on the host, with leading axis K."""
    return jax.tree.map(lambda *x: np.stack(x), *trees)
