"""Sweeps: one training run for each task, on any executor, and one table of where the tasks ended.

In memory a worker sends back where its task ended; with a folder each task is a run directory, and the table is made
from those alone, so that the same call on the folder does what is missing.
"""

from __future__ import annotations

import contextlib
import csv
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import files, locks, settings
from moac.choices import counted
from moac.runs import directory, runner
from moac.runs.problems import problem_of_task
from moac.runs.runner import Task
from moac.search.sweep_spec import Cell, Sweep
from moac.statistics import Mean, mean
from moac.tasks import Executor, Failure, Serial, quiet
from moac.training.result import Result

FORMAT = 2
_PATIENCE, _LOOK_EVERY = 60.0, 0.5
"""Seconds to wait for the folder: who had the task before, on a machine that is lost, may take a moment to end."""
Report = Callable[["Job", Failure | None], None]
"""Called as a task ends."""


@dataclass(frozen=True)
class Job:
    """A task, as a worker is told it: plain data and paths."""

    cell: Cell  # what was varied, with environment and seed
    task: Task  # its resolved configuration and trials
    stepping: tuple[tuple[str, Any], ...]  # how the environment is stepped
    key: str  # its name, which changes with anything that changes the result
    out: Path | None  # the sweep's folder, with run directories in `tasks` and notes on failures in `errors`

    @property
    def finished(self) -> bool:
        """Whether its run directory has a finished run."""
        return self.out is not None and directory.RunDirectory(self.out / "tasks" / self.key).finished


@dataclass(frozen=True, eq=False)
class End:
    """Where a finished task ended, as means over its trials with 95 % intervals."""

    objectives: tuple[str, ...]  # their names
    iterations: int  # T
    kind: str  # how returns were evaluated
    returns: tuple[Mean, ...]  # of each objective
    weights: tuple[Mean, ...]  # λ_T of each objective
    gap: Mean  # exact stationarity gap
    regret: Mean  # exact
    stopped: int  # trials whose update was not finite

    @classmethod
    def of(cls, run: Path | Result) -> End:
        """Of the last evaluation of a run."""
        read = directory.read(run)
        history, stopped = read.history, read.stopped
        returns, weights = history.returns[:, -1].T, history.weights[:, -1].T
        means = (tuple(map(mean, returns)), tuple(map(mean, weights)), mean(history.gap[:, -1]))
        count = 0 if stopped is None else int((stopped > 0).sum())
        return cls(read.objectives, read.last, history.kind, *means, mean(history.regret[:, -1]), count)

    @property
    def point(self) -> Float[np.ndarray, " M"]:
        """The mean return of each objective."""
        return np.array([one.value for one in self.returns])


@dataclass(frozen=True, eq=False)
class Row:
    """A cell and what came of it: where it ended, or why it did not; whether another task dominates it."""

    cell: Cell
    key: str
    end: End | None
    error: str | None
    dominated: bool | None = None


