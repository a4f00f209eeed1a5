"""Training into run directories: checkpoints and metrics while a run goes on; the tasks of an experiment, kept."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moac import files, locks, settings, training
from moac.config import Config
from moac.runs import CHECKPOINT_SECONDS, sinks
from moac.runs.checkpoints import Writer
from moac.runs.directory import RunDirectory, reopen
from moac.training import result
from moac.types import Source

_NO_RESULT = ("workers", "step_timeout")  # how an environment is stepped, where that changes no result


def train(
    directory: RunDirectory | None,
    run: training.Run,
    snapshot: training.Snapshot | None = None,
    every: float = CHECKPOINT_SECONDS,
    show: Callable[[training.Snapshot], Any] = lambda _: None,
    more: Sequence[str] = (),
) -> training.Snapshot:
    """Iterate a run from where it stands to its end; the caller holds the directory, None keeps all in memory.

    A checkpoint is written `every` so many seconds while the training goes on, and one when it ends or is interrupted,
    which is complete before this returns; `show` is shown the snapshots as they come; `more` names sinks beside
    `metrics.jsonl`.
    """
    latest = snapshot
    if directory is not None:
        latest = _kept(directory, run, snapshot, every, show, more)
    else:
        for latest in training.iterate(run, snapshot):
            show(latest)
    if latest is None:
        raise ValueError("`run` must have its last state to continue from, got one that was read from files.")
    return latest


def _kept(
    directory: RunDirectory, run: training.Run, snapshot: training.Snapshot | None, every: float, show: Any, more: Any
) -> training.Snapshot | None:
    """The same with checkpoints, metrics and the policies that are to be kept."""
    files.subfolder(directory.path, "checkpoint")
    written, history = (None, None) if snapshot is None else (snapshot.iteration, snapshot.history)
    latest, writer = snapshot, Writer(directory.checkpoints(), every, written)
    place = sinks.Place(directory.path, directory.description, run.settings.samples_per_iteration, written or 0)
    keep_every: int | None = directory.description.get("keep_every")
    with closing(sinks.feed(place, more, history)) as feed:
        try:
            for latest in training.iterate(run, snapshot, keep_every):
                feed.show(latest)
                if keep_every is not None and latest.iteration % keep_every == 0:
                    directory.keep(result.Result.of(run, latest))
                show(latest)
                writer.offer(latest)
        finally:
            writer.finish(latest)
    return latest


def lengthen(directory: RunDirectory, run: training.Run, iterations: int) -> tuple[RunDirectory, training.Run]:
    """The same run with more iterations, to be continued from its checkpoint. The caller holds it.

    On a model it ends as a run of that length from the start, bit for bit. The history keeps what was logged; new
    evaluations are those of the longer run. Policies of the end so far stay: `load(path, iteration=…)`; a certificate
    and the cards of evaluations, which are of these, do not.
    """
    path, before, longer = directory.path, run.settings.num_iterations, longer_run(run, iterations)
    if iterations == before:
        return directory, run
    if directory.finished:
        if directory.checkpoints().newest(run) is None:
            raise ValueError(f"{path} cannot be trained longer: it has no checkpoint to continue from.")
        files.subfolder(path, "policies")
        (path / "policy.safetensors").replace(directory.kept_path(before))  # first: it is what says that a run ended
    for name in ("history.safetensors", "certificate.json", "report.html", "card-*.json", "evaluation-*.html"):
        for old in path.glob(name):
            old.unlink(missing_ok=True)
    files.write_json(path / "config.json", {**directory.description, "config": longer.config.to_json()})
    return RunDirectory(path), longer


def longer_run(run: training.Run, iterations: int) -> training.Run:
    """The same run with more iterations; a ValueError where it would not be the same."""
    before, config = run.settings.num_iterations, replace(run.config, num_iterations=iterations)
    if iterations < before:
        raise ValueError(f"`iterations` must be at least {before}, which the run already has, got {iterations}.")
    for name in settings.length_dependent(config) if iterations > before else ():
        instead = "train a new one with more iterations" + ", or with schedule='constant'" * (name == "schedule")
        raise ValueError(
            f"the run cannot be trained longer: its `{name}` depends on the number of iterations; {instead}."
        )
    return replace(run, config=config)


@dataclass(frozen=True)
class Task:
    """One training run among several."""

    label: str  # its name
    config: Config  # what differs from the defaults
    trials: int
    seed: int


Show = Callable[[Task, training.Run, int], AbstractContextManager[Any]]
"""Called as a task starts, with the iteration it starts from; what it returns is entered, and then called with each
snapshot."""


def unseen(*_: Any) -> AbstractContextManager[Any]:
    """A `Show` that shows nothing."""
    return nullcontext(lambda snapshot: None)


def complete(
    task: Task,
    problem: Source,
    folder: Path | None,
    show: Show = unseen,
    start: Callable[[], training.Snapshot] | None = None,
) -> result.Result:
    """The task's result, from its folder if it has finished; `start` gives its first snapshot, where it has one.

    Without a folder everything stays in memory.
    """
    if folder is None:
        run = result.prepare(problem, task.config, task.trials, task.seed)
        snapshot = None if start is None else start()
        return _trained(task, run, None, snapshot, show)
    path = files.below(folder.parent, folder.name, key(task, problem))
    if RunDirectory(path).finished:  # what has ended needs no place to write
        directory, run = reopen(path, problem)
        return directory.outcome(run)
    with locks.folder(path):
        directory, run = _opened(path, task, problem)
        if directory.finished:  # meanwhile, by another process
            return directory.outcome(run)
        with directory.begun():
            snapshot = directory.checkpoints().newest(run)
            if snapshot is None and start is not None:
                snapshot = start()
            outcome = _trained(task, run, directory, snapshot, show)
        directory.finish(outcome)  # without figures: the experiment's own show it
    return outcome


def _opened(path: Path, task: Task, problem: Source) -> tuple[RunDirectory, training.Run]:
    """The run directory of a task, new or begun before, and its run."""
    if (path / "config.json").exists():
        return reopen(path, problem)
    run = result.prepare(problem, task.config, task.trials, task.seed)
    return RunDirectory.create(path, run), run


def _trained(
    task: Task, run: training.Run, directory: RunDirectory | None, snapshot: training.Snapshot | None, show: Show
) -> result.Result:
    """The result of a task's run, iterated to its end and shown on the way."""
    with show(task, run, 0 if snapshot is None else snapshot.iteration) as watch:
        return result.Result.of(run, train(directory, run, snapshot, show=watch))


def key(task: Task, problem: Source) -> str:
    """A readable folder name that changes with anything that changes the result."""
    data: list[Any] = [task.config.to_json(), task.trials, task.seed, problem.spec.fingerprint]
    stepping = {name: value for name, value in (problem.spec.options or {}).items() if name not in _NO_RESULT}
    data += [files.finite(stepping)] if stepping else []
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", task.label.lower()).strip("-")
    return f"{slug}-{digest}"
