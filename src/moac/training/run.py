"""A run, and how it stands after some iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from moac import settings
from moac.config import Config
from moac.parts import Parts
from moac.settings import Settings
from moac.training.history import History
from moac.types import Source, State

Past = Callable[[], Mapping[str, Any] | None]
"""Gives where a source that is sampled on the host stands, as arrays by name; None once it has gone on."""


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trial:
    """One trial, or a block of them.

    Attributes:
        state: the algorithm's.
        chain: the source's.
        stopped: 0 while the trial runs; else the iteration whose update was not finite. The state is the one before.
    """

    state: State
    chain: Any
    stopped: Int[Array, ""]


@final
@dataclass(frozen=True)
class Snapshot:
    """A run after some iteration.

    Attributes:
        iteration: updates done.
        joined: gives all K trials, leading axis K, on the host; `trials` asks for them once, when they are needed.
        history: what was logged so far.
        past: where a source that is sampled on the host stands.
        restarted_after: the iteration after which chains started anew, where this run could not go on with its own.
    """

    iteration: int
    joined: Callable[[], Trial]
    history: History
    past: Past = dict[str, Any]
    restarted_after: int | None = None

    @classmethod
    def of(
        cls, iteration: int, trials: Trial, history: History, past: Past = dict[str, Any], restarted: int | None = None
    ) -> Snapshot:
        """A snapshot whose trials are on the host already."""
        return cls(iteration, lambda: trials, history, past, restarted)

    @cached_property
    def trials(self) -> Trial:
        """All K trials, leading axis K, on the host."""
        return self.joined()

    def as_start(self) -> Snapshot:
        """The first snapshot of another run: every trial begins at this one's parameters, at iteration 0.

        What is learned (θ, critic, optimisers, the rule's state) and the chains go on; iterations, with every schedule
        that depends on them, start over, and nothing is logged yet. The other run has the same trials and the same
        shapes of policy and critic: `training.iterate(other, snapshot.as_start())`, or `train(..., start=snapshot)`.
        """
        state = replace(self.trials.state, t=np.zeros_like(self.trials.state.t))
        return Snapshot.of(0, replace(self.trials, state=state), History.empty(), self.past)


@final
@dataclass(frozen=True, eq=False)
class Run:
    """What is to be run: everything but the state.

    Attributes:
        source: the problem.
        config: complete: what config.json holds.
        parts: policy, critic and rule.
        num_trials: K.
        seed: of all randomness.
    """

    source: Source
    config: Config
    parts: Parts
    num_trials: int
    seed: int

    @cached_property
    def settings(self) -> Settings:
        """The configuration as the algorithm takes it."""
        return Settings.of(self.config)

    def preference(self, index: int | Int[np.ndarray, " n"]) -> Float[np.ndarray, "... M"] | None:
        """p of a trial, or of several; None where the configuration gives none."""
        given = self.config.preferences
        return None if given is None else np.asarray(given, np.float32)[index % len(given)]

    @property
    def env_steps_per_iteration(self) -> int:
        """Environment steps of all trials together."""
        return self.num_trials * settings.sampling(self.settings, self.source.spec).steps


def evaluation_iterations(settings: Settings) -> Int[np.ndarray, " L"]:
    """The iterations after which the policy is evaluated: evenly spread from the last to the first."""
    T = settings.num_iterations
    return np.unique(np.linspace(T, 1, min(settings.num_evaluations, T)).round().astype(int))


def total_iterations(run: Run) -> int:
    """T."""
    return run.settings.num_iterations


def mean_over_trials(values: Any) -> Any:
    """The mean over the first axis of what is finite; NaN where nothing is.

    NumPy adds in the order of memory, so the numbers are laid out anew: the mean of a history that was read from a file
    is that of the history that was written, to the last bit.
    """
    table = np.array(values, dtype=np.float64, order="C")
    known = np.isfinite(table)
    total = np.where(known, table, 0).sum(axis=0)
    return np.divide(total, known.sum(axis=0), out=np.full_like(total, np.nan), where=known.any(axis=0))


def is_finite(tree: Any) -> Array:
    """Whether all numbers are finite: a sum is, unless a term is not (or all are beyond any use)."""
    return jnp.isfinite(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree)))


def host_shape(count: int, leaf: Any) -> Any:
    """Shape and dtype of `count` trials' leaf on the host; keys as their data."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.ShapeDtypeStruct((count, 2), np.uint32)
    return jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype)


def bits(leaf: Any) -> Any:
    """A leaf as plain numbers: keys as their data."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
