"""The public functions: they join what the layers below keep apart, and hand writers and drawers down to results."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from moac import training
from moac.config import Config
from moac.runs import directory as run_directory
from moac.runs import runner
from moac.search import archive
from moac.training import result
from moac.training.result import Result
from moac.training.trained import TrainedPolicy
from moac.types import Critic, Policy, Source
from moac.weighting import Rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    own: result.Own = {"policy": policy, "critic": critic, "rule": rule}
    run = result.prepare(problem, config, trials, seed, own)
    (final,) = deque(training.iterate(run, None if start is None else start.as_start()), maxlen=1)
    return with_outputs(Result.of(run, final, own))


def resume(
    directory: str | Path,
    problem: Source,
    *,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
) -> Result:
    """Continue a run to its end and write it; it ends as if it had never stopped. One that has ended is read.

    Args:
        directory: of the run.
        problem: what it was trained on.
        policy: the object that was trained, where `train` was given one; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
    """
    own: result.Own = {"policy": policy, "critic": critic, "rule": rule}
    opened, run = run_directory.reopen(Path(directory), problem, own)
    if opened.finished:
        return with_outputs(opened.outcome(run, result.given(own)))
    with opened.held():
        outcome = Result.of(run, runner.train(opened, run, opened.checkpoints().newest(run)), own)
        opened.finish(outcome, training_figures(outcome))
    return with_outputs(outcome)


def load(directory: str | Path, trial: int = 0, policy: Policy | None = None) -> TrainedPolicy:
    """The trained policy of a run directory; `.act(observation, key)` acts on the real environment's observations.

    Of an exploration `.archive` has all its policies with their values; its trials are the points of the archive.

    Args:
        directory: of a run that has finished.
        trial: which of its trials.
        policy: the object that was trained, where `train` was given one.
    """
    trained = run_directory.load(directory, trial, policy)
    return replace(trained, archive=archive.read(Path(directory), trained))


def with_outputs(outcome: Result) -> Result:
    """The same result, able to `save` and `plot` itself."""
    return replace(outcome, writer=_write, drawer=draw)


def draw(outcome: Result) -> Figure:
    """Returns, ‖g‖², gap, weights and alignment over iterations, with bands over trials."""
    from moac.report import figures

    spec = outcome.run.source.spec
    return figures.training(outcome.history, spec.objective_names, spec.name)


def training_figures(outcome: Result) -> dict[str, bytes]:
    """The files in a run directory's `figures`, by name."""
    from moac.report import style

    figure = draw(outcome)
    return {f"training.{kind}": style.rendered(figure, kind) for kind in ("png", "svg")}


def _write(outcome: Result, path: Path) -> Path:
    return run_directory.save(outcome, path, training_figures(outcome))
