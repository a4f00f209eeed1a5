"""`moac.evaluate`: policies in episodes of an environment, or on a log, the run's own or another."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from moac import files, training
from moac.arguments import checked
from moac.choices import below, counted, several, shown
from moac.config import Config
from moac.driver import source_of
from moac.momdp import library
from moac.policies.encoding import ActionBox
from moac.policies.observations import LogSpec, Observations
from moac.runs import directory as run_directory
from moac.runs import problems
from moac.runs.directory import RunDirectory
from moac.training.result import Result
from moac.training.trained import TrainedPolicy
from moac.types import Source

if TYPE_CHECKING:
    from moac.offline.evaluation import OfflineEvaluation
    from moac.search.values import EpisodeValues


@checked
def evaluate(  # noqa: PLR0913 - the estimate on a log has options of its own
    run: str | Path | Result | TrainedPolicy,
    problem: Any = None,
    *,
    episodes: int = 200,
    trials: int | Sequence[int] | None = None,
    preference: Sequence[float] | None = None,
    data: Any = None,
    split: str = "validation",
    cap: float = 10.0,
    control: Sequence[str] = (),
    out: str | Path | None = None,
    trust: bool = False,
    protect: Sequence[str] | None = None,
) -> EpisodeValues | OfflineEvaluation:
    """Evaluate policies in episodes of the real environment, beside exact values where a model is known; or on a log.

    On a log, policies are compared with Behavior-Clone; an access to test users is recorded before any number is
    computed. On another log than the run's, such as next week's, a behaviour model is fitted on that log, `.carried`
    has the results with the run's own model, and `.unknown` counts users and items that the run does not know.

    >>> result = moac.train("fishwood-v0", num_iterations=5, num_evaluations=1)
    >>> moac.evaluate(result, episodes=2).points.shape
    (1, 2)

    Args:
        run: a run directory, a result, or a policy.
        problem: the environment to play in, as in `train`; None is the run's own.
        episodes: episodes of each trial, each with its own seed.
        trials: the trials to evaluate; None is all.
        preference: the preference of a conditioned network; None draws one for each episode.
        data: a dataset or its folder; None is the run's own.
        split: the users of a log to evaluate on: `validation` or `test`.
        control: negative controls on a log: columns that no policy can have changed, besides earlier and later rewards.
        cap: cap of the importance weights on a log.
        out: a folder for the results; None writes nothing.
        trust: allow importing a module that the run names, which runs its code.
        protect: the largest allowed loss of signals, such as `Like=-1%`; `.choice` then says whether `moac.choose`
            would take the policy.
    """
    from moac.offline import choose as choosing
    from moac.search import values

    subject = Subject.of(run, problem, data, trust)
    subject = subject if preference is None else replace(subject, trained=subject.trained.at(preference))
    chosen = _chosen(trials, subject.trained.num_trials)
    if isinstance(subject.source.spec.observations, LogSpec):
        choosing.floors(protect or (), subject.source.spec.objective_names)  # a mistake shows before anything is read
        evaluated = _on_log(subject, chosen, split, cap, control)
        if protect is not None:
            evaluated = replace(evaluated, choice=choosing.choose(evaluated, protect))
    else:
        _check_no_log_options(subject.source.spec.name, split=split, cap=cap, control=control, protect=protect)
        environment: Any = subject.source
        model = library.for_environment(environment.spec.name)
        evaluated = values.by_episodes(environment, subject.trained, chosen, episodes, model)
    if out is not None:
        evaluated.save(Path(out))
    return evaluated


def _check_no_log_options(name: str, **options: Any) -> None:
    """Refuse options that only a log has a use for, where episodes of an environment are played."""
    parameters = inspect.signature(evaluate).parameters
    for option, value in options.items():
        unsaid = parameters[option].default
        if value is not unsaid and several(value) != several(unsaid):
            right = f"left out where episodes are played, here of {name}: it is for logs"
            raise ValueError(f"`{option}` must be {right}, got {shown(value)}.")


def _chosen(trials: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    """The trials to evaluate, of so many; an interval over a trial that counts twice would be too narrow."""
    numbers = range(count) if trials is None else trials
    chosen = tuple(below(count).checked("trials", trial) for trial in several(numbers))
    if not chosen:
        raise ValueError("`trials` must name at least one trial, got none.")
    twice = [trial for k, trial in enumerate(chosen) if trial in chosen[:k]]
    if twice:
        raise ValueError(f"`trials` must name each trial once, got {twice[0]} twice.")
    return chosen


@dataclass(frozen=True, eq=False)
class Subject:
    """What is evaluated: policies, trained with a weighting rule, on an environment or a log."""

    trained: TrainedPolicy
    source: Source
    weighting: str | None
    folder: Path | None = None  # of their run
    run: Any = None  # what was run, where that is in memory
    cap: float = Config.importance_cap  # of importance ratios on a log
    model: Any = None  # how the run's log chose, where a run on a log knows it by a model
    fingerprint: str | None = None  # of what the run was trained on; None of a policy alone

    def __post_init__(self) -> None:
        """Refuse an environment that takes other actions than the policies have, or shows other observations."""
        spec, policy, box = self.source.spec, self.trained.policy, self.trained.box
        on_log = isinstance(spec.observations, LogSpec)
        if on_log != isinstance(self.trained.observations, LogSpec):
            right = "an environment" if on_log else "a log"
            raise ValueError(f"`problem` must be {right}, which the policy was trained on, got {spec.name}.")
        known = _told(getattr(policy, "num_actions", 0), box)
        taken = _told(spec.num_actions, spec.action_box)
        if known != taken and (box or hasattr(policy, "num_actions")) and not on_log:
            raise ValueError(f"`problem` must take the policy's actions ({known}), got {spec.name} ({taken}).")
        observed, given = _seen(self.trained.observations), _seen(spec.observations)
        if not on_log and (observed[0] != given[0] or observed[1] < given[1] < math.inf):
            raise ValueError(
                f"`problem` must give observations as the policy takes them ({_said(observed)}), "
                f"got {spec.name} ({_said(given)})."
            )

    @classmethod
    def of(
        cls, run: str | Path | Result | TrainedPolicy, problem: Any, data: Any, trust: bool, real: bool = True
    ) -> Subject:
        """The policies of a run, with its environment or its log where none is given; a policy alone needs one of both.

        `real` takes the real environment in place of its exact model, and another log than the run's.
        """
        taken = problems.real if real else (lambda source: source)
        if problem is not None and data is not None:
            raise ValueError(f"`data` must be left out beside `problem`, which says the same, got {shown(data)}.")
        other = problem if data is None else data
        if isinstance(run, TrainedPolicy):
            if other is None:
                raise ValueError("`problem` must be given with a policy: its environment, or its log as `data`.")
            return cls(run, taken(source_of(other)), "min-norm")
        if isinstance(run, Result):
            own: Any = run.run.source
            same = other is None or getattr(other, "fingerprint", None) == own.spec.fingerprint
            rest = (run.config.weighting, None, run.run, run.config.importance_cap, getattr(own, "behaviour", None))
            return cls(run.policy, taken(own if same else source_of(other)), *rest, own.spec.fingerprint)
        path, directory = Path(run), RunDirectory(Path(run))
        trained = run_directory.load(path)
        if "log" not in directory.description["problem"]:
            if data is not None:
                raise ValueError(f"`data` is for runs on logs; {run} is on an environment.")
            its_own = problems.environment_of_run if real else problems.problem_of_run
            source = its_own(path, trust) if problem is None else taken(source_of(problem))
            return cls(trained, source, directory.config.weighting, path)
        from moac.runs import log_files

        if other is None or isinstance(other, str | Path):
            found = log_files.own_or_other if real else log_files.dataset_of
            other = found(path, None if other is None else Path(other))
        config, model = directory.config, log_files.behaviour_of(path)
        known: dict[str, Any] = {"model": model, "fingerprint": str(directory.description["problem"]["fingerprint"])}
        return cls(trained, source_of(other), config.weighting, path, cap=config.importance_cap, **known)

    def untrained(self, trained: TrainedPolicy) -> TrainedPolicy:
        """The policy that training began with: of a run, the trial's own; of a policy alone, a new one."""
        run = self.run
        if run is None and self.folder is not None and not RunDirectory(self.folder).description["own"]:
            run = run_directory.reopen(self.folder, self.source)[1]
        if run is None:
            first = trained.policy.init(jax.random.key(0))
            return replace(trained, theta=jax.tree.map(lambda leaf: leaf[None], first), trial=0)
        return replace(trained, theta=training.first(run).trials.state.theta)


