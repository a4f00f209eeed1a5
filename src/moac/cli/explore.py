"""`moac explore`: policies for many preferences, their Pareto archive, and what they are worth."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import tyro

from moac.choices import did_you_mean
from moac.cli import process
from moac.cli.options import Command, Problem, ShowConfig, check_environment, config_of, config_options, group, option
from moac.config import CHOICES, Config, check_trials, is_choice
from moac.search import EXPLORING

if TYPE_CHECKING:
    from moac.search.archive import Archive
    from moac.search.plan import Plan
    from moac.types import Source

    class ExploreConfig:
        """As `moac train` has them, but for what an exploration varies; GAE, since traps are fewer with it."""
else:
    ExploreConfig = config_options(("weighting", "weights", "entropy"), **EXPLORING)

_LISTED, _NARROW = 25, 4
"""So many policies are printed, and vectors of so many numbers; the report has all."""
Place = Annotated[str, tyro.conf.arg(metavar="ENV", help="An id that `moac envs` lists, or a dataset's folder.")]
Rules = Annotated[
    tuple[str, ...] | None,
    option(f"{{{','.join(CHOICES['weighting'])}}} [...]", "default: fixed and preferred on a model, else fixed"),
]


@final
@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    """Train policies for many preferences at once, and keep those that none dominates: a Pareto archive."""

    env: tyro.conf.Positional[Place]
    problem: Annotated[Problem, group("problem")]
    config: Annotated[ExploreConfig, group("")]
    show_config: ShowConfig = False
    preferences: Annotated[int | None, option("INT", "default: 128 on a model, 16 elsewhere")] = None
    """Preference vectors: a trial of each rule for each."""
    draw: Literal["random", "grid"] = "random"
    """At random on the simplex, with its corners and its centre, or all multiples of 1/k."""
    given: Annotated[str | None, option("FILE|VECTORS", "default: drawn")] = None
    """Preferences of one's own: a file with a vector on each line, or "0.2,0.8;0.5,0.5"."""
    rules: Rules = None
    """How preferences become weights: `fixed` is linear scalarisation; rules without preferences vary the start."""
    entropy: Annotated[
        tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: falling to 0 on a model, else 0")
    ] = None
    """Entropy bonuses, one after the other, each from where the one before it ended; they share the iterations."""
    reference: Annotated[
        tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: below the worst of the front")
    ] = None
    """Reference point of the hypervolume, one number per objective."""
    seed: int = 0
    """Of preferences and trials."""
    out: Annotated[Path | None, option("DIR", "default: runs/ENV-explore")] = None
    """Folder of the exploration; the same command continues what was interrupted."""

    def run(self) -> int:
        """Train, select, measure and print; Ctrl-C leaves a folder that the same command continues."""
        config = self._checked()
        process.use_all_cores()
        from moac import locks, settings
        from moac.cli.console import print_json
        from moac.cli.offline_train import with_behaviour
        from moac.cli.train import show_config
        from moac.envs.make import quiet
        from moac.policies.observations import LogSpec
        from moac.progress import Progress, labelled_progress
        from moac.report.pages import exploration
        from moac.search import explore
        from moac.search import plan as planning

        began, out = time.monotonic(), self._folder()
        if self.rules is not None:
            planning.check_rules(self.rules)
        explore.check_folder(out)
        with quiet():
            problem = self._problem()
            plan = self._plan(config, problem)  # a mistake shows before anything is fitted or trained
            if self.show_config:
                return show_config(plan.config, settings.reasons(problem, config), self)
            with process.continued(f"the same command continues {out}"), locks.folder(out):
                if isinstance(problem.spec.observations, LogSpec):
                    problem = with_behaviour(problem, out, config.hidden)
                    plan = self._plan(config, problem)
                with process.Interrupts() as interrupts, Progress() as progress:
                    runs = labelled_progress(interrupts.check)
                    archive = explore.run(plan, problem, out, runs, progress.show)
                    interrupts.check()
                    exploration.save(archive, out)
        if self.json:
            seconds = time.monotonic() - began
            about = {"seconds": seconds, "run_dir": str(out), "report": str(out / "report.html")}
            print_json(archive.exploration.record() | about)
        else:
            _print(archive, out)
        return 0

    def _checked(self) -> Config:
        """The configuration that all rules share, with all that can be checked before JAX is imported."""
        if not Path(self.env).is_dir():
            check_environment(self.env, ", or a dataset's folder")
        check_trials(1 if self.preferences is None else self.preferences, self.seed)
        known = CHOICES["weighting"]
        for rule in self.rules or ():
            if not is_choice("weighting", rule):
                near = did_you_mean(rule, known)
                raise ValueError(f"`rules` must be some of {', '.join(known)}, got {rule!r}.{near}")
        if self.given is not None and self.preferences is not None:
            raise ValueError("`preferences` must be left out with --given: those given are all there are.")
        for entropy in self.entropy or ():
            Config(entropy=entropy)
        return config_of(self.config, self.problem.setting, self.problem.discount)

    def _folder(self) -> Path:
        name = Path(self.env).name if Path(self.env).is_dir() else self.env
        return self.out or Path("runs") / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-explore"

    def _problem(self) -> Source:
        """A model or an environment by its id, or the log of a folder."""
        from moac.logs.dataset import LoggedDataset
        from moac.runs import problems

        if Path(self.env).is_dir():
            return LoggedDataset.from_parquet(Path(self.env))
        problem = problems.problem_of(self.env, **self.problem.stepping)
        if not problem.compiled:
            process.dispatch_synchronously()
        return problem

    def _plan(self, config: Config, problem: Source) -> Plan:
        from moac.search.plan import Options, Plan

        p = self.preferences if self.given is None else self.given
        options = Options(config, p, self.draw, self.rules, self.entropy, self.reference, self.seed)
        return Plan.of(options, problem, self.env)


def _print(archive: Archive, out: Path) -> None:
    """The archive, and the results and facts of the report."""
    from moac.cli.console import print_lines, print_paths, print_table, print_tables
    from moac.report.numbers import text
    from moac.report.pages import exploration

    explored, page = archive.exploration, exploration.of_folder(out)
    vectors = {"p": archive.preferences, "λ": archive.weights} if len(explored.objectives) <= _NARROW else {}
    rows: list[list[Any]] = []
    for k in range(min(len(archive), _LISTED)):
        half = (archive.high[k] - archive.low[k]) / 2
        values = [
            f"{v:.4g} ± {h:.2g}" if h > 0 else f"{v + 0.0:.4f}" for v, h in zip(archive.points[k], half, strict=True)
        ]
        shown = [f"({', '.join(f'{value + 0.0:.3g}' for value in each[k])})" for each in vectors.values()]
        rows.append([k, *values, *shown, archive.rules[k]])
    count = f"{len(archive)} that none dominates, of {len(explored.candidates)}; values: {archive.kind}"
    print_table(f"{explored.plan.env}: {count}", ["trial", *explored.objectives, *vectors, "rule"], rows)
    print_tables(page.results)
    print_lines([page.summary, *(f"{name}: {text(value)}" for name, value in page.facts)])
    print_paths(report=out / "report.html", explore=out / "explore.json", next=f"moac.load({str(out)!r}, trial=0)")
