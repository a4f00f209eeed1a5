"""Training into run directories: checkpoints and metrics while a run goes on; the tasks of an experiment, kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from moac import files, settings, training
from moac.config import Config
from moac.runs import CHECKPOINT_SECONDS, sinks
from moac.runs.directory import RunDirectory, reopen
from moac.training import result
from moac.types import Source

_NO_RESULT = ("workers", "step_timeout")
"""How an environment is stepped, where that changes no result."""


def train(
    directory: RunDirectory,
    run: training.Run,
    snapshot: training.Snapshot | None = None,
    every: float = CHECKPOINT_SECONDS,
    show: Callable[[training.Snapshot], Any] = lambda _: None,
    more: Sequence[str] = (),
) -> training.Snapshot:
    """Iterate a run from where it stands to its end; the caller holds the directory.

    A checkpoint is written `every` so many seconds, and one when it is interrupted; `show` is shown the snapshots as
    they come; `more` names sinks beside `metrics.jsonl`.
    """
    files.remove_unfinished(directory.path)
    files.subfolder(directory.path, "checkpoint")
    checkpoints, last_time, latest = directory.checkpoints(), time.monotonic(), snapshot
    written, history = (None, None) if snapshot is None else (snapshot.iteration, snapshot.history)
    place = sinks.Place(directory.path, directory.description, run.settings.samples_per_iteration, written or 0)
    keep_every: int | None = directory.description.get("keep_every")
    with closing(sinks.feed(place, more, history)) as feed:
        try:
            for latest in training.iterate(run, snapshot, keep_every):
                feed.show(latest)
                if keep_every is not None and latest.iteration % keep_every == 0:
                    directory.keep(result.Result.of(run, latest))
                show(latest)
                if time.monotonic() - last_time >= every:
                    checkpoints.write(latest)
                    last_time, written = time.monotonic(), latest.iteration
        finally:
            if latest is not None and latest.iteration != written:
                checkpoints.write(latest)
    if latest is None:
        raise ValueError(f"{directory.path} has nothing to train.")
    return latest


def lengthen(directory: RunDirectory, run: training.Run, iterations: int) -> tuple[RunDirectory, training.Run]:
    """The same run with more iterations, to be continued from its checkpoint. The caller holds it.

    On a model it ends as a run of that length from the start, bit for bit. The history keeps what was logged; new
    evaluations are those of the longer run. Policies of the end so far stay: `load(path, iteration=…)`.
    """
    path, before, longer = directory.path, run.settings.num_iterations, longer_run(run, iterations)
    if iterations == before:
        return directory, run
    if directory.finished:
        if directory.checkpoints().newest(run) is None:
            raise ValueError(f"{path} cannot be trained longer: it has no checkpoint to go on from.")
        files.subfolder(path, "policies")
        (path / "policy.safetensors").replace(directory.kept_path(before))  # first: it is what says that a run ended
    for name in ("history.safetensors", "report.html"):
        (path / name).unlink(missing_ok=True)
    files.write_json(path / "config.json", {**directory.description, "config": longer.config.to_json()})
    return RunDirectory(path), longer


def longer_run(run: training.Run, iterations: int) -> training.Run:
    """The same run with more iterations; a ValueError where it would not be the same."""
    before, config = run.settings.num_iterations, replace(run.config, num_iterations=iterations)
    if iterations < before:
        raise ValueError(f"`iterations` must be at least {before}, which the run has already, got {iterations}.")
    for name in settings.length_dependent(config) if iterations > before else ():
        raise ValueError(f"the run cannot be trained longer: its `{name}` depends on the number of iterations.")
    return replace(run, config=config)


@dataclass(frozen=True)
class Task:
    """One training run among several: its name, what differs from the defaults, and the number of trials."""

    label: str
    config: Config
    trials: int


class Place(Protocol):
    """The experiment, or the cell of a sweep, that a task belongs to."""

    @property
    def env(self) -> str: ...  # noqa: D102

    @property
    def seed(self) -> int: ...  # noqa: D102


Show = Callable[[Task, training.Run, int], AbstractContextManager[Any]]
"""Called as a task starts, with the iteration it starts from; what it returns is entered and shown the snapshots."""


def unseen(*_: Any) -> AbstractContextManager[Any]:
    """A `Show` that shows nothing."""
    return contextlib.nullcontext(SimpleNamespace(show=lambda snapshot: None))


def complete(
    task: Task,
    experiment: Place,
    problem: Source,
    folder: Path | None,
    show: Show,
    start: Callable[[], training.Snapshot] | None = None,
) -> result.Result:
    """The task's result, from its folder if it has finished; `start` gives its first snapshot, where it has one.

    Without a folder everything stays in memory.
    """
    if folder is None:
        return _in_memory(task, experiment, problem, show, start)
    path = files.below(folder.parent, folder.name, key(task, experiment, problem))
    if (path / "config.json").exists():
        directory, run = reopen(path, problem)
        if directory.finished:
            return directory.outcome(run)
    else:
        run = result.prepare(problem, task.config, task.trials, experiment.seed)
        directory = RunDirectory.create(path, run, experiment.env)
    with directory.held():
        snapshot = directory.checkpoints().newest(run)
        if snapshot is None and start is not None:
            snapshot = start()
        with show(task, run, 0 if snapshot is None else snapshot.iteration) as display:
            final = train(directory, run, snapshot, show=display.show)
        outcome = result.Result.of(run, final)
        directory.finish(outcome)  # without figures: the experiment's own show it
    return outcome


def _in_memory(task: Task, experiment: Place, problem: Source, show: Show, start: Any) -> result.Result:
    run, snapshot = result.prepare(problem, task.config, task.trials, experiment.seed), None
    with show(task, run, 0) as display:
        for snapshot in training.iterate(run, None if start is None else start()):
            display.show(snapshot)
    if snapshot is None:
        raise ValueError(f"{task.label} has nothing to train.")
    return result.Result.of(run, snapshot)


def key(task: Task, experiment: Place, problem: Source) -> str:
    """A readable folder name that changes with anything that changes the result."""
    data: list[Any] = [task.config.to_json(), task.trials, experiment.seed, problem.spec.fingerprint]
    stepping = {name: value for name, value in (problem.spec.options or {}).items() if name not in _NO_RESULT}
    data += [files.finite(stepping)] if stepping else []
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", task.label.lower()).strip("-")
    return f"{slug}-{digest}"