def _seen(observations: Observations) -> tuple[int, float]:
    """How many numbers an observation has, and how many states there are, where an environment's are counted."""
    encoder, known = observations.encoder, getattr(observations, "shown", None)
    if encoder is None:
        return 1 if known is None else known[0].size, math.inf
    return encoder.bare.size, encoder.num_states or math.inf


def _said(seen: tuple[int, float]) -> str:
    return counted(seen[0], "number") + (f", {seen[1]} states" if math.isfinite(seen[1]) else "")


def _told(num_actions: int, box: ActionBox | None) -> str:
    """Actions in words."""
    return counted(num_actions, "action") if box is None else f"arrays of shape {box.shape}"


def _on_log(
    subject: Subject, trials: tuple[int, ...], split: str, cap: float, control: Sequence[str]
) -> OfflineEvaluation:
    """What policies are worth on a log's users beside Behavior-Clone; the trials are seeds of one method."""
    from moac.offline import elsewhere, ncis
    from moac.offline.evaluate import evaluate
    from moac.report.page import render
    from moac.report.pages import evaluation as page

    source: Any = subject.source
    theta = jax.tree.map(lambda leaf: leaf[np.array(trials)], subject.trained.theta)
    method = "MOAC" if subject.weighting == "min-norm" else f"{subject.weighting} weights"
    methods = {method: (subject.trained.policy, theta)}
    about = {"trial": trials[0] if len(trials) < subject.trained.num_trials else None}
    if subject.folder is not None:
        files.check_folder("RUN", subject.folder)
    own = subject.fingerprint in (None, source.fingerprint)
    log = elsewhere.seen(source, subject.trained.catalogue, subject.model, own)
    options = ncis.Options(cap=cap)
    evaluated = evaluate(log.dataset, methods, split, options, control=control, run=subject.folder, about=about)
    if log.carried is not None:
        carried = evaluate(log.carried, methods, split, options, control=None, accesses=evaluated.accesses)
        evaluated = replace(evaluated, carried=carried)
    return replace(evaluated, unknown=log.unknown, page=lambda each: render(page.of_evaluation(each)))
