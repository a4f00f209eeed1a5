"""The public functions: they join what the layers below keep apart, and hand writers and drawers down to results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax

from moac import files, training
from moac.config import CHOICES, Config, is_choice
from moac.momdp import library
from moac.policies.observations import LogSpec
from moac.runs import CHECKPOINT_SECONDS, problems, runner
from moac.runs import directory as run_directory
from moac.runs import sinks as run_sinks
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.result import Result
from moac.training.trained import TrainedPolicy
from moac.types import Critic, Policy, Source, Spec
from moac.weighting import Rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from moac.offline.evaluation import OfflineEvaluation
    from moac.offline.ncis import Options
    from moac.runs.executors import Executor
    from moac.search.archive import Archive
    from moac.search.compare import Comparison
    from moac.search.plan import Options as ExploreOptions
    from moac.search.sweep import Swept
    from moac.search.values import EpisodeValues

Callback = Callable[[training.Snapshot], Any]
"""Is shown a run after each chunk of about half a second; what it raises stops the run."""


def train(  # noqa: PLR0913 - every one of them is optional but the problem
    problem: Any,
    config: Config | None = None,
    *,
    trials: int = 1,
    seed: int = 0,
    steps: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    sinks: Sequence[str] = (),
    start: Any = None,
    callback: Callback | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    keep_every: int | None = None,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
    **config_fields: Any,
) -> Result:
    """Train `trials` independent policies.

    >>> result = moac.train("fishwood-v0", trials=2, num_iterations=5, num_evaluations=1)
    >>> result.returns.shape
    (2, 2)

    Args:
        problem: an id of MO-Gymnasium, whose exact model is used where the library holds it; a function that makes an
            environment; an environment that has a `spec`; a `FiniteMOMDP`; what `moac.envs.make` made; a
            `LoggedDataset` or its folder.
        config: what is None in it is filled from `moac.defaults(problem)`.
        trials: K.
        seed: trial i depends on (seed, i) alone.
        steps: environment steps of a trial, in place of `num_iterations`.
        out: a new folder that keeps the run, with checkpoints while it trains; None keeps everything in memory.
        progress: show on stderr how far it is.
        sinks: `tensorboard`, `wandb`: where the numbers go beside `metrics.jsonl`; they need `out`.
        start: where it begins in place of random parameters: a policy (all trials begin at it), a run (its folder or
            its result; trial by trial, with critic and optimiser), or a snapshot.
        callback: is called with a snapshot (`.iteration`, `.history`) about twice a second.
        checkpoint_every: seconds.
        keep_every: keep the policies of every so many iterations in `out`, for `moac.load(out, iteration=…)`.
        policy: an object in place of what the configuration names; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
        config_fields: of `Config`, in place of those of `config`.
    """
    given: dict[str, Any] = {"policy": policy, "critic": critic, "rule": rule}
    for name, value in (*given.items(), ("start", start)):
        if isinstance(value, str) and name in CHOICES and is_choice(name, value):  # a part or a start by its name
            config_fields[name], given[name] = value, None
    source = source_of(problem)
    full = result.configured(source.spec, config, steps, config_fields)
    run = result.prepare(source, full, trials, seed, {name: given[name] for name in ("policy", "critic", "rule")})
    first = None if "start" in config_fields else _first(start, run)
    watching = _Watching(progress, callback, sinks, checkpoint_every)
    if out is None:
        if sinks or keep_every is not None:
            raise ValueError("`sinks` and `keep_every` need `out`, the folder that they write into.")
        return _trained(run, first, watching)
    directory = RunDirectory.create(Path(out), run, problems.id_of(source), keep_every)
    with directory.held():
        return _trained(run, first, watching, directory)


def resume(  # noqa: PLR0913 - as `train`
    run: str | Path | Result,
    problem: Any = None,
    *,
    iterations: int | None = None,
    progress: bool = False,
    sinks: Sequence[str] = (),
    callback: Callback | None = None,
    checkpoint_every: float = CHECKPOINT_SECONDS,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
) -> Result:
    """Continue a run to its end, or to more iterations than it was meant to have; one that has ended is read.

    On a model or a log it ends as if it had never stopped; on an environment it goes on in new episodes.

    >>> short = moac.train("fishwood-v0", num_iterations=5, num_evaluations=1)
    >>> moac.resume(short, iterations=8).iteration
    8

    Args:
        run: its folder, or its result.
        problem: what it was trained on; None where config.json names it, by an id of MO-Gymnasium's own or as a log.
        iterations: T, at least what the run has had; None is what it was begun with.
        progress: as in `train`, likewise `sinks`, `callback`, `checkpoint_every`.
        sinks: see `progress`.
        callback: see `progress`.
        checkpoint_every: see `progress`.
        policy: the object that was trained, where `train` was given one; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
    """
    from moac.progress import say
    from moac.report import pages

    watching = _Watching(progress, callback, sinks, checkpoint_every)
    if isinstance(run, Result):
        longer = run.run if iterations is None else run_directory.longer_run(run.run, iterations)
        return _trained(longer, run.snapshot, watching)
    source = problems.problem_of_run(Path(run)) if problem is None else source_of(problem)
    given = {"policy": policy, "critic": critic, "rule": rule}
    directory, prepared = run_directory.reopen(Path(run), source, given)
    if directory.finished and iterations in (None, prepared.settings.num_iterations):
        if (directory.path / "figures" / "training.svg").exists() and not (directory.path / "report.html").exists():
            with directory.held():  # it was killed just before
                files.remove_unfinished(directory.path)
                pages.write(directory.path)
        return with_outputs(directory.outcome(prepared))
    with directory.held():
        if iterations is not None:
            directory, prepared = run_directory.lengthen(directory, prepared, iterations)
        snapshot = directory.checkpoints().newest(prepared)
        if progress:
            done, total = 0 if snapshot is None else snapshot.iteration, prepared.settings.num_iterations
            episodes = "" if source.compiled or snapshot is None else ", in new episodes of its environments"
            say(f"{directory.path} continues after iteration {done} of {total}{episodes}.")
        return _trained(prepared, snapshot, watching, directory)


def load(
    directory: str | Path, trial: int = 0, policy: Policy | None = None, iteration: int | None = None
) -> TrainedPolicy:
    """The trained policy of a run directory; `.act(observation, key)` acts on the real environment's observations.

    Of an exploration `.archive` has all its policies with their values; its trials are the points of the archive.

    Args:
        directory: of a run that has finished.
        trial: which of its trials.
        policy: the object that was trained, where `train` was given one.
        iteration: one whose policies were kept (`keep_every`); None is the end.
    """
    from moac.search import archive

    trained = run_directory.load(directory, trial, policy, iteration)
    return replace(trained, archive=archive.read(Path(directory), trained))


def evaluate(
    directory: str | Path, *, episodes: int = 200, trials: Sequence[int] | None = None, trust: bool = False
) -> EpisodeValues:
    """What a run's policies earn in whole episodes of the real environment, beside exact values where a model is known.

    Args:
        directory: of the run; one on a log is for `evaluate_on_log`.
        episodes: of each trial, each with a seed of its own.
        trials: which; None is all of them.
        trust: whether a module that the run names may be imported, which runs the code in it.
    """
    from moac.search import values

    path, trained = Path(directory), run_directory.load(directory)
    chosen = tuple(range(trained.num_trials) if trials is None else trials)
    environment: Any = problems.environment_of_run(path, trust)
    model = library.for_environment(run_directory.RunDirectory(path).description["problem"]["env"])
    return values.by_episodes(environment, trained, chosen, episodes, model)


def explore(problem: Source | str, options: ExploreOptions | None = None, out: str | Path | None = None) -> Archive:
    """Train policies for many preferences, and keep those that no other dominates.

    Args:
        problem: as in `train`.
        options: what is to be explored: `moac.search.plan.Options`.
        out: a folder that keeps everything, from which the same call goes on, and which `load` reads.
    """
    from moac.report.pages import exploration
    from moac.search import explore as search

    folder = None if out is None else Path(out)
    archive = replace(search.explore(source_of(problem), options, folder), writer=exploration.save)
    if folder is not None:
        archive.save(folder)
    return archive


def sweep(
    spec: str | Path | Mapping[str, Any], out: str | Path | None = None, executor: Executor | None = None
) -> Swept:
    """Train what a sweep describes and has not finished in `out`.

    Args:
        spec: a TOML file, or the same as a dictionary: docs/sweeps.md.
        out: the sweep's folder, for run directories, tables and report; None keeps nothing on disk.
        executor: where tasks run, from `moac.runs.executors.opened`; None runs one after the other.
    """
    from moac.report.pages import sweep as page
    from moac.search import sweep as search
    from moac.search import sweep_spec

    folder = None if out is None else Path(out).absolute()
    swept = search.sweep(sweep_spec.load(spec), problems.problem_of_task, folder, executor)
    swept = replace(swept, writer=page.save)
    if folder is not None:
        swept.save(folder)
    return swept


def compare(
    *runs: str | Path | Result, names: Sequence[str] | None = None, out: str | Path | None = None
) -> Comparison:
    """Finished runs side by side: curves over environment steps, and differences to the first run with intervals.

    Args:
        runs: two or more, each a result or a run directory, with the same objectives.
        names: by which they are shown; None takes those of the folders.
        out: a folder for figure and report; None keeps nothing on disk.
    """
    from moac.report.pages import comparison as page
    from moac.search import compare as search

    comparison = replace(search.compare(runs, names), writer=page.save)
    if out is not None:
        comparison.save(out)
    return comparison


def evaluate_on_log(
    directory: str | Path,
    data: str | Path | None = None,
    split: str = "validation",
    trial: int | None = None,
    options: Options | None = None,
) -> OfflineEvaluation:
    """Evaluate a run's policies beside Behavior-Clone; card and page go into the run's folder.

    An evaluation on test users is recorded before any number is computed.

    Args:
        directory: of the run.
        data: folder of its data; None is where it was.
        split: validation or test.
        trial: which trial alone; None is all of them, as seeds of one method.
        options: of the estimate.
    """
    from moac.offline.evaluate import evaluate as evaluate_policies
    from moac.report import html
    from moac.report.pages import evaluation as page
    from moac.runs import log_files

    path = Path(directory)
    run, trained = run_directory.read(path), run_directory.load(path, trial or 0)
    theta = trained.theta if trial is None else jax.tree.map(lambda leaf: leaf[trial][None], trained.theta)
    rule = run.config.weighting
    methods = {"MOAC" if rule == "min-norm" else f"{rule} weights": (trained.policy, theta)}
    dataset = log_files.dataset_of(path, None if data is None else Path(data))
    files.check_folder("RUN", path)
    evaluated = evaluate_policies(dataset, methods, split, options, run=path, about={"trial": trial})
    evaluated = replace(evaluated, page=lambda each: html.render(page.of_evaluation(each)))
    evaluated.save(path)
    return evaluated


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
@dataclass(frozen=True)
class _Watching:
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


def _trained(
    run: training.Run,
    snapshot: training.Snapshot | None,
    watching: _Watching,
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


def _first(start: Any, run: training.Run) -> training.Snapshot | None:
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
