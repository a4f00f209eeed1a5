"""The public functions: they join what the layers below keep apart, and hand writers and drawers down to results."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax

from moac import files, training
from moac.choices import did_you_mean
from moac.config import Config
from moac.momdp import FiniteMOMDP, library
from moac.policies.observations import LogSpec
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

    from moac.offline.access_log import AccessLog
    from moac.offline.evaluation import OfflineEvaluation
    from moac.offline.ncis import Options


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
        problem: a `FiniteMOMDP`, an environment of `moac.envs.make`, a `LoggedDataset`, or an id as in `problem_of`.
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
    source = problem_of(problem) if isinstance(problem, str) else problem
    if isinstance(source.spec.observations, LogSpec):
        from moac.offline import evaluate as evaluate  # hands the estimator of policies down to logs
    run = result.prepare(source, config, trials, seed, own)
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
    """Continue a run to its end and write it. One that has ended is read.

    On a model or a log it ends as if it had never stopped; on an environment it goes on in new episodes.

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
    found = evaluate.evaluate(dataset, methods, split, chosen)
    card = evaluation.card(found, dataset, access_log.fingerprints(methods), accesses)
    shown = html.render(page.of_evaluation(found, card, run, accesses))
    card_path, page_path = path / f"card-{split}.json", path / f"evaluation-{split}.html"
    files.write_json(card_path, card)
    files.write_bytes(page_path, shown.encode())
    return RunEvaluation(found, accesses, card, card_path, page_path)


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


def model_of(env: str) -> FiniteMOMDP:
    """The exact model of an environment; an unknown one is refused with the known ones."""
    model = library.for_environment(env)
    if model is not None:
        return model
    known = library.known_environments()
    raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{did_you_mean(env, known)}")


def problem_of(env: str, *, blackbox: bool = False, **options: Any) -> Source:
    """The exact model of an environment where the library holds it, else the environment itself.

    Args:
        env: a MO-Gymnasium id, also as `package.module:Id-v0`.
        blackbox: step the real environment, also where its exact model is known.
        options: of `moac.envs.make`; only where the real environment is stepped.
    """
    model = None if blackbox else library.for_environment(env)
    if model is None:
        return _environment_of(env, options)
    for name in options:
        raise ValueError(f"`{name}` must be left out where the exact model is used, or given with --blackbox.")
    return model


@lru_cache(maxsize=8)
def problem_of_task(env: str, options: tuple[tuple[str, Any], ...]) -> Source:
    """The same by plain data, kept: the tasks of a sweep, in any process, ask for few problems many times."""
    return problem_of(env, **dict(options))


def problem_of_run(directory: Path, trust: bool = False) -> Source:
    """The problem of a run, by what its config.json says; `trust` as in `environment_of_run`."""
    problem = run_directory.RunDirectory(directory).description["problem"]
    if "log" in problem:
        from moac.runs import log_files

        return log_files.dataset_of(directory)
    if problem["env"] is None:
        raise ValueError(f"{directory} was saved from Python: resume it with moac.resume({str(directory)!r}, problem).")
    return model_of(problem["env"]) if problem.get("encoder") is None else environment_of_run(directory, trust)


def environment_of_run(directory: Path, trust: bool = False) -> Source:
    """The environment that a run's config.json names, with the options that it was trained with.

    Args:
        directory: of the run.
        trust: whether a module that it names may be imported, which runs the code in it.
    """
    problem = run_directory.RunDirectory(directory).description["problem"]
    env, options = problem["env"], problem.get("options") or {}
    if env is None:
        raise ValueError(f"{directory} was saved from Python: its environment has no id to make it by.")
    if not isinstance(options, dict):
        raise files.DamagedError(directory / "config.json", "`problem.options` is not a table of options")
    if ":" in env and not trust:
        told = f"{directory} names the environment {env!r}, which would import the module {env.partition(':')[0]!r}"
        raise ValueError(f"{told}: give --trust if you trust the code in it.")
    return _environment_of(env, options)


def _environment_of(env: str, options: Mapping[str, Any]) -> Source:
    from moac import envs

    if ":" not in env and env not in envs.known_ids():
        known = (*library.known_environments(), *(i for i in envs.known_ids() if not library.for_environment(i)))
        raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{did_you_mean(env, known)}")
    return envs.make(env, **options)
