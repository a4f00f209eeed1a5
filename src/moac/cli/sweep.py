"""`moac sweep`: run what has not finished, then one table, figures and a report of everything."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.cli import process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import Address, Answer, Command, ExecutorName, Workers, option
from moac.progress import Progress, say

if TYPE_CHECKING:
    from moac.search.sweep import Swept

_FAILED, _LISTED = 1, 20
SpecPath = Annotated[Path, tyro.conf.arg(metavar="SPEC", help="A TOML file that says what varies: docs/sweeps.md.")]


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

    def answer(self) -> Answer:
        """Exit code 0 where all tasks have finished, 1 where some failed."""
        self.spec.stat()  # a wrong path shows before JAX is imported
        process.use_one_core()
        from moac import files
        from moac.runs import executors
        from moac.search import sweep_spec
        from moac.tasks import size

        began, sweep = time.monotonic(), sweep_spec.load(self.spec)
        memory = None if self.memory is None else size("memory", self.memory)
        limits = executors.Limits(self.timeout, memory, self.retries)
        opened = executors.opened(self.executor, workers=self.workers, address=self.address, limits=limits)
        out = (Path("runs") / sweep.name if self.out is None else self.out).absolute()
        files.check_folder("out", out)
        if (out / "results.csv").exists():
            say(f"{out} holds a sweep: tasks that have finished are kept, tables and report are replaced.")
        ended: list[Any] = []
        with process.continued(f"the same command continues {out}"), opened as executor, Progress() as progress:

            def show(job: Any, failure: Any) -> None:
                ended.append(job)
                if failure is not None:
                    progress.say(f"failed: {job.cell.label}: {failure.message}")
                progress.show("tasks", len(ended), len(sweep.cells))

            swept = moac.sweep(self.spec, out, executor, show)
        keys = {row.key for row in swept.rows}
        if len(ended) < len(keys):
            say(f"{len(keys) - len(ended)} of {len(keys)} tasks have finished before")
        failures = [{"task": row.key, "values": row.cell.values, "error": row.error} for row in swept.failed]
        record = {
            "sweep": self.spec.stem, "executor": self.executor, "tasks": len(swept.rows),
            "finished": len(swept.rows) - len(failures), "failed": len(failures),
            "finished_before": len(keys) - len(ended), "failures": failures,
            "results": str(out / "results.csv"), "report": str(out / "report.html"), "out": str(out),
            "seconds": time.monotonic() - began,
        }  # fmt: skip
        return Answer(record, lambda: _print(swept, out), _FAILED if swept.failed else 0)


def _print(swept: Swept, out: Path) -> None:
    """The first rows of each environment's table; the report has all."""
    from moac.report.pages import sweep as page

    for env in dict.fromkeys(row.cell.env for row in swept.rows):
        table = page.ends([row for row in swept.rows if row.cell.env == env], env, swept.spec, short=True)
        if table is not None:
            print_table(table.title, table.header, table.rows[:_LISTED])
            print_lines([f"… and {len(table.rows) - _LISTED} more"] if len(table.rows) > _LISTED else [])
    if swept.failed:
        print_lines([f"{len(swept.failed)} of {len(swept.rows)} tasks failed; the same command tries them again"])
    print_paths(results=out / "results.csv", report=out / "report.html")