@dataclass(frozen=True, eq=False)
class Swept:
    """A sweep that has been run: what came of each cell, in the order of the spec."""

    spec: Sweep
    rows: tuple[Row, ...]

    def __repr__(self) -> str:
        tasks = counted(len(self.rows), "task")
        return f"Swept({self.spec.name}: {tasks}, {len(self.failed)} failed, {len(self.best)} best)"

    @property
    def failed(self) -> tuple[Row, ...]:
        """The tasks that did not end."""
        return tuple(row for row in self.rows if row.end is None)

    @property
    def best(self) -> tuple[Row, ...]:
        """The tasks that no other of their environment dominates, by mean returns."""
        return tuple(row for row in self.rows if row.dominated is False)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The lines of results.csv: one for each task, by column."""
        return [_line(self.spec, row) for row in self.rows]

    def save(self, directory: str | Path) -> Path:
        """Write results.csv, results.json, figures and report.html into a folder."""
        from moac.report.pages import sweep

        return sweep.save(self, Path(directory))


def sweep(
    spec: Sweep, out: Path | None = None, executor: Executor | None = None, report: Report = lambda job, failure: None
) -> Swept:
    """Train what a sweep describes, and has not finished in `out`; without an executor one task after the other.

    A cell that cannot run is a ValueError before anything is trained.
    """
    with quiet():
        jobs = [_job(spec, cell, out) for cell in spec.cells]
    with contextlib.ExitStack() as folders:
        if out is not None:
            for name in ("tasks", "errors"):
                folders.enter_context(files.making(files.below(out, name)))
        return Swept(spec, tuple(_run(jobs, executor or Serial(), report)))


def _job(spec: Sweep, cell: Cell, out: Path | None) -> Job:
    """The job of a cell, with its configuration resolved."""
    problem = problem_of_task(cell.env, spec.stepping)
    try:
        task = Task(cell.env, settings.complete(cell.config, problem.spec), spec.trials, cell.seed)
    except ValueError as error:
        raise ValueError(f"{cell.label}: {error}") from None
    return Job(cell, task, spec.stepping, runner.key(task, problem), out)


def _run(all_jobs: list[Job], executor: Executor, report: Report) -> list[Row]:
    """Run what has not finished, and give a row for each cell; two cells of one configuration are one task."""
    waiting = [job for job in {job.key: job for job in all_jobs}.values() if not job.finished]
    ended: dict[str, End | str] = {}
    for outcome in executor.map(work, waiting):
        job, failure = waiting[outcome.index], outcome.failure
        if failure is None and job.out is not None and not job.finished:
            failure = Failure("lost", "it finished on another machine: `out` must be a folder that all machines share.")
        if job.out is not None:
            _note(job.out / "errors" / f"{job.key}.json", job, failure)
        if failure is not None:
            ended[job.key] = failure.message
        elif outcome.value is not None:
            ended[job.key] = outcome.value
        report(job, failure)
    return _compared([_row(job, ended.get(job.key)) for job in all_jobs])


def _note(path: Path, job: Job, failure: Failure | None) -> None:
    """Why a task failed, for the next reader of its folder; what failed is tried again by the next call."""
    if failure is None:
        path.unlink(missing_ok=True)
    else:
        about = {"kind": failure.kind, "message": failure.message, "trace": failure.trace}
        files.write_json(path, {"task": job.cell.label} | about)


def work(job: Job) -> End | None:
    """Train one task to its end; with a folder from its checkpoint, if it has one, and into its run directory."""
    with quiet():
        problem, until = problem_of_task(job.cell.env, job.stepping), time.monotonic() + _PATIENCE
        if job.out is None:
            return End.of(runner.complete(job.task, problem, None))
        while True:
            try:
                runner.complete(job.task, problem, job.out / "tasks")
            except locks.InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_EVERY)
            else:
                return None


def _row(job: Job, ended: End | str | None) -> Row:
    """By what the executor told; of a task with a folder by its run directory."""
    error = ended if isinstance(ended, str) else "it has not been run."
    if isinstance(ended, End):
        return Row(job.cell, job.key, ended, None)
    if job.out is not None and job.finished:
        try:
            return Row(job.cell, job.key, End.of(job.out / "tasks" / job.key), None)
        except ValueError as damaged:
            error = str(damaged)
    return Row(job.cell, job.key, None, error)


def _compared(rows: list[Row]) -> list[Row]:
    """The rows, each told whether another task of its environment is as good in all mean returns, and better in one."""
    ends = [(row.cell.env, row.end.point) for row in rows if row.end is not None]

    def dominated(env: str, mine: Any) -> bool:
        theirs = [point for name, point in ends if name == env and len(point) == len(mine)]
        return any(bool((point >= mine).all() and (point > mine).any()) for point in theirs)

    return [row if row.end is None else replace(row, dominated=dominated(row.cell.env, row.end.point)) for row in rows]


def as_csv(swept: Swept) -> bytes:
    """The table, one line for each task; numbers with all their digits, nothing where they are not known."""
    names = dict.fromkeys(name for line in swept.table for name in line if name != "error")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "error"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in line.items()} for line in swept.table)
    return text.getvalue().encode()


def _line(spec: Sweep, row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {"task": row.key}
    cells |= {"env": row.cell.env, "seed": row.cell.seed} | {name: _text(row.cell.values[name]) for name in spec.axes}
    cells |= {"status": "failed" if row.end is None else "done", "trials": spec.trials}
    if row.end is not None:
        end = row.end
        cells |= {"iterations": end.iterations, "returns_kind": end.kind, "dominated": row.dominated}
        for name, one, weight in zip(end.objectives, end.returns, end.weights, strict=True):
            cells |= {f"return {name}": one.value, f"return {name} low": one.low, f"return {name} high": one.high}
            cells[f"weight {name}"] = weight.value
        cells |= {"gap": end.gap.value, "regret": end.regret.value, "stopped_trials": end.stopped}
    return files.finite(cells) | {"error": row.error}


def _text(value: Any) -> Any:
    """A value of an axis in a cell of a table: lists and tables as text."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return " ".join(str(_text(part)) for part in value) if isinstance(value, list | tuple) else value
