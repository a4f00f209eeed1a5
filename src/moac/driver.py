"""A run driven to its end: from any kind of problem, watched while it trains, in memory or in its directory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np

from moac import files, training
from moac.config import Config
from moac.policies.observations import LogSpec
from moac.runs import directory as run_directory
from moac.runs import problems, runner
from moac.runs import sinks as run_sinks
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.result import Result
from moac.training.trained import TrainedPolicy
from moac.types import Source, Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from moac.offline.evaluation import OfflineEvaluation

Callback = Callable[[training.Snapshot], Any]
"""Is shown a run after each chunk of about half a second; what it raises stops the run."""


@final
@dataclass(frozen=True)
class Watching:
    """How a run is followed while it trains: the arguments of `train` of these names."""

    progress: bool
    callback: Callback | None
    sinks: Sequence[str]
    checkpoint_every: float

    def __post_init__(self) -> None:
        if not self.checkpoint_every >= 0:
            raise ValueError(f"`checkpoint_every` must be at least 0 seconds, got {self.checkpoint_every}.")
        run_sinks.check(self.sinks)

    @contextmanager
    def shown(self, run: training.Run, done: int) -> Generator[Callback]:
        """Gives what snapshots of the run, which begins after `done` iterations, are shown to."""
        from moac.progress import TrainingProgress

        with TrainingProgress(run, done) if self.progress else nullcontext() as display:
            watchers = [display.show] if display is not None else []
            watchers += [self.callback] if self.callback is not None else []
            yield lambda snapshot: [watch(snapshot) for watch in watchers]


def trained(
    run: training.Run,
    snapshot: training.Snapshot | None,
    watching: Watching,
    directory: RunDirectory | None = None,
) -> Result:
    """Iterate a run to its end, in memory or in its directory, which the caller holds."""
    from moac.report import pages

    last = snapshot
    with watching.shown(run, 0 if snapshot is None else snapshot.iteration) as show:
        if directory is None:
            for last in training.iterate(run, snapshot):
                show(last)
        else:
            last = runner.train(directory, run, snapshot, watching.checkpoint_every, show, watching.sinks)
    if last is None:
        raise ValueError("`run` must have its last state to go on from, got one that was read from files.")
    outcome = with_outputs(Result.of(run, last))
    if directory is not None:
        directory.finish(outcome, training_figures(outcome))
        pages.write(directory.path)
    return outcome


def first_of(start: Any, run: training.Run) -> training.Snapshot | None:
    """The snapshot at which a run begins where `start` says so."""
    if isinstance(start, str | Path):
        directory, ended = run_directory.reopen(Path(start), run.source)
        start = directory.checkpoints().newest(ended)
    return None if start is None else result.beginning(start, run)


def source_of(problem: Any) -> Source:
    """The problem that an argument of `train` stands for."""
    if isinstance(problem, str | Path):
        if Path(problem).is_dir():
            from moac.logs.dataset import LoggedDataset

            return source_of(LoggedDataset.from_parquet(Path(problem)))
        return problems.problem_of(str(problem))
    if isinstance(getattr(problem, "spec", None), Spec):
        if isinstance(problem.spec.observations, LogSpec):
            from moac.offline.evaluate import with_estimator

            return with_estimator(problem)
        return problem
    from moac import envs

    return envs.make(problem)


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


def _write(outcome: Result, path: Path, overwrite: bool) -> Path:
    from moac.report import pages

    run_directory.save(outcome, path, training_figures(outcome), overwrite, problems.id_of(outcome.run.source))
    pages.write(path)
    return path


@final
@dataclass(frozen=True, eq=False)
class Subject:
    """What is to be evaluated.

    Attributes:
        trained: the policies.
        source: the environment, or the log, on which they are evaluated.
        method: how they are called.
        folder: of their run, if it has one.
    """

    trained: TrainedPolicy
    source: Source
    method: str
    folder: Path | None = None

    @classmethod
    def of(cls, run: str | Path | Result | TrainedPolicy, problem: Any, data: Any, trust: bool) -> Subject:
        """The policies of a run, with its environment or its log; a policy alone needs one of both."""
        if isinstance(run, TrainedPolicy):
            if problem is None and data is None:
                raise ValueError("`problem` must be given with a policy: its environment, or `data`, its log.")
            return cls(run, _real(source_of(problem if data is None else data)), "policy")
        if isinstance(run, Result):
            return cls(run.policy, _real(run.run.source if data is None else source_of(data)), _method(run.config))
        path, directory = Path(run), RunDirectory(Path(run))
        trained = run_directory.load(path)
        if "log" not in directory.description["problem"]:
            if data is not None:
                raise ValueError(f"`data` is for runs on logs; {run} is on an environment.")
            return cls(trained, problems.environment_of_run(path, trust), _method(directory.config), path)
        from moac.runs import log_files

        dataset = log_files.dataset_of(path, data) if data is None or isinstance(data, str | Path) else data
        return cls(trained, source_of(dataset), _method(directory.config), path)


def on_log(subject: Subject, trials: tuple[int, ...], split: str, cap: float) -> OfflineEvaluation:
    """What policies are worth on a log's users beside Behavior-Clone; the trials are seeds of one method."""
    from moac.offline import ncis
    from moac.offline.evaluate import evaluate
    from moac.report import html
    from moac.report.pages import evaluation as page

    dataset: Any = subject.source
    theta = jax.tree.map(lambda leaf: leaf[np.array(trials)], subject.trained.theta)
    methods = {subject.method: (subject.trained.policy, theta)}
    about = {"trials": list(trials)}
    if subject.folder is not None:
        files.check_folder("RUN", subject.folder)
    evaluated = evaluate(dataset, methods, split, ncis.Options(cap=cap), run=subject.folder, about=about)
    return replace(evaluated, page=lambda each: html.render(page.of_evaluation(each)))


def _method(config: Config) -> str:
    return "MOAC" if config.weighting == "min-norm" else f"{config.weighting} weights"


def _real(source: Source) -> Source:
    """The real environment of a problem, where a model of the library stands for it; a log as it is."""
    name = problems.id_of(source)
    if not source.compiled or name is None:
        return source
    from moac import envs

    return envs.make(name)
