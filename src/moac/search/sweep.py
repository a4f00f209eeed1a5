"""Sweeps: a run directory for each task, on any executor, and one table of where the tasks ended."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import files, locks, settings
from moac.envs.make import quiet
from moac.runs import directory, runner
from moac.runs.runner import Task
from moac.search.sweep_spec import Cell, Sweep
from moac.statistics import Mean, mean
from moac.tasks import Executor, Failure
from moac.types import Source

FORMAT = 1
_PATIENCE, _LOOK_EVERY = 60.0, 0.5
"""Seconds to wait for the folder: who had the task before, on a machine that is lost, may take a moment to end."""
Make = Callable[[str, tuple[tuple[str, Any], ...]], Source]
"""The problem of an environment's id, stepped so; a function of a module, which a worker can find."""
Report = Callable[["Job", Failure | None], None]
"""Called as a task ends."""


@final
@dataclass(frozen=True)
class Job:
    """A task, as a worker is told it: plain data and paths."""

    cell: Cell  # what was varied, with environment and seed
    task: Task  # its resolved configuration and trials
    stepping: tuple[tuple[str, Any], ...]  # how the environment is stepped
    make: Make  # makes the problem
    key: str  # the name of its folder, which changes with anything that changes the result
    out: Path  # the sweep's folder

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
        return directory.RunDirectory(self.folder).finished


def jobs(sweep: Sweep, out: Path, make: Make) -> list[Job]:
    """The jobs of all cells, with their configurations resolved; a cell that cannot run is a ValueError."""
    with quiet():
        return [_job(sweep, cell, out, make) for cell in sweep.cells]


def _job(sweep: Sweep, cell: Cell, out: Path, make: Make) -> Job:
    problem = make(cell.env, sweep.stepping)
    try:
        task = Task(cell.env, settings.complete(cell.config, problem.spec), sweep.trials)
    except ValueError as error:
        raise ValueError(f"{cell.label}: {error}") from None
    return Job(cell, task, sweep.stepping, make, runner.key(task, cell, problem), out)


def run(all_jobs: list[Job], executor: Executor, report: Report) -> None:
    """Run what has not finished; two cells of one configuration are one task. What failed is tried again next time."""
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
            about = {"kind": failure.kind, "message": failure.message, "trace": failure.trace}
            files.write_json(job.note, {"task": job.cell.label} | about)
        report(job, failure)


def work(job: Job) -> None:
    """Train one task to its end, from its checkpoint if it has one."""
    with quiet():
        problem, until = job.make(job.cell.env, job.stepping), time.monotonic() + _PATIENCE
        while True:
            try:
                runner.complete(job.task, job.cell, problem, job.out / "tasks", runner.unseen)
            except locks.InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_EVERY)
            else:
                return


@final
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

    @property
    def point(self) -> Float[np.ndarray, " M"]:
        """The mean return of each objective."""
        return np.array([one.value for one in self.returns])


@final
@dataclass(frozen=True, eq=False)
class Row:
    """A cell and what came of it: where it ended, or why it did not; whether another task dominates it."""

    cell: Cell
    key: str
    end: End | None
    error: str | None
    dominated: bool | None = None


def rows(jobs_of_all_cells: list[Job]) -> list[Row]:
    """A row for each cell, in the order of the spec, from the folders of the tasks alone."""
    each = [_row(job) for job in jobs_of_all_cells]
    ends = [(row.cell.env, row.end.point) for row in each if row.end is not None]
    return [row if row.end is None else replace(row, dominated=_dominated(row.cell.env, row.end, ends)) for row in each]


def _row(job: Job) -> Row:
    try:
        if job.finished:
            return Row(job.cell, job.key, _end(directory.read(job.folder)), None)
    except ValueError as error:
        return Row(job.cell, job.key, None, str(error))
    try:
        return Row(job.cell, job.key, None, str(files.read_json(job.note)["message"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Row(job.cell, job.key, None, "it has not been run.")


def _end(finished: directory.FinishedRun) -> End:
    history, M = finished.history, range(len(finished.objectives))
    return End(
        finished.objectives,
        finished.last,
        history.kind,
        tuple(mean(history.returns[:, -1, i]) for i in M),
        tuple(mean(history.weights[:, -1, i]) for i in M),
        mean(history.gap[:, -1]),
        mean(history.regret[:, -1]),
        0 if finished.stopped is None else int((finished.stopped > 0).sum()),
    )


def _dominated(env: str, end: End, ends: list[tuple[str, Any]]) -> bool:
    """Whether another task of the same environment is at least as good in all mean returns, and better in one."""
    mine = end.point
    theirs = [point for name, point in ends if name == env and len(point) == len(mine)]
    return any(bool((point >= mine).all() and (point > mine).any()) for point in theirs)


def as_json(sweep: Sweep, table: list[Row]) -> dict[str, Any]:
    """The table as nested data; it holds no timings, so that equal sweeps give equal bytes."""
    about = {"format": FORMAT, "sweep": sweep.name, "trials": sweep.trials, "axes": list(sweep.axes)}
    return about | {"tasks": [_nested(row) for row in table]}


def as_csv(sweep: Sweep, table: list[Row]) -> bytes:
    """The table, one line for each task; numbers with all their digits, nothing where they are not known."""
    flat = [_flat(sweep, row) for row in table]
    names = dict.fromkeys(name for row in flat for name in row if name != "error")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "error"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue().encode()


def _nested(row: Row) -> dict[str, Any]:
    about: dict[str, Any] = {"task": row.key, "values": row.cell.values, "env": row.cell.env, "seed": row.cell.seed}
    about |= {"status": "failed" if row.end is None else "done", "error": row.error}
    if row.end is None:
        return about
    about |= {"iterations": row.end.iterations, "returns_kind": row.end.kind, "dominated": row.dominated}
    for name, means in (("returns", row.end.returns), ("weights", row.end.weights)):
        about[name] = {objective: vars(one) for objective, one in zip(row.end.objectives, means, strict=True)}
    return about | {"gap": vars(row.end.gap), "regret": vars(row.end.regret), "stopped_trials": row.end.stopped}


def _flat(sweep: Sweep, row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {"task": row.key}
    cells |= {"env": row.cell.env, "seed": row.cell.seed} | {name: _text(row.cell.values[name]) for name in sweep.axes}
    cells |= {"status": "failed" if row.end is None else "done", "trials": sweep.trials}
    if row.end is not None:
        end = row.end
        cells |= {"iterations": end.iterations, "returns_kind": end.kind, "dominated": row.dominated}
        for name, one, weight in zip(end.objectives, end.returns, end.weights, strict=True):
            cells |= {f"return {name}": one.value, f"return {name} low": one.low, f"return {name} high": one.high}
            cells[f"weight {name}"] = weight.value
        cells |= {"gap": end.gap.value, "regret": end.regret.value, "stopped_trials": end.stopped}
    unknown = {name: "" for name, value in cells.items() if isinstance(value, float) and not np.isfinite(value)}
    return cells | unknown | {"error": row.error or ""}


def _text(value: Any) -> Any:
    """A value of an axis in a cell of a table: lists and tables as text."""
    if isinstance(value, Mapping):
        return " ".join(str(_text(part)) for part in value.values())
    return " ".join(str(_text(part)) for part in value) if isinstance(value, list | tuple) else value
