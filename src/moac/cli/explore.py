"""`moac explore`: policies for many preferences, their Pareto archive, and what they are worth."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from rich.table import Table

from moac import files, locks
from moac.cli import devices, explore_tables, interrupts, report
from moac.cli.config_options import Stepping
from moac.cli.console import plain
from moac.cli.interrupts import Interrupts
from moac.cli.problems import problem_of
from moac.cli.stages import Stages
from moac.cli.watched import Watched
from moac.config import Config
from moac.envs.quiet import quiet
from moac.report.pages import exploration as page
from moac.search import explore
from moac.types import Source


@final
@dataclass(frozen=True)
class Wanted:
    """What `moac explore` was asked to do; what is None is by the problem."""

    env: str
    config: Config
    draw: tuple[str, int | None, str | None]
    rules: tuple[str, ...] | None
    entropies: tuple[float, ...] | None
    reference: tuple[float, ...] | None
    seed: int
    out: Path | None
    stepping: Stepping
    json: bool


def run(wanted: Wanted) -> int:
    """Train, select, measure and tell; Ctrl-C leaves a folder that the same command continues."""
    began, out = time.monotonic(), _out(wanted)
    if wanted.rules is not None:
        explore.check_rules(wanted.rules)
    explore.check_folder(out)
    with quiet():
        problem = _problem(wanted)
        plan = _plan(wanted, problem)  # a mistake shows before anything is fitted or trained
        try:
            with locks.folder(out):
                if problem.spec.logged:
                    problem = _with_behaviour(problem, out, wanted.config.hidden)
                    plan = _plan(wanted, problem)
                with Interrupts() as asked:
                    found = _explored(plan, problem, out, asked)
                    path = report.write(out)
        except KeyboardInterrupt as error:
            sys.stderr.write(f"moac: stopped; the same command continues {out}\n")
            return interrupts.code(error)
    if wanted.json:
        told = found.record() | {"seconds": time.monotonic() - began, "run_dir": str(out), "report": str(path)}
        sys.stdout.write(json.dumps(files.finite(told)) + "\n")
    else:
        _tell(found, out, time.monotonic() - began)
    return 0


def _explored(plan: explore.Plan, problem: Source, out: Path, asked: Interrupts) -> explore.Explored:
    with Stages() as stages:
        found = explore.run(plan, problem, out, partial(Watched, asked), stages.show)
    asked.check()
    found.write(out)
    page.write(found, out)
    return found


def _problem(wanted: Wanted) -> Source:
    """A model or an environment by its id, or the log of a folder."""
    if not Path(wanted.env).is_dir():
        problem = problem_of(wanted.env, wanted.stepping)
        if not problem.compiled:
            devices.for_hosted()
        return problem
    from moac.logs.dataset import LoggedDataset

    return LoggedDataset.from_parquet(Path(wanted.env))


def _with_behaviour(dataset: Any, out: Path, hidden: tuple[int, ...] | None) -> Source:
    from moac.cli import offline_train

    return offline_train.with_behaviour(dataset, out, hidden)


def _plan(wanted: Wanted, problem: Source) -> explore.Plan:
    how, count, given = wanted.draw
    options = explore.Options(
        wanted.config,
        count if given is None else given,
        "grid" if how == "grid" else "random",
        wanted.rules,
        wanted.entropies,
        wanted.reference,
        wanted.seed,
    )
    return explore.Plan.of(options, problem, wanted.env)


def _out(wanted: Wanted) -> Path:
    if wanted.out is not None:
        return wanted.out
    name = Path(wanted.env).name if Path(wanted.env).is_dir() else wanted.env
    return Path("runs") / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-explore"


def _tell(found: explore.Explored, out: Path, seconds: float) -> None:
    console = plain(110)
    for title, header, rows in (explore_tables.archive(found), explore_tables.rules(found)):
        table = Table(title=title, title_justify="left")
        for name in header:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in explore_tables.sentences(found, seconds):
        console.print(line, highlight=False)
    for name in ("report.html", "explore.json"):
        console.print(f"{name.split('.')[0]}: {out / name}", highlight=False, soft_wrap=True)
    console.print(f"next: moac.load({str(out)!r}).archive.policy(0)", highlight=False, soft_wrap=True)
