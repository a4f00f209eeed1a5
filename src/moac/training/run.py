"""A run, its snapshot after an iteration, and the history that it logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from moac import algorithm, ppo, settings, simplex
from moac.choices import counted
from moac.config import Config
from moac.parts import Parts
from moac.settings import Settings
from moac.types import Allowance, Evaluation, Hosted, Key, Metrics, Source, Spec, State

KEPT_FOR_THE_LAST = 0.5
"""The share of the steps for evaluations that the last one has to itself."""
_NOT_PER_TRIAL = ("iteration", "evaluation_steps")


@dataclass(frozen=True, eq=False)
class History:
    """What was logged of K trials at L iterations."""

    iteration: Int[np.ndarray, " L"]  # updates done when it was logged
    returns: Float[np.ndarray, "K L M"]  # J after them
    weights: Float[np.ndarray, "K L M"]  # λ_t of the last of them
    min_norm_weights: Float[np.ndarray, "K L M"]  # λ̂_t, the min-norm weights of the same gradients
    gradient_norm_squared: Float[np.ndarray, "K L"]  # ‖Σ λᵢgⁱ‖² of the direction taken
    # the smallest ⟨gⁱ, d⟩ over objectives; negative where the step hurts one
    smallest_alignment: Float[np.ndarray, "K L"]
    gap: Float[np.ndarray, "K L"]  # exact stationarity gap
    direction_gap: Float[np.ndarray, "K L"]  # the same for Lemma 1's direction
    regret: Float[np.ndarray, "K L"]  # exact
    # environment steps of this evaluation and of those before it, all trials together; NaN where they were not counted
    evaluation_steps: Float[np.ndarray, " L"]
    kind: str = "exact"  # how returns were evaluated: `exact`, `episodes` or `ncis`

    @classmethod
    def empty(cls) -> History:
        """Nothing logged yet."""
        cube, square = np.zeros((0, 0, 0)), np.zeros((0, 0))
        per_trial = (cube, cube, cube, square, square, square, square, square)
        return cls(np.zeros(0, dtype=np.int64), *per_trial, evaluation_steps=np.zeros(0))

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray[Any, Any]], kind: str) -> History:
        """The history of these arrays, as `arrays` names them; a missing one is a KeyError.

        Runs of earlier versions did not count the steps of their evaluations.
        """
        uncounted = {"evaluation_steps": np.full(len(arrays["iteration"]), np.nan)}
        known = uncounted | arrays
        return cls(**{f.name: known[f.name] for f in fields(cls) if f.name != "kind"}, kind=kind)

    def extended(self, iteration: int, metrics: Metrics, evaluation: Evaluation) -> History:
        """The history with one more iteration."""
        K, lam = np.asarray(metrics.gram, np.float64), np.asarray(metrics.weights, np.float64)
        alignment = (K * lam[:, None, :]).sum(axis=2)
        new: dict[str, Any] = {
            "returns": evaluation.returns,
            "weights": lam,
            "min_norm_weights": _min_norm_weights(K),
            "gradient_norm_squared": np.maximum((lam * alignment).sum(axis=1), 0.0),
            "smallest_alignment": alignment.min(axis=1),
            "gap": evaluation.gap,
            "direction_gap": evaluation.direction_gap,
            "regret": evaluation.regret,
        }
        columns = {name: self._appended(name, value) for name, value in new.items()}
        columns["evaluation_steps"] = np.append(self.evaluation_steps, self.steps_taken + evaluation.steps)
        return History(np.append(self.iteration, iteration), **columns, kind=evaluation.kind)

    @property
    def steps_taken(self) -> float:
        """Environment steps of all evaluations, all trials together; NaN where they were not counted."""
        if len(self.evaluation_steps) == 0:
            return 0.0
        return float(self.evaluation_steps[-1])

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "kind"}

    def arrays_per_trial(self) -> dict[str, np.ndarray[Any, Any]]:
        """Those with the leading axis K."""
        return {name: array for name, array in self.arrays().items() if name not in _NOT_PER_TRIAL}

    def _appended(self, name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array with one more column, in the memory order of a file that is read, so that sums round alike."""
        column = value[:, None]
        columns = column if len(self.iteration) == 0 else np.concatenate([getattr(self, name), column], axis=1)
        return np.ascontiguousarray(columns)


def _min_norm_weights(K: Float[np.ndarray, "K M M"]) -> Float[np.ndarray, "K M"]:
    """λ̂ of each Gram matrix, NaN where it is not finite."""
    finite = np.asarray(np.isfinite(K).all(axis=(1, 2)))
    safe = np.where(finite[:, None, None], K, 1.0)
    return np.where(finite[:, None], simplex.weights_in_blocks(safe), np.nan)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trial:
    """One trial, or a block of them."""

    state: State  # the algorithm's
    chain: Any  # the source's; of one that is sampled on the host what its chain has learned
    # 0 while the trial runs; else the iteration whose update was not finite. The state is the one before
    stopped: Int[Array, ""]


