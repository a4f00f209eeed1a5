"""`moac sweep`: run what has not finished, then one table, figures and a report of everything."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, final

from rich.table import Table

from moac import files
from moac.cli import interrupts, report
from moac.cli.console import plain
from moac.cli.problems import problem_stepped
from moac.cli.stages import Stages
from moac.cli.sweep_options import Sweep
from moac.machine import size
from moac.report.pages import sweep as page
from moac.runs import executors
from moac.search import sweep as sweeping
from moac.search import sweep_spec
from moac.search.sweep import Job, Row

_FAILED, _LISTED = 1, 20


def run(command: Sweep) -> int:
    """Exit code 0 where all tasks have finished, 1 where some failed."""
    began, sweep = time.monotonic(), sweep_spec.load(command.spec)
    memory = None if command.memory is None else size("memory", command.memory)
    limits = executors.Limits(command.timeout, memory, command.retries)
    opened = executors.opened(command.executor, workers=command.workers, address=command.address, limits=limits)
    out = (Path("runs") / sweep.name if command.out is None else command.out).absolute()
    files.check_folder("out", out)
    try:
        with opened as executor:
            jobs = sweeping.jobs(sweep, out, problem_stepped)
            kept = sum(job.finished for job in {job.key: job for job in jobs}.values())
            with _Watch(jobs, kept) as watch:
                sweeping.run(jobs, executor, watch.ended)
    except KeyboardInterrupt as error:
        sys.stderr.write(f"moac: stopped; the same command continues {out}\n")
        return interrupts.code(error)
    found = sweeping.rows(jobs)
    page.write(sweep, found, out)
    told = _told(command, found, (out, report.write(out)), kept) | {"seconds": time.monotonic() - began}
    if command.json:
        sys.stdout.write(json.dumps(files.finite(told)) + "\n")
    else:
        _print(sweep, found, out)
    return _FAILED if told["failed"] else 0


@final
class _Watch:
    """How many tasks have ended, and why one failed, as they end."""

    def __init__(self, jobs: list[Job], kept: int) -> None:
        self._total, self._done = len({job.key for job in jobs}), kept
        self._stages = Stages()

    def __enter__(self) -> _Watch:
        self._stages.__enter__()
        if self._done:
            sys.stderr.write(f"{self._done} of {self._total} tasks have finished before\n")
        self._stages.show("tasks", self._done, self._total)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stages.__exit__(*error)

    def ended(self, job: Job, failure: executors.Failure | None) -> None:
        """One more."""
        self._done += 1
        if failure is not None:
            self._stages.say(f"failed: {job.cell.label}: {failure.message}")
        self._stages.show("tasks", self._done, self._total)


def _told(command: Sweep, found: list[Row], where: tuple[Path, Path], kept: int) -> dict[str, Any]:
    failed = [row for row in found if row.end is None]
    out, page_path = where
    return {
        "sweep": command.spec.stem,
        "executor": command.executor,
        "tasks": len(found),
        "finished": len(found) - len(failed),
        "failed": len(failed),
        "finished_before": kept,
        "failures": [{"task": row.key, "values": row.cell.values, "error": row.error} for row in failed],
        "results": str(out / "results.csv"),
        "report": str(page_path),
        "out": str(out),
    }


def _print(sweep: sweep_spec.Sweep, found: list[Row], out: Path) -> None:
    console = plain(110)
    for env in dict.fromkeys(row.cell.env for row in found):
        table = page.ends([row for row in found if row.cell.env == env], env, sweep, short=True)
        if table is not None:
            console.print(_shown(table.title, table.header, table.rows))
    failed = sum(row.end is None for row in found)
    if failed:
        console.print(f"{failed} of {len(found)} tasks failed; the same command tries them again", highlight=False)
    for name in ("results.csv", "report.html"):
        console.print(f"{name.split('.')[0]}: {out / name}", highlight=False, soft_wrap=True)


def _shown(title: str, header: tuple[str, ...], rows: tuple[tuple[Any, ...], ...]) -> Table:
    """The first rows; the report has all."""
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name)
    for row in rows[:_LISTED]:
        table.add_row(*(("yes" if cell else "no") if isinstance(cell, bool) else str(cell) for cell in row))
    if len(rows) > _LISTED:
        table.caption = f"… and {len(rows) - _LISTED} more"
    return table
