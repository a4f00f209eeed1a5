"""Run the tasks of an experiment; what has finished is kept, what was interrupted goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Protocol, final

from moac import files, training
from moac.runs.directory import RunDirectory, reopen
from moac.runs.tasks import Task
from moac.training import result
from moac.types import Source

Show = Callable[[Task, training.Run, int], Any]
"""Called as a task starts, with the iteration it starts from; what it returns is entered and shown the snapshots."""


class Place(Protocol):
    """Where a task is run: an experiment, or a cell of a sweep."""

    @property
    def env(self) -> str:
        """The environment."""
        ...

    @property
    def seed(self) -> int:
        """Of all randomness."""
        ...


def complete(
    task: Task,
    experiment: Place,
    problem: Source,
    folder: Path,
    show: Show,
    start: Callable[[], training.Snapshot] | None = None,
) -> result.Result:
    """The task's result, from its folder if it has finished; `start` gives its first snapshot, where it has one."""
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
            final = directory.complete(run, snapshot, show=display.show)
        outcome = result.Result.of(run, final)
        directory.finish(outcome)  # without figures: the experiment's own show it
    return outcome


_NO_RESULT = ("workers", "step_timeout")
"""How an environment is stepped, where that changes no result."""


@final
class _Unseen:
    """Nobody watches."""

    def show(self, snapshot: training.Snapshot) -> None:
        """Nothing."""


@contextlib.contextmanager
def unseen(task: Task, run: training.Run, iteration: int) -> Generator[_Unseen]:
    """A `Show` that shows nothing."""
    del task, run, iteration
    yield _Unseen()


def key(task: Task, experiment: Place, problem: Source) -> str:
    """A readable folder name that changes with anything that changes the result."""
    data: list[Any] = [task.config.to_json(), task.trials, experiment.seed, problem.spec.fingerprint]
    stepping = {name: value for name, value in (problem.spec.options or {}).items() if name not in _NO_RESULT}
    data += [files.finite(stepping)] if stepping else []
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", task.label.lower()).strip("-")
    return f"{slug}-{digest}"
