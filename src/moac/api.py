"""The public functions. They join the layers below, and give results the functions that write and draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from moac import default_config, files, locks, memory, settings
from moac.arguments import checked
from moac.choices import at_least, several
from moac.config import Config, check_trials
from moac.driver import load as load
from moac.driver import resume as resume
from moac.driver import source_of as source_of
from moac.driver import train as train
from moac.driver import with_outputs as with_outputs
from moac.evaluating import Subject
from moac.evaluating import evaluate as evaluate
from moac.policies.observations import LogSpec
from moac.tasks import Executor
from moac.training import needs, result
from moac.training.result import Result
from moac.training.trained import TrainedPolicy

if TYPE_CHECKING:
    from moac.offline.choose import Choice
    from moac.search.archive import Archive
    from moac.search.compare import Comparison
    from moac.search.sweep import Swept
    from moac.theory.certificate import Certificate


@checked
def defaults(problem: Any, chosen: Config | None = None) -> Config:
    """The configuration that a problem gets where `chosen` does not say.

    >>> moac.defaults("fishwood-v0").num_iterations
    2000

    Args:
        problem: as in `train`.
        chosen: what is decided already; None is nothing.
    """
    return default_config.of_spec(source_of(problem).spec, chosen or Config())


@checked
def certify(
    run: str | Path | Result | TrainedPolicy,
    problem: Any = None,
    *,
    trial: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    trust: bool = False,
    **plan: Any,
) -> Certificate:
    """Measure how far a policy is from Pareto-stationary, with an interval, from episodes: `moac docs certificates`.

    >>> result = moac.train("fishwood-v0", num_iterations=5, num_evaluations=1)
    >>> certificate = moac.certify(result, episodes=200, confidence=0.9)
    >>> bool(certificate.low <= result.history.gap[0, -1] <= certificate.high)
    True

    Args:
        run: a run directory, a result, or a policy. A network that is conditioned on preferences gets an interval for
            each preference of a grid, all valid together.
        problem: the problem that a policy was trained on, as in `train`; None is the run's own. For a run on a log, the
            place of its data if it was moved.
        trial: the trial to certify; None is the policy's own, or the first of a run.
        out: a folder for certificate.json, such as the run directory; None writes nothing.
        progress: show progress on stderr.
        trust: as in `evaluate`.
        plan: `episodes`, `confidence`, `until`, `seed`, `untrained`, `preferences`: `moac.theory.certificate.Plan`.
    """
    from moac.progress import watched
    from moac.search.plan import given, grid
    from moac.theory import certificate

    asked = certificate.Plan(**plan)
    subject = Subject.of(run, problem, None, trust, real=False)
    trained = subject.trained if trial is None else subject.trained.of_trial(trial)
    M = trained.conditioned_on
    p: Any = asked.preferences
    if not M and "preferences" in plan:
        raise ValueError("`preferences` must be left out: the policy is not conditioned on one.")
    if out is not None:
        files.check_folder("out", Path(out))
    policy = certificate.Subject(subject.source, trained, None, subject.cap)
    if asked.untrained:
        policy = replace(policy, untrained=subject.untrained(trained))
    vectors = () if not M else grid(max(p, M), M, 0.0) if isinstance(p, int) else given(p, M, 0.0)
    with watched(progress, None) as (_, show):
        found = certificate.certify(policy, asked, vectors, show)
    if out is not None:
        found.save(out)
        if (Path(out) / "report.html").exists():
            from moac.report import pages

            pages.write(Path(out))
    return found


@checked
def explore(  # noqa: PLR0913 - every one of them is optional but the problem
    problem: Any,
    config: Config | None = None,
    *,
    steps: int | None = None,
    seed: int = 0,
    preferences: Any = None,
    draw: Literal["random", "grid"] | None = None,
    rules: Sequence[str] | None = None,
    episodes: int = 100,
    entropies: Sequence[float] | None = None,
    reference: Sequence[float] | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    check: Callable[[], None] | None = None,
    **config_fields: Any,
) -> Archive:
    """Train policies for many preferences, on environments as one network, and keep the non-dominated ones.

    >>> archive = moac.explore("fishwood-v0", preferences=2, rules=["fixed"], num_iterations=10)
    >>> archive.policy(archive.best_for([0.5, 0.5])).num_trials == len(archive)
    True

    Args:
        problem: as in `train`; for a log without propensities a behaviour model is fitted.
        config: the configuration that all rules share; None sets GAE to 0.95.
        steps: environment steps of each rule, all trials together; None is what `num_iterations` takes.
        seed: random seed of preferences and trials.
        preferences: their number (None is 128 on a model, 36 with `conditioned`, else 16), or the vectors [N, M].
        draw: `random` on the simplex, or `grid`, all multiples of 1/k; None: `grid` with `conditioned`, else `random`.
        rules: how preferences become weights; None is `conditioned` on environments, `fixed` and `preferred` on models,
            `fixed` on logs.
        episodes: new episodes to evaluate each policy on an environment.
        entropies: entropy coefficients of successive stages; None is several that fall to 0 on a model, else 0.
        reference: reference point of the hypervolume; None is a tenth of the range below the worst point.
        out: a folder that keeps everything; the same call continues it, and `load` reads it. None writes nothing.
        progress: show progress on stderr.
        check: called about twice a second; an exception that it raises stops the exploration.
        config_fields: fields of `Config`, as in `train`.
    """
    from moac.progress import watched
    from moac.search import EXPLORING, candidates, plan
    from moac.search import explore as search

    source, folder = source_of(problem), None if out is None else Path(out)
    shared = result.configured(source.spec, config or Config(**EXPLORING), None, config_fields)
    some: list[Any] = [None if given is None else several(given) for given in (rules, entropies)]
    options = plan.Options(shared, preferences, draw, some[0], some[1], reference, seed, steps, episodes)
    plan.Plan.of(options, source)  # a mistake shows before anything is fitted or trained
    if folder is not None:
        search.check_folder(folder)
    with nullcontext() if folder is None else locks.folder(folder), watched(progress, check) as (show, tell):
        source = candidates.with_behaviour(source, folder, shared)
        archive = search.run(plan.Plan.of(options, source), source, folder, show, tell)
        if folder is not None:
            archive.save(folder)
    return archive


@checked
def choose(  # noqa: PLR0913 - every one of them is optional but the data
    data: Any,
    config: Config | None = None,
    *,
    protect: Sequence[str] = (),
    pulls: Sequence[float] = (),
    preferences: int = 0,
    trials: int = 5,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
    check: Callable[[], None] | None = None,
    **config_fields: Any,
) -> Choice:
    """Train policies on a log, close to its behaviour and further away, and choose one on validation users.

    >>> choice = moac.choose("data/kuairand", protect=["Like=-1%"], out="runs/kuairand")  # doctest: +SKIP
    >>> choice.chosen  # its name, None where Behavior-Clone stays; choice.policy recommends  # doctest: +SKIP
    'pull 0.3'

    Args:
        data: a `LoggedDataset` or its folder; without propensities, a behaviour model is fitted.
        config: the configuration that all policies share.
        protect: the largest allowed loss of signals, such as `Like=-1%`.
        pulls: coefficients of the KL regularisation towards the behaviour, a policy for each; () is 1, 0.3, 0.1, 0.03.
        preferences: the number of further policies, each for a random preference over the signals.
        trials: training seeds of each policy.
        seed: random seed; trial i depends on (seed, i) alone.
        out: a folder that becomes the run directory of the chosen policy; None writes nothing.
        progress: as in `explore`.
        check: as in `explore`.
        config_fields: as in `train`.
    """
    from moac.offline import choose as choosing
    from moac.offline.evaluate import check_rows
    from moac.progress import watched
    from moac.report import pages
    from moac.search import candidates, plan

    dataset: Any = source_of(data, "data")
    if not isinstance(dataset.spec.observations, LogSpec):
        raise ValueError(f"`data` must be a LoggedDataset or its folder, got {dataset.spec.name}.")
    full = result.configured(dataset.spec, config, None, config_fields)
    folder, floors = None if out is None else Path(out), choosing.floors(protect, dataset.signal_names)
    complete = settings.complete(
        replace(full, start="random"), dataset.spec
    )  # a mistake shows before anything is fitted
    check_rows(dataset, "validation")
    check_trials(trials, seed)
    memory.check(needs.of_sizes(dataset, complete, trials))
    at_least(0, int).checked("preferences", preferences)
    if pulls and full.behaviour_pull is not None:
        raise ValueError("`pulls` and `behaviour_pull` must not both be given: several policies, or one.")
    if len({*pulls}) < len(pulls) or any(not pull >= 0 for pull in pulls):
        raise ValueError(f"`pulls` must be different numbers of at least 0, got {list(pulls)}.")
    alone = candidates.KL_COEFFICIENTS if full.behaviour_pull is None else (full.behaviour_pull,)
    p = plan.as_tuples(plan.random(preferences, dataset.num_signals, seed))
    wanted = candidates.Plan(seed, trials, full, tuple(pulls) or alone, floors, p)
    if folder is not None:
        candidates.check_folder(folder)
    with nullcontext() if folder is None else locks.folder(folder), watched(progress, check) as (show, _):
        filled = candidates.with_behaviour(dataset, folder, full)
        choice = candidates.choose(filled, wanted, folder, show)
        if folder is not None and choice.chosen is not None:
            pages.write(folder)
    return choice


@checked
def sweep(
    spec: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    executor: Executor | None = None,
    callback: Callable[[Any, Any], None] = lambda job, failure: None,
) -> Swept:
    """Train all tasks of a sweep that have not finished in `out`.

    >>> spec = {"env": "fishwood-v0", "config": {"num_iterations": 3}, "grid": {"actor_step_size": [1.0, 4.0]}}
    >>> len(moac.sweep(spec).rows)
    2

    Args:
        spec: a TOML file, or the same as a dictionary: `moac docs sweeps`.
        out: a folder for run directories, tables and report; None writes nothing.
        executor: where tasks run, from `moac.runs.executors.opened`; None runs them one after the other.
        callback: called with each task as it ends, and with its failure or None.
    """
    from moac.search import sweep as search
    from moac.search import sweep_spec

    folder = None if out is None else Path(out).absolute()
    swept = search.sweep(sweep_spec.load(spec), folder, executor, callback)
    if folder is not None:
        swept.save(folder)
    return swept


@checked
def compare(
    *runs: str | Path | Result, names: Sequence[str] | None = None, out: str | Path | None = None
) -> Comparison:
    """Compare finished runs: curves over environment steps, and differences to the first run with intervals.

    >>> runs = [moac.train("fishwood-v0", trials=2, seed=seed, num_iterations=5) for seed in (0, 1)]
    >>> moac.compare(*runs, names=["zero", "one"])
    Comparison(zero, one; fish, wood)

    Args:
        runs: two or more results or run directories with the same objectives.
        names: their names; None takes those of the folders.
        out: a folder for figure and report; None writes nothing.
    """
    from moac.search import compare as search

    comparison = search.compare(runs, names)
    if out is not None:
        comparison.save(out)
    return comparison


@checked
def export(
    run: str | Path | Result | TrainedPolicy,
    path: str | Path,
    *,
    format: Literal["onnx"] = "onnx",
    trial: int | None = None,
    preference: Sequence[float] | None = None,
) -> Path:
    """Write a policy as a file that other programs run: inputs and outputs are in `moac docs exporting`.

    >>> result = moac.train("fishwood-v0", num_iterations=5, num_evaluations=1)
    >>> moac.export(result, "runs/fishwood.onnx")
    PosixPath('runs/fishwood.onnx')

    Args:
        run: a run's folder, its result, or a policy.
        path: of the file; one that is there is replaced.
        format: `onnx`, for which the extra of that name must be installed.
        trial: which; None is the policy's own, of a run the first.
        preference: what conditioned networks act for; None makes it an input of the file.
    """
    from moac.runs.directory import RunDirectory
    from moac.training import export as exporting

    del format  # there is one
    if isinstance(run, TrainedPolicy):
        trained, about = run, {}
    elif isinstance(run, Result):
        spec = run.run.source.spec
        trained, about = run.policy, {"problem": spec.name, "objectives": spec.objective_names}
    else:
        problem = RunDirectory(Path(run)).description["problem"]
        trained, about = load(run), {"problem": problem["name"], "objectives": problem["objectives"]}
    trained = trained if trial is None else trained.of_trial(trial)
    trained = trained if preference is None else trained.at(preference)
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"`path` must be the place of a file, got the folder {path}.")
    files.check_folder("path", file.parent)
    content = exporting.onnx(trained, about)
    with files.making(file.parent):
        files.write_bytes(file, content)
    return file
