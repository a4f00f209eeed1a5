"""Training in one call, and what it returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int

from moac import parts, settings, training
from moac.config import Config, check_trials
from moac.training.history import History
from moac.training.recommendation import Catalogue
from moac.training.trained import TrainedPolicy as TrainedPolicy
from moac.types import Critic, Policy, Source
from moac.weighting import Rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Own = Mapping[str, Any]
"""Parts by name that replace those of the configuration; None leaves it its own."""


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
        snapshot: the last one, which another run may start from; None where the result was read from files.
    """

    run: training.Run
    iteration: int
    history: History
    policy: TrainedPolicy
    random_iterate_policy: TrainedPolicy
    random_iteration: Int[np.ndarray, " K"]
    stopped: Int[np.ndarray, " K"]
    own: tuple[str, ...] = ()
    snapshot: training.Snapshot | None = None

    @classmethod
    def of(cls, run: training.Run, snapshot: training.Snapshot, own: Own | None = None) -> Result:
        """The result of a run that ended, or stands, at `snapshot`."""
        state, memory = snapshot.trials.state, snapshot.trials.chain if not run.source.compiled else None
        known = catalogue(run.source)

        def trained(theta: Any) -> TrainedPolicy:
            own = TrainedPolicy.of(run.parts.policy, theta, run.source.spec, memory, run.config.setting)
            return replace(own, catalogue=known)

        return cls(
            run,
            snapshot.iteration,
            snapshot.history,
            trained(state.theta),
            trained(state.theta_random),
            np.asarray(state.random_iteration),
            np.asarray(snapshot.trials.stopped),
            given(own),
            snapshot,
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
        from moac.runs import directory as run_directory

        return run_directory.save(self, Path(directory))


def train(  # noqa: PLR0913 - four optional parts beside the four that make a run
    problem: Source,
    config: Config | None = None,
    trials: int = 1,
    seed: int = 0,
    *,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
    start: training.Snapshot | None = None,
) -> Result:
    """Train `trials` independent policies.

    Args:
        problem: a `FiniteMOMDP`, or an environment of `moac.envs.make`.
        config: what is None in it is filled from `moac.defaults(problem)`.
        trials: K.
        seed: trial i depends on (seed, i) alone.
        policy: in place of the one that the configuration names; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
        start: another run's last snapshot (`result.snapshot`) with the same trials and shapes: every trial begins at
            its parameters in place of random ones.
    """
    own: Own = {"policy": policy, "critic": critic, "rule": rule}
    run = prepare(problem, config, trials, seed, own)
    (final,) = deque(training.iterate(run, None if start is None else start.as_start()), maxlen=1)
    return Result.of(run, final, own)


def catalogue(source: Any) -> Catalogue | None:
    """What a log's policies need to recommend by ids; None where the source is no log."""
    if not source.spec.logged:
        return None
    from moac.logs import catalogue

    return catalogue.Catalogue.of(source)


def given(own: Own | None) -> tuple[str, ...]:
    """The names of the parts that are there."""
    return tuple(name for name, part in (own or {}).items() if part is not None)


def prepare(problem: Source, config: Config | None, trials: int, seed: int, own: Own | None = None) -> training.Run:
    """A run with its configuration resolved and its parts built; `own` parts replace those it names."""
    check_trials(trials, seed)
    full = settings.complete(Config() if config is None else config, problem.spec)
    built = parts.build(settings.Settings.of(full), problem.spec, seed)
    built = built._replace(**{name: (own or {})[name] for name in given(own)})
    if full.preferences is not None and not built.rule.needs.preference:
        raise ValueError("`preferences` must be None with a rule that takes none (`Needs.preference`).")
    return training.Run(problem, full, built, int(trials), int(seed))
