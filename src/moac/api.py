"""The public functions: they join what the layers below keep apart, and hand writers and drawers down to results."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax

from moac import files, training
from moac.config import Config
from moac.policies.observations import LogSpec
from moac.runs import directory as run_directory
from moac.runs import problems, runner
from moac.training import result
from moac.training.result import Result
from moac.training.trained import TrainedPolicy
from moac.types import Critic, Policy, Source
from moac.weighting import Rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from moac.offline.access_log import AccessLog
    from moac.offline.evaluation import OfflineEvaluation
    from moac.offline.ncis import Options
    from moac.runs.executors import Executor
    from moac.search.archive import Archive
    from moac.search.compare import Comparison
    from moac.search.plan import Options as ExploreOptions
    from moac.search.sweep import Swept
    from moac.search.values import EpisodeValues


def train(  # noqa: PLR0913 - four optional parts beside the four that make a run
    problem: Source | str,
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
        problem: a `FiniteMOMDP`, an environment of `moac.envs.make`, a `LoggedDataset`, or an id of MO-Gymnasium.
        config: what is None in it is filled from `moac.defaults(problem)`.
        trials: K.
        seed: trial i depends on (seed, i) alone.
        policy: in place of the one that the configuration names; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
        start: another run's last snapshot (`result.snapshot`) with the same trials and shapes: every trial begins at
            its parameters in place of random ones.
    """
    given: result.GivenParts = {"policy": policy, "critic": critic, "rule": rule}
    source = _source(problem)
    run = result.prepare(source, config, trials, seed, given)
    (final,) = deque(training.iterate(run, None if start is None else start.as_start()), maxlen=1)
    return with_outputs(Result.of(run, final))


def resume(
    directory: str | Path,
    problem: Source | None = None,
    *,
    policy: Policy | None = None,
    critic: Critic | None = None,
    rule: Rule | None = None,
) -> Result:
    """Continue a run to its end and write it. One that has ended is read.

    On a model or a log it ends as if it had never stopped; on an environment it goes on in new episodes.

    Args:
        directory: of the run.
        problem: what it was trained on; None where config.json names it, by an id of MO-Gymnasium's own or as a log.
        policy: the object that was trained, where `train` was given one; likewise `critic` and `rule`.
        critic: see `policy`.
        rule: see `policy`.
    """
    given: result.GivenParts = {"policy": policy, "critic": critic, "rule": rule}
    source = problems.problem_of_run(Path(directory)) if problem is None else problem
    opened, run = run_directory.reopen(Path(directory), source, given)
    if opened.finished:
        return with_outputs(opened.outcome(run))
    with opened.held():
        outcome = Result.of(run, runner.train(opened, run, opened.checkpoints().newest(run)))
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
    from moac.search import archive

    trained = run_directory.load(directory, trial, policy)
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
    from moac.momdp import library
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
    archive = replace(search.explore(_source(problem), options, folder), writer=exploration.save)
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


@final
@dataclass(frozen=True, eq=False)
class RunEvaluation:
    """A run on a log, evaluated.

    Attributes:
        evaluation: values, changes, verdict.
        accesses: to test users; None on other users.
        card: all of it as plain data, as written.
        card_path, page_path: where card and page are.
    """

    evaluation: OfflineEvaluation
    accesses: AccessLog | None
    card: dict[str, Any]
    card_path: Path
    page_path: Path


def evaluate_on_log(
    directory: str | Path,
    data: str | Path | None = None,
    split: str = "validation",
    trial: int | None = None,
    options: Options | None = None,
) -> RunEvaluation:
    """Evaluate a run's policies beside Behavior-Clone; card and page go into the run's folder.

    An evaluation on test users is recorded before any number is computed.

    Args:
        directory: of the run.
        data: folder of its data; None is where it was.
        split: validation or test.
        trial: which trial alone; None is all of them, as seeds of one method.
        options: of the estimate.
    """
    from moac.offline import access_log, evaluate, evaluation, ncis
    from moac.report import html
    from moac.report.pages import evaluation as page
    from moac.runs import log_files

    path, chosen = Path(directory), options or ncis.Options()
    run, trained = run_directory.read(path), run_directory.load(path, trial or 0)
    theta = trained.theta if trial is None else jax.tree.map(lambda leaf: leaf[trial][None], trained.theta)
    rule = run.config.weighting
    methods = {"MOAC" if rule == "min-norm" else f"{rule} weights": (trained.policy, theta)}
    dataset = log_files.dataset_of(path, None if data is None else Path(data))
    files.check_folder("RUN", path)
    evaluate.check(dataset, methods, split)
    accesses = None
    if split == "test":
        accesses = access_log.record(path, dataset, split, asdict(chosen) | {"trial": trial}, methods)
    evaluated = evaluate.evaluate(dataset, methods, split, chosen)
    card = evaluation.card(evaluated, dataset, access_log.fingerprints(methods), accesses)
    shown = html.render(page.of_evaluation(evaluated, card, run, accesses))
    card_path, page_path = path / f"card-{split}.json", path / f"evaluation-{split}.html"
    files.write_json(card_path, card)
    files.write_bytes(page_path, shown.encode())
    return RunEvaluation(evaluated, accesses, card, card_path, page_path)


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
    return run_directory.save(outcome, path, training_figures(outcome), overwrite)


def _source(problem: Source | str) -> Source:
    """The problem itself, or that of an id."""
    source = problems.problem_of(problem) if isinstance(problem, str) else problem
    if isinstance(source.spec.observations, LogSpec):
        from moac.offline import evaluate as evaluate  # hands the estimator of policies down to logs
    return source
