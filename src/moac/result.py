"""Training in one call, and what it returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from moac import components, training
from moac.config import Config, check_trials
from moac.history import History
from moac.types import Critic, Key, Params, Policy, Source
from moac.weighting import Rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Own = Mapping[str, Any]
"""Parts by name that replace those of the configuration; None leaves it its own."""


@final
@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """The policies of K trials.

    Attributes:
        policy: their kind.
        theta: parameters, leading axis K.
        observations: [S, …] what the environment shows in each state; None where it shows the index.
        trial: which of them `act` uses.
    """

    policy: Policy
    theta: Params
    observations: np.ndarray[Any, Any] | None = None
    trial: int = 0

    def act(self, observation: Any, key: Key) -> int:
        """An action for what the real environment shows, drawn from the policy."""
        return int(self._sample(self._own_theta, self._state(observation), key))

    def log_prob(self, observation: Any, action: int) -> float:
        """log π(a|s)."""
        return float(self.policy.log_prob(self._own_theta, self._state(observation), action))

    def of_trial(self, trial: int) -> TrainedPolicy:
        """The same policies, acting as another trial's."""
        count = len(jax.tree.leaves(self.theta)[0])
        if not 0 <= trial < count:
            raise ValueError(f"`trial` must be in [0, {count}), got {trial}.")
        return replace(self, trial=trial)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """θ as an array, where it is one: for a table, logits [K, S, A] ready for `momdp.evaluate`."""
        return np.array(self.theta, dtype=dtype, copy=copy)

    @cached_property
    def _own_theta(self) -> Params:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[self.trial]), self.theta)

    @cached_property
    def _sample(self) -> Any:
        return jax.jit(self.policy.sample)

    @cached_property
    def _index(self) -> dict[bytes, int]:
        if self.observations is None:
            return {}
        return {np.asarray(row).tobytes(): s for s, row in enumerate(self.observations)}

    def _state(self, observation: Any) -> int:
        seen = np.asarray(observation)
        if self.observations is None:
            if seen.size != 1 or not np.issubdtype(seen.dtype, np.integer) or seen.item() < 0:
                raise ValueError(f"`observation` must be the index of a state, got {seen.tolist()}.")
            return int(seen.item())
        cast = seen.astype(self.observations.dtype, copy=False)
        state = self._index.get(cast.tobytes())
        if state is None or not np.array_equal(cast, seen):
            raise ValueError(f"`observation` must be one that the model knows, got {seen.tolist()}.")
        return state


@final
@dataclass(frozen=True, eq=False)
class Result:
    """What training ends with; every array has leading axis K, the trials.

    Attributes:
        run: what was run.
        iteration: updates done.
        history: what was logged.
        policy: the policies after them.
        random_iterate_policy: θ_T̂, drawn uniformly from the iterates: the policy that the theorems speak of.
        random_iteration: T̂ [K].
        stopped: [K] 0, or the iteration at which the trial stopped because its update was not finite.
        own: which parts (`policy`, `critic`, `rule`) the caller gave as objects.
    """

    run: training.Run
    iteration: int
    history: History
    policy: TrainedPolicy
    random_iterate_policy: TrainedPolicy
    random_iteration: Int[np.ndarray, " K"]
    stopped: Int[np.ndarray, " K"]
    own: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: training.Run, snapshot: training.Snapshot, own: Own | None = None) -> Result:
        """The result of a run that ended, or stands, at `snapshot`."""
        state, shown = snapshot.trials.state, run.source.spec.observations
        return cls(
            run,
            snapshot.iteration,
            snapshot.history,
            TrainedPolicy(run.parts.policy, state.theta, shown),
            TrainedPolicy(run.parts.policy, state.theta_random, shown),
            np.asarray(state.random_iteration),
            np.asarray(snapshot.trials.stopped),
            given(own),
        )

    @property
    def config(self) -> Config:
        """The resolved configuration."""
        return self.run.config

    @property
    def env_steps(self) -> int:
        """Environment steps of all trials together."""
        return self.iteration * self.run.env_steps_per_iteration

    @property
    def returns(self) -> Float[np.ndarray, "K M"]:
        """J of the final policies."""
        return self.history.returns[:, -1]

    def plot(self) -> Figure:
        """Returns, ‖g‖², gap, weights and alignment over iterations, with bands over trials."""
        from moac.report import figures

        return figures.training(self.history, self.run.source.spec.objective_names, self.run.source.spec.name)

    def save(self, directory: str | Path) -> Path:
        """Write a run directory; `moac.load` reads it."""
        from moac.experiments import run_directory

        return run_directory.save(self, Path(directory))


def train(  # noqa: PLR0913 - three optional parts beside the four that make a run
    problem: Source,
    config: Config | None = None,
    trials: int = 1,
    seed: int = 0,
    *,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
) -> Result:
    """Train `trials` independent policies.

    Args:
        problem: a `FiniteMOMDP`.
        config: what is None in it is filled from `moac.defaults(problem)`.
        trials: K.
        seed: trial i depends on (seed, i) alone.
        policy: in place of the one that the configuration names; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
    """
    own: Own = {"policy": policy, "critic": critic, "rule": rule}
    run = prepare(problem, config, trials, seed, own)
    (final,) = deque(training.iterate(run), maxlen=1)
    return Result.of(run, final, own)


def given(own: Own | None) -> tuple[str, ...]:
    """The names of the parts that are there."""
    return tuple(name for name, part in (own or {}).items() if part is not None)


def prepare(problem: Source, config: Config | None, trials: int, seed: int, own: Own | None = None) -> training.Run:
    """A run with its configuration resolved and its parts built; `own` parts replace those it names."""
    check_trials(trials, seed)
    full = components.resolved(Config() if config is None else config, problem)
    parts = components.parts(full, problem.spec, seed)
    parts = parts._replace(**{name: (own or {})[name] for name in given(own)})
    return training.Run(problem, full, parts, int(trials), int(seed))