@dataclass(frozen=True, repr=False)
class Snapshot:
    """A run after some iteration."""

    iteration: int  # updates done
    # returns all K trials on the host, in blocks; they may be views of the device's memory, so nobody writes to them
    blocks: Callable[[], list[Trial]]
    history: History  # what was logged so far

    @classmethod
    def of(cls, iteration: int, trials: Trial, history: History) -> Snapshot:
        """A snapshot whose trials are on the host already."""
        return cls(iteration, lambda: [trials], history)

    def __repr__(self) -> str:
        return f"Snapshot({counted(self.iteration, 'iteration')}, {len(self.history.iteration)} of them logged)"

    @cached_property
    def trials(self) -> Trial:
        """All K trials on the host, leading axis K."""
        return joined(self.blocks())

    def as_start(self) -> Snapshot:
        """The first snapshot of another run: every trial begins at this one's parameters, at iteration 0.

        The learned state (θ, critic, optimisers, the rule's state) and chains of models stay; iterations, with every
        schedule that depends on them, start over, and the history is empty. The other run has the same trials and the
        same shapes of policy and critic: `training.iterate(other, snapshot.as_start())`, or `train(…, start=snapshot)`.
        """
        state = replace(self.trials.state, t=np.zeros_like(self.trials.state.t))
        return Snapshot.of(0, replace(self.trials, state=state), History.empty())


@dataclass(frozen=True, eq=False)
class Run:
    """Everything of a run but its state."""

    source: Source  # the problem
    config: Config  # complete: what config.json holds
    parts: Parts  # policy, critic and rule
    num_trials: int  # K
    seed: int  # of all randomness
    given: tuple[str, ...] = ()  # names of the parts (`policy`, `critic`, `rule`) that the caller gave as objects

    def __reduce__(self) -> Any:
        """Pickle without the parts that the configuration names: they hold functions, and are built again."""
        from moac.training.result import prepare

        objects = {name: getattr(self.parts, name) for name in self.given}
        return prepare, (self.source, self.config, self.num_trials, self.seed, objects)

    @cached_property
    def settings(self) -> Settings:
        """The resolved settings, as the algorithm takes them."""
        return Settings.of(self.config)

    def preference(self, index: int | Int[np.ndarray, " n"]) -> Float[np.ndarray, "... M"] | None:
        """p of a trial, or of several; None where the configuration gives none."""
        preferences = self.config.preferences
        return None if preferences is None else np.asarray(preferences, np.float32)[index % len(preferences)]

    @property
    def env_steps_per_iteration(self) -> int:
        """Environment steps of one iteration, of all trials together."""
        return self.num_trials * settings.sampling(self.settings, self.source.spec).steps


def learner(settings: Settings, spec: Spec, parts: Parts) -> tuple[algorithm.Init, algorithm.Update]:
    """`init` and `update` of the learner that the settings name: the paper's algorithm, or `ppo`."""
    return (ppo if settings.learner == "ppo" else algorithm).build(settings, spec, *parts)


def first_state(
    spec: Spec, parts: Parts, settings: Settings, seed: Int[Any, ""], index: Int[Any, ""], preference: Any
) -> tuple[State, Key]:
    """The state of a trial at iteration 0, and the key of its chain; both by (seed, index) alone.

    Keys are plain numbers from here on, as files hold them: JAX calls programs that return typed keys in Python.
    """
    key_chain, key_state = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
    init, _ = learner(settings, spec, parts)
    state = init(key_state, preference)
    return replace(state, key=jax.random.key_data(state.key)), jax.random.key_data(key_chain)


def evaluation_iterations(settings: Settings) -> Int[np.ndarray, " L"]:
    """The iterations after which the policy is evaluated: evenly spread from the last to the first."""
    T = settings.num_iterations
    return np.unique(np.linspace(T, 1, min(settings.num_evaluations, T)).round().astype(int))


def evaluation_allowance(run: Run, iteration: int, history: History) -> Allowance:
    """Environment steps that an evaluation after this iteration may take: a share of the training steps so far.

    Half of the share is kept for the last evaluation, which tells what the run is worth.
    """
    is_last = iteration == run.settings.num_iterations
    share = run.config.evaluation_share or 0.0
    if not is_last:
        share *= 1 - KEPT_FOR_THE_LAST
    spent = np.nan_to_num(history.steps_taken)
    return Allowance(share * iteration * run.env_steps_per_iteration - spent, required=is_last)


def mean_over_trials(values: Any) -> Any:
    """The mean over the first axis of the finite values; NaN where there are none.

    NumPy adds in the order of memory, so the numbers are copied into one order: the mean of a history that was read
    from a file is that of the history that was written, to the last bit.
    """
    table = np.array(values, dtype=np.float64, order="C")
    finite = np.isfinite(table)
    total = np.where(finite, table, 0).sum(axis=0)
    return np.divide(total, finite.sum(axis=0), out=np.full_like(total, np.nan), where=finite.any(axis=0))


def is_finite(tree: Any) -> Array:
    """Whether every number is finite, tested through the sum."""
    return jnp.isfinite(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree)))


def joined(blocks: list[Any]) -> Any:
    """Host pytrees concatenated along the leading axis, as arrays that may be written to."""

    def join(*parts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return parts[0] if len(parts) == 1 and parts[0].flags.writeable else np.concatenate(parts)

    return jax.tree.map(join, *blocks)


def template(run: Run) -> Trial:
    """Shapes and dtypes of a snapshot's trials, leading axis K."""
    source, number = run.source, jax.ShapeDtypeStruct((), jnp.uint32)
    state, key = jax.eval_shape(partial(first_state, source.spec, run.parts, run.settings), number, number, None)
    if source.compiled:
        chain = jax.eval_shape(source.start, key)
    else:
        chain = cast(Hosted, source).memory(settings.sampling(run.settings, source.spec))
    one = Trial(state, chain, cast(Any, np.zeros((), np.int32)))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((run.num_trials, *x.shape), x.dtype), one)
