"""`moac.train`, `resume` and `load`: a run driven to its end, watched while it trains, in memory or in a folder."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moac import arguments, files, locks, parts, training
from moac.arguments import checked
from moac.choices import several, shown
from moac.config import CHOICES, Config, is_choice
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

Callback = Callable[[training.Snapshot], Any]
"""Is shown a run after each chunk of about half a second; what it raises stops the run."""


@checked
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
    policy: str | Policy | None = None,
    critic: str | Critic | None = None,
    rule: Rule | None = None,
    **config_fields: Any,
) -> Result:
    """Train `trials` independent policies.

    >>> result = moac.train("fishwood-v0", trials=2, num_iterations=5, num_evaluations=1)
    >>> result.returns.shape
    (2, 2)

    Args:
        problem: an id of MO-Gymnasium, whose exact model is used where the library holds it; a function that makes an
            environment; an environment that has a `spec`; a `FiniteMOMDP`; the result of `moac.envs.make`; a
            `LoggedDataset` or its folder.
        config: the configuration; fields that are None are filled from `moac.defaults(problem)`.
        trials: K, the number of independent runs.
        seed: random seed; trial i depends on (seed, i) alone.
        steps: environment steps of each trial, instead of `num_iterations`.
        out: a new run directory, with checkpoints during training; None keeps everything in memory.
        progress: show progress on stderr.
        sinks: `tensorboard`, `wandb`: where metrics are logged besides `metrics.jsonl`; they need `out`.
        start: initial parameters: a policy (for all trials), a run (its folder or result; trial by trial, with critic
            and optimiser), or a snapshot. None is random.
        callback: called with a snapshot (`.iteration`, `.history`) about twice a second.
        checkpoint_every: seconds between checkpoints.
        keep_every: keep the policies of every n-th iteration in `out`, for `moac.load(out, iteration=…)`.
        policy: an object to use instead of the configuration's, or a name of that; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
        config_fields: fields of `Config`, which replace those of `config`.
    """
    given: dict[str, Any] = {"policy": policy, "critic": critic, "rule": rule}
    config_fields |= {  # by its name; another text is where a start is kept
        name: value
        for name, value in (*given.items(), ("start", start))
        if isinstance(value, str) and name in CHOICES and (name in given or is_choice(name, value))
    }
    objects = {name: part for name, part in given.items() if name not in config_fields}
    parts.check(objects)
    source = source_of(problem)
    full = result.configured(source.spec, config, steps, config_fields)
    run = result.prepare(source, full, trials, seed, objects)
    first = None if "start" in config_fields else _first(start, run)
    watching = _Watching(progress, callback, sinks, checkpoint_every)
    if out is None:
        if sinks or keep_every is not None:
            raise ValueError("`sinks` and `keep_every` need `out`, the folder that they write into.")
        return _trained(run, first, watching)
    with locks.folder(Path(out)):
        directory = RunDirectory.create(Path(out), run, keep_every)
        with directory.begun():
            return _trained(run, first, watching, directory)


@checked
def resume(
    run: str | Path | Result,
    problem: Any = None,
    *,
    iterations: int | None = None,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
    **watching: Any,
) -> Result:
    """Continue a stopped run, or train a finished one for more iterations; otherwise a finished run is read.

    On models and logs the result is the same, bit for bit, as without the stop; on environments new episodes begin.

    >>> short = moac.train("fishwood-v0", num_iterations=5, num_evaluations=1)
    >>> moac.resume(short, iterations=8).iteration
    8

    Args:
        run: its folder or its result.
        problem: the problem that it was trained on; None if config.json names it (an id of MO-Gymnasium, or a log).
        iterations: T, the new total, at least the run's own; None keeps it.
        policy: the object that was trained, where `train` was given one; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
        watching: `progress`, `sinks`, `callback` and `checkpoint_every`, as in `train`.
    """
    from moac.progress import say
    from moac.report import pages

    watched = _Watching(**watching)
    given: dict[str, Any] = {"policy": policy, "critic": critic, "rule": rule}
    if isinstance(run, Result):
        _refuse_beside_result({"problem": problem, **given, "sinks": watched.sinks or None})
        longer = run.run if iterations is None else runner.longer_run(run.run, iterations)
        return _trained(longer, run.snapshot, watched)
    source = problems.problem_of_run(Path(run)) if problem is None else source_of(problem)
    parts.check(given)
    directory, prepared = run_directory.reopen(Path(run), source, given)
    if directory.finished and iterations in (None, prepared.settings.num_iterations):
        if (directory.path / "figures" / "training.svg").exists() and not (directory.path / "report.html").exists():
            with directory.held():  # it was killed just before
                pages.write(directory.path)
        return with_outputs(directory.outcome(prepared))
    with directory.held():
        if iterations is not None:
            directory, prepared = runner.lengthen(directory, prepared, iterations)
        snapshot = directory.checkpoints().newest(prepared)
        if watched.progress:
            done, total = 0 if snapshot is None else snapshot.iteration, prepared.settings.num_iterations
            episodes = "" if source.compiled or snapshot is None else ", in new episodes of its environments"
            say(f"{directory.path} continues after iteration {done} of {total}{episodes}.")
        return _trained(prepared, snapshot, watched, directory)


def _refuse_beside_result(given: Mapping[str, Any]) -> None:
    """Refuse what a result has already, or has no folder for: it would be ignored."""
    for name, value in given.items():
        if value is not None:
            right = (
                "needs a folder as `run`" if name == "sinks" else "must be left out beside a result, which has its own"
            )
            raise ValueError(f"`{name}` {right}, got {shown(value)}.")


@checked
def load(
    directory: str | Path, trial: int = 0, policy: Policy | None = None, iteration: int | None = None
) -> TrainedPolicy:
    """The trained policy of a run directory; `.act(observation, key)` acts on the real environment's observations.

    Of an exploration `.archive` has all its policies with their values; its trials are the points of the archive.

    >>> run = moac.train("fishwood-v0", trials=2, num_iterations=5, num_evaluations=1).save("runs/fishwood")
    >>> policy = moac.load(run, trial=1)
    >>> policy.act(0, jax.random.key(0)) in (0, 1)  # from the state that the environment shows
    True

    Args:
        directory: a run directory that has finished.
        trial: the trial whose policy acts.
        policy: the policy object, if `train` was given one.
        iteration: an iteration whose policies were kept (`keep_every`); None is the last.
    """
    from moac.search import archive

    trained = run_directory.load(directory, trial, policy, iteration)
    return replace(trained, archive=archive.read(Path(directory), trained))


@checked
@dataclass(frozen=True)
class _Watching:
    """How a run is followed while it trains: the arguments of `train` of these names."""

    progress: bool = False
    callback: Callback | None = None
    sinks: Sequence[str] = ()
    checkpoint_every: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        if not self.checkpoint_every >= 0:
            raise ValueError(f"`checkpoint_every` must be at least 0 seconds, got {self.checkpoint_every}.")
        run_sinks.check(several(self.sinks))

    @contextmanager
    def shown(self, run: training.Run, done: int) -> Generator[Callback]:
        """Gives what snapshots of the run, which begins after `done` iterations, are shown to."""
        from moac import progress

        with progress.of_run(run, done) if self.progress else nullcontext() as show:
            watchers = [watch for watch in (show, self.callback) if watch is not None]
            yield lambda snapshot: [watch(snapshot) for watch in watchers]


def _trained(
    run: training.Run,
    snapshot: training.Snapshot | None,
    watching: _Watching,
    directory: RunDirectory | None = None,
) -> Result:
    """Iterate a run to its end, in memory or in its directory, which the caller holds."""
    with watching.shown(run, 0 if snapshot is None else snapshot.iteration) as show:
        last = runner.train(directory, run, snapshot, watching.checkpoint_every, show, several(watching.sinks))
    outcome = with_outputs(Result.of(run, last))
    if directory is not None:
        from moac.report import pages

        _draw_into(directory.path, outcome)
        directory.finish(outcome)
        pages.write(directory.path)
    return outcome


def _first(start: Any, run: training.Run) -> training.Snapshot | None:
    """The snapshot at which a run begins where `start` says so."""
    if isinstance(start, str | Path):
        directory, ended = run_directory.reopen(Path(start), run.source)
        start = directory.checkpoints().newest(ended)
    return None if start is None else result.beginning(start, run)


def source_of(problem: Any, argument: str = "problem") -> Source:
    """The problem that an argument of `train`, or that one, stands for."""
    if isinstance(problem, str | Path):
        arguments.check(argument, problem, arguments.PATH)
        if Path(problem).is_dir():
            from moac.logs.dataset import LoggedDataset

            return source_of(LoggedDataset.from_parquet(Path(problem)))
        return problems.problem_of(str(problem), argument=argument)
    if isinstance(getattr(problem, "spec", None), Spec):
        if isinstance(problem.spec.observations, LogSpec):
            from moac.offline.evaluate import with_estimator

            return with_estimator(problem)
        return problem
    from moac import envs

    if not callable(problem) and not hasattr(problem, "reset"):
        right = "an id, an environment or a function that makes one, a FiniteMOMDP, or a LoggedDataset or its folder"
        raise ValueError(f"`{argument}` must be {right}, got {shown(problem)}.")
    return envs.make(problem)


def with_outputs(outcome: Result) -> Result:
    """The same result, able to `save`, `plot` and `evaluate` itself."""
    from moac.evaluating import evaluate

    return replace(outcome, writer=_write, drawer=draw, evaluator=evaluate)


def draw(outcome: Result) -> Figure:
    """Returns, ‖g‖², gap, weights and alignment over iterations, with bands over trials."""
    from moac.report import figures

    spec = outcome.run.source.spec
    return figures.training(outcome.history, spec.objective_names, spec.name)


def _draw_into(path: Path, outcome: Result) -> None:
    """Write the figure of a run directory."""
    from moac.report import figures

    figures.write(files.subfolder(path, "figures"), "training", draw(outcome))


def _write(outcome: Result, path: Path, overwrite: bool) -> Path:
    from moac.report import pages

    run_directory.save(outcome, path, overwrite)
    _draw_into(path, outcome)
    pages.write(path)
    return path
