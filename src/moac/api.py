"""The public functions: they join what the layers below keep apart, and hand writers and drawers down to results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import jax

from moac import files, locks
from moac.config import CHOICES, Config, is_choice
from moac.driver import Callback, Watching, first_of, source_of, trained, with_outputs
from moac.momdp import library
from moac.runs import CHECKPOINT_SECONDS, problems
from moac.runs import directory as run_directory
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.result import Result
from moac.training.trained import TrainedPolicy
from moac.types import Critic, Policy
from moac.weighting import Rule

if TYPE_CHECKING:
    from moac.offline.evaluation import OfflineEvaluation
    from moac.offline.ncis import Options
    from moac.runs.executors import Executor
    from moac.search.archive import Archive
    from moac.search.compare import Comparison
    from moac.search.sweep import Swept
    from moac.search.values import EpisodeValues


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
    first = None if "start" in config_fields else first_of(start, run)
    watching = Watching(progress, callback, sinks, checkpoint_every)
    if out is None:
        if sinks or keep_every is not None:
            raise ValueError("`sinks` and `keep_every` need `out`, the folder that they write into.")
        return trained(run, first, watching)
    directory = RunDirectory.create(Path(out), run, problems.id_of(source), keep_every)
    with directory.held():
        return trained(run, first, watching, directory)


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

    watching = Watching(progress, callback, sinks, checkpoint_every)
    if isinstance(run, Result):
        longer = run.run if iterations is None else run_directory.longer_run(run.run, iterations)
        return trained(longer, run.snapshot, watching)
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
        return trained(prepared, snapshot, watching, directory)


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


def evaluate(  # noqa: PLR0913 - the estimate on a log has options of its own
    run: str | Path | Result | TrainedPolicy,
    problem: Any = None,
    *,
    episodes: int = 200,
    trials: Sequence[int] | None = None,
    data: Any = None,
    split: str = "validation",
    cap: float = 10.0,
    out: str | Path | None = None,
    trust: bool = False,
) -> EpisodeValues | OfflineEvaluation:
    """What policies are worth: in whole episodes of the real environment, or, where they were trained on a log, there.

    Episodes are beside exact values where a model is known. On a log the policies are beside Behavior-Clone; an access
    to test users is recorded before any number is computed.

    >>> result = moac.train("fishwood-v0", num_iterations=5, num_evaluations=1)
    >>> moac.evaluate(result, episodes=2).points.shape
    (1, 2)

    Args:
        run: a run's folder, its result, or a policy.
        problem: the environment of a policy, as in `train`; a run knows its own.
        episodes: of each trial, each with a seed of its own.
        trials: which; None is all of them.
        data: a dataset or its folder; None is where the run had it.
        split: whose users judge on a log: `validation` or `test`.
        cap: of the importance weights on a log.
        out: a folder for what was found; None keeps nothing on disk.
        trust: whether a module that the run names may be imported, which runs the code in it.
    """
    from moac.search import values

    subject = driver.Subject.of(run, problem, data, trust)
    chosen = tuple(range(subject.trained.num_trials) if trials is None else trials)
    if isinstance(subject.source.spec.observations, LogSpec):
        evaluated = driver.on_log(subject, chosen, split, cap)
    else:
        environment: Any = subject.source
        model = library.for_environment(environment.spec.name)
        evaluated = values.by_episodes(environment, subject.trained, chosen, episodes, model)
    if out is not None:
        evaluated.save(Path(out))
    return evaluated


def explore(  # noqa: PLR0913 - every one of them is optional but the problem
    problem: Any,
    config: Config | None = None,
    *,
    steps: int | None = None,
    seed: int = 0,
    preferences: Any = None,
    draw: Literal["random", "grid"] = "random",
    rules: Sequence[str] | None = None,
    entropies: Sequence[float] | None = None,
    reference: Sequence[float] | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    check: Callable[[], None] | None = None,
    **config_fields: Any,
) -> Archive:
    """Train policies for many preferences, and keep those that no other dominates.

    >>> archive = moac.explore("fishwood-v0", preferences=2, rules=["fixed"], num_iterations=10)
    >>> archive.policy(archive.best_for([0.5, 0.5]))
    TrainedPolicy(SoftmaxTable, trial 0 of 1)

    Args:
        problem: as in `train`; a log without propensities gets a behaviour model.
        config: what all rules share; GAE is 0.95 where it says nothing.
        steps: environment steps of each trial; None is by the problem.
        seed: of preferences and trials.
        preferences: how many (None is 128 on a model, 16 elsewhere), or the vectors themselves, [N, M].
        draw: how preferences are drawn: at random on the simplex, or all multiples of 1/k.
        rules: how preferences become weights, by name; None is `fixed`, on a model also `preferred`.
        entropies: bonuses, one after the other; None is falling to 0 on a model, else 0.
        reference: of the hypervolume; None is below the worst of the front.
        out: a folder that keeps everything, from which the same call goes on, and which `load` reads.
        progress: show on stderr how far it is.
        check: is called about twice a second; what it raises stops the exploration.
        config_fields: as in `train`.
    """
    from moac.progress import watched
    from moac.report.pages import exploration
    from moac.search import EXPLORING, candidates, plan
    from moac.search import explore as search

    source, folder = source_of(problem), None if out is None else Path(out)
    shared = result.configured(source.spec, config or Config(**EXPLORING), None, config_fields)
    chosen = None if rules is None else tuple(rules)
    bonuses = None if entropies is None else tuple(entropies)
    options = plan.Options(shared, preferences, draw, chosen, bonuses, reference, seed, steps)
    plan.Plan.of(options, source)  # a mistake shows before anything is fitted or trained
    if folder is not None:
        search.check_folder(folder)
    with nullcontext() if folder is None else locks.folder(folder), watched(progress, check) as (show, tell):
        source = candidates.with_behaviour(source, folder, shared.hidden)
        archive = search.run(plan.Plan.of(options, source), source, folder, show, tell)
        archive = replace(archive, writer=exploration.save)
        if folder is not None:
            archive.save(folder)
    return archive


def sweep(
    spec: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    executor: Executor | None = None,
    callback: Callable[[Any, Any], None] = lambda job, failure: None,
) -> Swept:
    """Train what a sweep describes and has not finished in `out`.

    >>> swept = moac.sweep({"env": "fishwood-v0", "config": {"num_iterations": 3}, "grid": {"momentum": ["1/t", "1"]}})
    >>> len(swept.rows)
    2

    Args:
        spec: a TOML file, or the same as a dictionary: docs/sweeps.md.
        out: the sweep's folder, for run directories, tables and report; None keeps nothing on disk.
        executor: where tasks run, from `moac.runs.executors.opened`; None runs one after the other.
        callback: is called with each task as it ends, and with its failure or None.
    """
    from moac.report.pages import sweep as page
    from moac.search import sweep as search
    from moac.search import sweep_spec

    folder = None if out is None else Path(out).absolute()
    swept = search.sweep(sweep_spec.load(spec), problems.problem_of_task, folder, executor, callback)
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
