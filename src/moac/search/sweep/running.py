"""The tasks of a sweep: each is a run directory. What has finished is kept, what failed is noted and tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from moac import files, locks, settings
from moac.envs.quiet import quiet
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.runs.executors import Executor, Failure
from moac.runs.runner import Task
from moac.search.sweep.spec import Cell, Sweep
from moac.types import Source

_PATIENCE, _LOOK_EVERY = 60.0, 0.5
"""Seconds to wait for the folder: who had the task before, on a machine that is lost, may take a moment to end."""
Make = Callable[[str, tuple[tuple[str, Any], ...]], Source]
"""The problem of an environment's id, stepped so; a function of a module, which a worker can find."""
Report = Callable[["Job", Failure | None], None]
"""Called as a task ends."""


@final
@dataclass(frozen=True)
class Job:
    """A task, as a worker is told it: plain data and paths.

    Attributes:
        label: what was varied.
        env: the environment.
        seed: of the run.
        task: its resolved configuration and trials.
        stepping: how the environment is stepped.
        make: makes the problem.
        key: the name of its folder, which changes with anything that changes the result.
        out: the sweep's folder.
    """

    label: str
    env: str
    seed: int
    task: Task
    stepping: tuple[tuple[str, Any], ...]
    make: Make
    key: str
    out: Path

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.out / "tasks" / self.key

    @property
    def note(self) -> Path:
        """Why it failed, where it did."""
        return self.out / "errors" / f"{self.key}.json"

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return RunDirectory(self.folder).finished


def jobs(sweep: Sweep, out: Path, make: Make) -> list[Job]:
    """The jobs of all cells, with their configurations resolved; a cell that cannot run is a ValueError."""
    with quiet():
        return [_job(sweep, cell, out, make) for cell in sweep.cells]


def run(all_jobs: list[Job], executor: Executor, report: Report) -> None:
    """Run what has not finished; two cells of one configuration are one task."""
    waiting = [job for job in {job.key: job for job in all_jobs}.values() if not job.finished]
    for out, name in {(job.out, name) for job in waiting for name in ("tasks", "errors")}:
        files.subfolder(out, name)
    for outcome in executor.map(work, waiting):
        job, failure = waiting[outcome.index], outcome.failure
        if failure is None and not job.finished:
            failure = Failure("lost", "it finished elsewhere: `out` must be a folder that all machines share.")
        if failure is None:
            job.note.unlink(missing_ok=True)
        else:
            files.write_json(job.note, _note(job, failure))
        report(job, failure)


def work(job: Job) -> None:
    """Train one task to its end, from its checkpoint if it has one."""
    with quiet():
        problem, until = job.make(job.env, job.stepping), time.monotonic() + _PATIENCE
        while True:
            try:
                runner.complete(job.task, job, problem, job.out / "tasks", runner.unseen)
            except locks.InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_EVERY)
            else:
                return


def _job(sweep: Sweep, cell: Cell, out: Path, make: Make) -> Job:
    problem = make(cell.env, sweep.stepping)
    try:
        task = Task(cell.env, settings.complete(cell.config, problem.spec), sweep.trials)
    except ValueError as error:
        raise ValueError(f"{cell.label}: {error}") from None
    key = runner.key(task, cell, problem)
    return Job(cell.label, cell.env, cell.seed, task, sweep.stepping, make, key, out)


def _note(job: Job, failure: Failure) -> dict[str, str]:
    return {"task": job.label, "kind": failure.kind, "message": failure.message, "trace": failure.trace}
