"""`moac sweep`: run what has not finished, then one table, figures and a report of everything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import tyro

from moac.cli import process
from moac.cli.options import Address, Command, ExecutorName, Workers, option

if TYPE_CHECKING:
    from moac.search import sweep_spec
    from moac.search.sweep import Row, Swept

_FAILED, _LISTED = 1, 20
SpecPath = Annotated[Path, tyro.conf.arg(metavar="SPEC", help="A TOML file that says what varies: docs/sweeps.md.")]


@final
@dataclass(frozen=True, kw_only=True)
class Sweep(Command):
    """Train over a grid or at random settings, methods, environments and seeds; a second call continues."""

    spec: tyro.conf.Positional[SpecPath]
    executor: ExecutorName = "process"
    """One task after the other; processes of this machine; or Ray."""
    workers: Workers = None
    """Tasks at a time, one core each."""
    address: Address = None
    """Of a running Ray cluster, or auto."""
    timeout: Annotated[float | None, option("SECONDS", "default: none")] = None
    """Limit of one task's time."""
    memory: Annotated[str | None, option("SIZE", "default: none")] = None
    """Limit of one task's memory, such as 2GB."""
    retries: int = 2
    """How often a task is tried again whose process or machine was lost."""
    out: Annotated[Path | None, option("DIR", "default: runs/SPEC")] = None
    """Folder of the sweep; on several machines one that they share."""

    def run(self) -> int:
        """Exit code 0 where all tasks have finished, 1 where some failed."""
        process.use_one_core()
        from moac import files
        from moac.cli.console import print_json
        from moac.machine import size
        from moac.report.pages import sweep as page
        from moac.runs import executors
        from moac.search import sweep_spec

        began, sweep = time.monotonic(), sweep_spec.load(self.spec)
        memory = None if self.memory is None else size("memory", self.memory)
        limits = executors.Limits(self.timeout, memory, self.retries)
        opened = executors.opened(self.executor, workers=self.workers, address=self.address, limits=limits)
        out = (Path("runs") / sweep.name if self.out is None else self.out).absolute()
        files.check_folder("out", out)
        with process.continued(f"the same command continues {out}"), opened as executor:
            swept, kept = _run(sweep, out, executor)
        page.save(swept, out)
        ended, report = swept.rows, out / "report.html"
        failed = [row for row in ended if row.end is None]
        if self.json:
            print_json({
                "sweep": self.spec.stem, "executor": self.executor, "tasks": len(ended),
                "finished": len(ended) - len(failed), "failed": len(failed), "finished_before": kept,
                "failures": [{"task": row.key, "values": row.cell.values, "error": row.error} for row in failed],
                "results": str(out / "results.csv"), "report": str(report), "out": str(out),
                "seconds": time.monotonic() - began,
            })  # fmt: skip
        else:
            _print(sweep, ended, out)
        return _FAILED if failed else 0


def _run(sweep: sweep_spec.Sweep, out: Path, executor: Any) -> tuple[Swept, int]:
    """What came of the sweep, and how many had finished before; the others are run, and shown as they end."""
    from moac.progress import Progress
    from moac.runs import problems
    from moac.search import sweep as sweeping

    jobs = sweeping.jobs(sweep, out, problems.problem_of_task)
    keyed = {job.key: job for job in jobs}
    kept = done = sum(job.finished for job in keyed.values())
    with Progress() as progress:

        def ended(job: Any, failure: Any) -> None:
            nonlocal done
            done += 1
            if failure is not None:
                progress.say(f"failed: {job.cell.label}: {failure.message}")
            progress.show("tasks", done, len(keyed))

        if kept:
            progress.say(f"{kept} of {len(keyed)} tasks have finished before")
        progress.show("tasks", done, len(keyed))
        rows = sweeping.run(jobs, executor, ended)
    return sweeping.Swept(sweep, tuple(rows)), kept


def _print(sweep: sweep_spec.Sweep, rows: Sequence[Row], out: Path) -> None:
    """The first rows of each environment's table; the report has all."""
    from moac.cli.console import print_lines, print_paths, print_table
    from moac.report.pages import sweep as page

    for env in dict.fromkeys(row.cell.env for row in rows):
        table = page.ends([row for row in rows if row.cell.env == env], env, sweep, short=True)
        if table is not None:
            print_table(table.title, table.header, table.rows[:_LISTED])
            print_lines([f"… and {len(table.rows) - _LISTED} more"] if len(table.rows) > _LISTED else [])
    failed = sum(row.end is None for row in rows)
    if failed:
        print_lines([f"{failed} of {len(rows)} tasks failed; the same command tries them again"])
    print_paths(results=out / "results.csv", report=out / "report.html")
