"""`moac explore`: policies for many preferences, their Pareto archive, and what they are worth."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

from rich.table import Table

from moac import files, locks, settings
from moac.cli import devices, explore_tables, interrupts, report
from moac.cli.config_options import Stepping
from moac.cli.console import plain
from moac.cli.interrupts import Interrupts
from moac.cli.problems import problem_of
from moac.cli.stages import Stages
from moac.cli.watched import Watched
from moac.config import Config
from moac.envs.quiet import quiet
from moac.momdp import FiniteMOMDP, library
from moac.report.pages import exploration as page
from moac.search.explore import candidates, exact, finding, folder, preferences, results, running
from moac.search.explore.results import Results
from moac.search.explore.running import Order
from moac.types import Source

_MANY, _FEW = 128, 16
_ITERATIONS = 6_000


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
        running.check_rules(wanted.rules)
    folder.check(out)
    with quiet():
        problem = _problem(wanted)
        order = _order(wanted, problem)  # a mistake shows before anything is fitted or trained
        try:
            with locks.folder(out):
                if problem.spec.logged:
                    problem = _with_behaviour(problem, out, wanted.config.hidden)
                    order = _order(wanted, problem)
                with Interrupts() as asked:
                    found = _explored(wanted, order, problem, out, asked)
                    path = report.write(out)
        except KeyboardInterrupt as error:
            sys.stderr.write(f"moac: stopped; the same command continues {out}\n")
            return interrupts.code(error)
    if wanted.json:
        told = results.record(found) | {"seconds": time.monotonic() - began, "run_dir": str(out), "report": str(path)}
        sys.stdout.write(json.dumps(files.finite(told)) + "\n")
    else:
        _tell(found, out, time.monotonic() - began)
    return 0


def _explored(wanted: Wanted, order: Order, problem: Source, out: Path, asked: Interrupts) -> Results:
    outcomes = running.run(order, problem, out, partial(Watched, asked))
    valued = candidates.of(outcomes)
    with Stages() as stages:
        judged = finding.found(valued, order, stages.show)
    asked.check()
    yardstick = exact.of(_model(order.env, problem), settings.Settings.of(order.config).setting)
    found = results.of(order, outcomes, judged, yardstick, wanted.reference)
    folder.write(out, finding.merged(valued, found.archive), found.archive, order.env, results.record(found))
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


def _order(wanted: Wanted, problem: Source) -> Order:
    simple = problem.compiled and not problem.spec.logged
    config = wanted.config if not problem.spec.logged else replace(wanted.config, gae=0.0)  # rows are drawn one by one
    if simple and config.num_iterations is None:
        config = replace(config, num_iterations=_ITERATIONS)
    rules = running.default_rules(problem) if wanted.rules is None else wanted.rules
    p = _preferences(wanted, problem.spec.num_objectives, _MANY if simple else _FEW)
    entropies = running.default_entropies(problem) if wanted.entropies is None else wanted.entropies
    env = problem.spec.name if problem.spec.logged else wanted.env
    if wanted.reference is not None and len(wanted.reference) != problem.spec.num_objectives:
        right = f"one number per objective ({problem.spec.num_objectives})"
        raise ValueError(f"`reference` must hold {right}, got {len(wanted.reference)}.")
    order = Order(env, wanted.seed, settings.complete(config, problem.spec), rules, entropies, p)
    for rule in order.rules:
        running.stages(order, rule)  # which checks
    return order


def _preferences(wanted: Wanted, num_objectives: int, usual: int) -> Any:
    how, count, given = wanted.draw
    if given is not None:
        return preferences.given(given, num_objectives)
    number = usual if count is None else count
    if how == "grid":
        return preferences.grid(number, num_objectives)
    return preferences.random(number, num_objectives, wanted.seed)


def _model(env: str, problem: Source) -> FiniteMOMDP | None:
    """The exact model, also where the real environment was stepped."""
    return problem if isinstance(problem, FiniteMOMDP) else library.for_environment(env)


def _out(wanted: Wanted) -> Path:
    if wanted.out is not None:
        return wanted.out
    name = Path(wanted.env).name if Path(wanted.env).is_dir() else wanted.env
    return Path("runs") / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-explore"


def _tell(found: Results, out: Path, seconds: float) -> None:
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
