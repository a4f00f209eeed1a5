"""The result of training, and the preparation of a run from a problem and a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jaxtyping import Float, Int

from moac import memory, parts, settings, training
from moac.arguments import checked
from moac.choices import counted, did_you_mean, shown
from moac.config import Config, check_trials
from moac.training import needs
from moac.training.run import History
from moac.training.trained import TrainedPolicy as TrainedPolicy
from moac.types import Source, Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GivenParts = Mapping[str, Any]
"""Objects by the name of the part (`policy`, `critic`, `rule`) that they replace; None leaves the configuration's."""


@dataclass(frozen=True, eq=False)
class Result:
    """The result of training; every array has leading axis K, the trials.

    Attributes:
        run: the run, with its configuration.
        iteration: the number of updates done.
        history: what was logged.
        policy: the policies after the last update.
        random_iterate_policy: θ_T̂, drawn uniformly from the iterates: the policy that the theorems speak of.
        random_iteration: T̂ [K].
        stopped: [K] 0, or the iteration at which the trial stopped because its update was not finite.
        snapshot: the last state, from which another run may start; None where the result was read from files.
        writer: writes a run directory for `save`; None where the result was not made by `moac.api`.
        drawer: draws the figure of `plot`; likewise.
        evaluator: `moac.evaluate`; likewise.
    """

    run: training.Run
    iteration: int
    history: History
    policy: TrainedPolicy
    random_iterate_policy: TrainedPolicy
    random_iteration: Int[np.ndarray, " K"]
    stopped: Int[np.ndarray, " K"]
    snapshot: training.Snapshot | None = None
    writer: Callable[[Result, Path, bool], Path] | None = None
    drawer: Callable[[Result], Figure] | None = None
    evaluator: Callable[..., Any] | None = None

    @classmethod
    def of(cls, run: training.Run, snapshot: training.Snapshot) -> Result:
        """The result of a run at its last snapshot."""
        state, memory = snapshot.trials.state, None if run.source.compiled else snapshot.trials.chain
        rest = (run.source.spec, memory, run.config.setting)
        return cls(
            run,
            snapshot.iteration,
            snapshot.history,
            TrainedPolicy.of(run.parts.policy, state.theta, *rest),
            TrainedPolicy.of(run.parts.policy, state.theta_random, *rest),
            np.asarray(state.random_iteration),
            np.asarray(snapshot.trials.stopped),
            snapshot,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the last state, which may hold an environment's; `save` stores it."""
        return self.__dict__ | {"snapshot": None}

    def __repr__(self) -> str:
        spec, mean = self.run.source.spec, training.mean_over_trials(self.returns)
        returns = ", ".join(f"{name} {value:.4g}" for name, value in zip(spec.objective_names, mean, strict=True))
        size = f"{counted(self.run.num_trials, 'trial')}, {counted(self.iteration, 'iteration')}"
        stopped = int((self.stopped > 0).sum())
        told = f", {stopped} stopped at an update that was not finite" if stopped else ""
        return f"Result({spec.name}, {size}{told}, {self.history.kind} returns: {returns})"

    @property
    def config(self) -> Config:
        """The resolved configuration."""
        return self.run.config

    @property
    def env_steps(self) -> int:
        """Environment steps of the training of all trials together."""
        return self.iteration * self.run.env_steps_per_iteration

    @property
    def evaluation_steps(self) -> int | None:
        """Environment steps of all evaluations, besides `env_steps`; None for a run of a version that counted none."""
        taken = self.history.steps_taken
        return int(taken) if np.isfinite(taken) else None

    @property
    def returns(self) -> Float[np.ndarray, "K M"]:
        """J of the final policies."""
        return self.history.returns[:, -1]

    def policies(self, preferences: Float[np.ndarray, "N M"]) -> list[TrainedPolicy]:
        """The policies one by one: of a conditioned network one for each preference, else one for each trial."""
        if self.config.conditioned:
            return [self.policy.at(preference) for preference in preferences]
        return [self.policy.of_trial(trial) for trial in range(self.policy.num_trials)]

    def plot(self) -> Figure:
        """Returns, ‖g‖², gap, weights and alignment over iterations, with bands over trials."""
        if self.drawer is None:
            raise ValueError("`drawer` must be set to plot a result: moac.api.with_outputs(result) does.")
        return self.drawer(self)

    @checked
    def evaluate(self, data: Any = None, **options: Any) -> Any:
        """Evaluate the policies, on the log `data` if it is given: `moac.evaluate`."""
        if self.evaluator is None:
            raise ValueError("`evaluator` must be set to evaluate a result: moac.api.with_outputs(result) does.")
        return self.evaluator(self, data=data, **options)

    @checked
    def save(self, directory: str | Path, overwrite: bool = False) -> Path:
        """Write a run directory, which `moac.load` reads; `overwrite` replaces a run, and nothing else, there."""
        if self.writer is None:
            raise ValueError("`writer` must be set to save a result: moac.api.with_outputs(result) does.")
        return self.writer(self, Path(directory), overwrite)


def prepare(
    problem: Source, config: Config | None, trials: int, seed: int, given: GivenParts | None = None
) -> training.Run:
    """A run with its configuration resolved and its parts built; objects that are given replace the named parts."""
    check_trials(trials, seed)
    full = settings.complete(Config() if config is None else config, problem.spec)
    objects = {name: part for name, part in (given or {}).items() if part is not None}
    problem = cast(Any, problem).conditioned(full.preference_draw) if full.conditioned else problem
    sizes = needs.of_sizes(problem, full, trials)
    memory.check(sizes)
    built = parts.build(settings.Settings.of(full), problem.spec, seed)._replace(**objects)
    if full.preferences is not None and not built.rule.needs.preference:
        raise ValueError("`preferences` must be None with a rule that takes none (`Needs.preference`).")
    run = training.Run(problem, full, built, int(trials), int(seed), tuple(objects))
    parts.check_shapes(built, objects, problem.spec, run.preference(0))
    memory.check([*sizes, needs.of_state(run)])
    return run


def configured(spec: Spec, config: Any, steps: int | None, overrides: Mapping[str, Any]) -> Config:
    """The configuration with the fields that were passed by name, and with the iterations that `steps` amounts to."""
    if config is not None and not isinstance(config, Config):
        raise ValueError(f"`config` must be a Config, whose fields may also be given by name, got {shown(config)}.")
    known = [field.name for field in fields(Config)]
    for name in overrides:
        if name not in known:
            raise ValueError(f"`{name}` is no argument of train and no field of Config.{did_you_mean(name, known)}")
    full: Config = replace(config or Config(), **overrides)
    return full if steps is None else settings.for_steps(full, spec, steps)


def beginning(start: Any, run: training.Run) -> training.Snapshot:
    """A run before its first iteration, with what `start` has learned in parameters of the same shapes.

    From a policy every trial takes the parameters, with a new critic and optimiser; from a result or a snapshot each
    trial takes its own parameters, critic and optimisers.
    """
    if isinstance(start, TrainedPolicy):
        return _at(start, run)
    snapshot = start.snapshot if isinstance(start, Result) else start
    if not isinstance(snapshot, training.Snapshot):
        raise ValueError(f"`start` must be a policy, a run with its last state, or a snapshot, got {shown(start)}.")
    _check_shapes(snapshot.trials.state.theta, training.template(run).state.theta)
    return snapshot.as_start()


def _at(policy: TrainedPolicy, run: training.Run) -> training.Snapshot:
    """A run before its first iteration, with the parameters of one policy in every trial."""
    if run.source.spec.num_states is None and run.settings.observation_scale != "bounds":
        raise ValueError("`start` must be a run where observations are scaled by running moments: it keeps them.")
    first, K = training.first(run), run.num_trials
    theta = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], K, axis=0), policy.trial_theta)
    _check_shapes(theta, first.trials.state.theta)
    state = replace(first.trials.state, theta=theta, theta_random=theta)
    return training.Snapshot.of(0, replace(first.trials, state=state), first.history)


def _check_shapes(theta: Any, expected: Any) -> None:
    shapes = [jax.tree.map(np.shape, tree) for tree in (theta, expected)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"`start` must have parameters of the shapes {shapes[1]}, trials first, got {shapes[0]}.")
