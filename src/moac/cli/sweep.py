"""`moac sweep`, `moac reproduce` and `moac offline compare`: many runs, which a second call continues; one report."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

import moac
from moac.choices import COUNT, check_fields, counted
from moac.cli import process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import Address, Answer, Command, DataPath, ExecutorName, Folder, Workers, option
from moac.config import check_trials
from moac.progress import Progress, labelled_progress, say

if TYPE_CHECKING:
    from moac.search.sweep import Swept

_FAILED, _LISTED = 1, 20
_COMPAT_STEPS = 500  # of each learner, where the published ones took 240,000 to 1,000,000
SpecPath = Annotated[Path, tyro.conf.arg(metavar="SPEC", help="A TOML file: see moac docs sweeps.")]


@dataclass(frozen=True, kw_only=True)
class Sweep(Command):
    """Train over a grid or random draws of settings, methods, environments and seeds; repeat to continue."""

    spec: tyro.conf.Positional[SpecPath]
    executor: ExecutorName = "process"
    """Run tasks one after the other, in processes of this machine, or on Ray."""
    workers: Workers = None
    """Tasks at a time, one core each."""
    address: Address = None
    timeout: Annotated[float | None, option("SECONDS", "default: none")] = None
    """Time limit of a task."""
    memory: Annotated[str | None, option("SIZE", "default: none")] = None
    """Memory limit of a task, such as 2GB."""
    retries: int = 2
    """How often a task is repeated after its process or machine was lost."""
    out: Annotated[Path | None, option("DIR", "default: runs/SPEC")] = None
    """Output folder; several machines must share it."""

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
            say(f"{out} holds a sweep: finished tasks are reused, tables and report are replaced.")
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
            say(f"{len(keys) - len(ended)} of {counted(len(keys), 'task')} had finished before")
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
        tasks = f"{len(swept.failed)} of {counted(len(swept.rows), 'task')}"
        print_lines([f"{tasks} failed; repeat the command to try them again"])
    print_paths(results=out / "results.csv", report=out / "report.html")


def studies() -> Any:
    """The package of studies, found by its entry point: the library itself does not import it."""
    for point in entry_points(group="moac.studies"):
        return point.load()
    raise ValueError("the package moac_studies is missing: reinstall moac, which includes it.")


def _installed_names() -> str:
    """Names of the studies, for the help; none where they are not installed."""
    return "".join(f"{name}, " for point in entry_points(group="moac.studies") for name in point.load().names())


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Run an experiment of the paper, or one of ours, and write its report; repeat to continue."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME", help=f"{_installed_names()}or all.")]]
    quick: bool = False
    """A smaller run for a first look."""
    out: Annotated[Path | None, option("DIR", "default: runs/NAME")] = None
    """Output folder."""

    def answer(self) -> Answer:
        """Run one experiment, or all of them."""
        process.use_all_cores()
        installed = studies()
        chosen = installed.names() if self.name == "all" else (self.name,)
        root, done = Path("runs") if self.out is None else self.out, list[Mapping[str, Any]]()
        for experiment in [installed.load(name, self.quick) for name in chosen]:
            folder = root / experiment.name if self.out is None or self.name == "all" else root
            concluded = _carried_out(experiment, folder, labelled_progress())
            done.append(concluded.record)
            if not self.json:
                concluded.show()
        return Answer(done[0] if len(done) == 1 else {"experiments": done}, lambda: None)


def _carried_out(experiment: Any, folder: Path, show: Any) -> Answer:
    """Run an experiment in its folder and write its report; the verdicts, as JSON and as lines."""
    from moac import files, locks
    from moac.report import pages
    from moac.report.numbers import typeset
    from moac.report.pages.experiment import of_experiment

    files.check_folder("out", folder)
    with process.continued(f"the same command continues {folder}"), locks.folder(folder):
        if experiment.quick:
            say(f"{experiment.name}: a smaller run for a first look (--quick)")
        began = time.monotonic()
        studies().run(experiment, folder, show, say)
        claims, report = of_experiment(folder).claims, pages.write(folder)
    record = {
        "experiment": experiment.name,
        "quick": experiment.quick,
        "seconds": time.monotonic() - began,
        "claims": [{"claim": c.claim, "verdict": c.verdict, "measured": c.measured} for c in claims],
        "report": str(report),
    }
    lines = [f"[{claim.verdict}] {claim.claim}\n    {typeset(claim.measured)}\n" for claim in claims]
    return Answer(record, lambda: sys.stdout.write("".join([*lines, f"report: {report}\n"])))


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Compare PDPG, TSCAC, MOAC with its ablations and baselines that are not personalised, on a dataset."""

    data: tyro.conf.Positional[DataPath]
    trials: Annotated[int | None, option("INT", "default: 2")] = None
    """Training seeds of each setting of each method."""
    iterations: Annotated[int | None, option("INT", "default: 1000; 50 with --quick")] = None
    """Training steps of each policy."""
    protocol: Literal["sound", "tscac-compat"] = "sound"
    """`tscac-compat` is the published protocol with its faults, each named; it takes --iterations and --seed only."""
    feature: Annotated[str | None, option("NAME", "default: duration, if items have it")] = None
    """Item feature of the baseline that ranks by one feature; a minus before it reverses the order."""
    test: bool = False
    """Evaluate the settings that validation users chose on test users, once; it is recorded in the access log."""
    quick: bool = False
    """A smaller run for a first look."""
    seed: int = 0
    """Random seed of all methods."""
    out: Folder
    """Output folder; repeating the command continues an interrupted comparison."""

    def answer(self) -> Answer:
        """Compare, and write the report."""
        check_trials(1 if self.trials is None else self.trials, self.seed)
        out = self.out
        check_fields(self, {"iterations": COUNT})
        process.use_all_cores()
        if self.protocol == "tscac-compat":
            return self._compat(out)
        concluded = _carried_out(studies().comparison_of(self.data, self), out, None)
        return Answer({**concluded.record, "data": str(self.data)}, concluded.show)

    def _compat(self, out: Path) -> Answer:
        """The published protocol on the rows at hand; its table, and every fault of it."""
        from moac import files

        if self.trials is not None or self.feature is not None or self.test or self.quick:
            raise ValueError("`--protocol tscac-compat` takes --iterations and --seed only, got another.")
        files.check_folder("out", out)
        table = studies().published_protocol(self.data, self.iterations or _COMPAT_STEPS, self.seed)
        with files.making(out):
            files.write_json(out / "tscac-compat.json", table.as_dict())
            files.write_bytes(out / "tscac-compat.txt", f"{table}\n".encode())
        return Answer(table.as_dict(), lambda: sys.stdout.write(f"{table}\n"))
