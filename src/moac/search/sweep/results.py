"""What came of a sweep: one row for each cell, in the order of the spec. No clock has touched it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import files
from moac.runs import directory
from moac.search.sweep.running import Job
from moac.search.sweep.spec import Cell, Sweep
from moac.statistics import Mean, mean

FORMAT = 1


@final
@dataclass(frozen=True, eq=False)
class Ended:
    """Where a finished task ended, as means over its trials with 95 % intervals.

    Attributes:
        objectives: their names.
        iterations: T.
        kind: how returns were evaluated.
        returns: of each objective.
        weights: λ_T of each objective.
        gap: exact stationarity gap.
        regret: exact.
        stopped: trials whose update was not finite.
    """

    objectives: tuple[str, ...]
    iterations: int
    kind: str
    returns: tuple[Mean, ...]
    weights: tuple[Mean, ...]
    gap: Mean
    regret: Mean
    stopped: int


@final
@dataclass(frozen=True, eq=False)
class Row:
    """One cell and what came of it: where it ended, or why it did not."""

    cell: Cell
    key: str
    ended: Ended | None
    error: str | None
    dominated: bool | None = None

    @property
    def status(self) -> str:
        """`done` or `failed`."""
        return "failed" if self.ended is None else "done"

    def point(self) -> Float[np.ndarray, " M"]:
        """The mean return of each objective."""
        return np.array([] if self.ended is None else [one.value for one in self.ended.returns])


def rows(sweep: Sweep, jobs: list[Job]) -> list[Row]:
    """All rows, from the folders of the tasks alone."""
    found = [_row(cell, job) for cell, job in zip(sweep.cells, jobs, strict=True)]
    return [_judged(row, [other for other in found if other.cell.env == row.cell.env]) for row in found]


def as_json(sweep: Sweep, found: list[Row]) -> dict[str, Any]:
    """The table as nested data."""
    about = {"format": FORMAT, "sweep": sweep.name, "trials": sweep.trials, "axes": list(sweep.axes)}
    return about | {"tasks": [_json_row(row) for row in found]}


def as_csv(sweep: Sweep, found: list[Row]) -> bytes:
    """The table, one line for each task; numbers with all their digits, nothing where they are not known."""
    flat = [_flat(sweep, row) for row in found]
    names = dict.fromkeys(name for row in flat for name in row if name != "error")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*names, "error"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue().encode()


def _row(cell: Cell, job: Job) -> Row:
    if not job.finished:
        return Row(cell, job.key, None, _reason(job))
    try:
        return Row(cell, job.key, _ended(directory.read(job.folder)), None)
    except ValueError as error:
        return Row(cell, job.key, None, str(error))


def _reason(job: Job) -> str:
    try:
        note = files.read_json(job.note)
        return str(note["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not been run."


def _ended(run: directory.FinishedRun) -> Ended:
    history, M = run.history, range(len(run.objectives))
    return Ended(
        run.objectives,
        run.last,
        history.kind,
        tuple(mean(history.returns[:, -1, i]) for i in M),
        tuple(mean(history.weights[:, -1, i]) for i in M),
        mean(history.gap[:, -1]),
        mean(history.regret[:, -1]),
        0 if run.stopped is None else int((run.stopped > 0).sum()),
    )


def _judged(row: Row, others: list[Row]) -> Row:
    """Whether another task of the same environment is at least as good in all mean returns, and better in one."""
    if row.ended is None:
        return row
    mine = row.point()
    theirs = [other.point() for other in others if other.ended is not None]
    worse = any(bool((point >= mine).all() and (point > mine).any()) for point in theirs if len(point) == len(mine))
    return Row(row.cell, row.key, row.ended, None, worse)


def _json_row(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {"task": row.key, "values": row.cell.values, "env": row.cell.env, "seed": row.cell.seed}
    told |= {"status": row.status, "error": row.error}
    if row.ended is None:
        return told
    ended, names = row.ended, row.ended.objectives
    told |= {"iterations": ended.iterations, "returns_kind": ended.kind, "dominated": row.dominated}
    told |= {"returns": _by_name(names, ended.returns), "weights": _by_name(names, ended.weights)}
    return told | {"gap": vars(ended.gap), "regret": vars(ended.regret), "stopped_trials": ended.stopped}


def _by_name(names: tuple[str, ...], means: tuple[Mean, ...]) -> dict[str, Mapping[str, float]]:
    return {name: vars(one) for name, one in zip(names, means, strict=True)}


def _flat(sweep: Sweep, row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {"task": row.key}
    cells |= {"env": row.cell.env, "seed": row.cell.seed} | {name: _cell(row.cell.values[name]) for name in sweep.axes}
    cells |= {"status": row.status, "trials": sweep.trials}
    if row.ended is not None:
        ended = row.ended
        cells |= {"iterations": ended.iterations, "returns_kind": ended.kind, "dominated": row.dominated}
        for name, one, weight in zip(ended.objectives, ended.returns, ended.weights, strict=True):
            cells |= {f"return {name}": one.value, f"return {name} low": one.low, f"return {name} high": one.high}
            cells[f"weight {name}"] = weight.value
        cells |= {"gap": ended.gap.value, "regret": ended.regret.value, "stopped_trials": ended.stopped}
    known = {
        name: "" if isinstance(value, float) and not np.isfinite(value) else value for name, value in cells.items()
    }
    return known | {"error": row.error or ""}


def _cell(value: Any) -> Any:
    """A value of an axis in a cell of a table: lists and tables as text."""
    if isinstance(value, Mapping):
        return " ".join(str(_cell(part)) for part in value.values())
    return " ".join(str(_cell(part)) for part in value) if isinstance(value, list | tuple) else value
