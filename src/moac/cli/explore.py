"""`moac explore` and `moac choose`: policies for many preferences, their Pareto archive, and the one that fits."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

import moac
from moac.choices import counted
from moac.cli import options, process
from moac.cli.console import print_lines, print_paths, print_table, print_tables
from moac.cli.options import Answer, Command, RunPath, config_of, group, option
from moac.cli.train import config_shown
from moac.config import CHOICES, Config, check_trials
from moac.progress import say
from moac.search import CONDITIONED, EXPLORING, GROWTH

if TYPE_CHECKING:
    from moac.search.archive import Archive, Choice
    from moac.types import Source

    class ExploreConfig:
        """As `moac train` has them, but for what an exploration varies; GAE, since traps are fewer with it."""
else:
    _FILLED = {
        "gae": "0.95; 0 on logs",
        "num_evaluations": f"25, shared by the stages of entropy; at most {GROWTH} with conditioned",
        "num_iterations": "6000 on models, 200 with ppo, else 2000; shared by the stages of entropy",
        "learner": "ppo with conditioned, else paper",
        "evaluation_share": "0.5",
    }
    ExploreConfig = options.config_options(
        ("weighting", "weights", "entropy", "conditioned"),
        {"features": [one for one in CHOICES["features"] if one != "plain"]},  # a log has no others to choose from
        options.DEFAULTS | _FILLED,
        **EXPLORING,
    )

_LISTED, _NARROW = 25, 4  # so many policies are printed, and vectors of so many numbers; the report has all
_NOTHING_CHOSEN = 1
_RULES = (CONDITIONED, *CHOICES["weighting"])
_ENV = "An id listed by moac envs, package.module:Id, or the folder of a dataset."
Place = Annotated[str, tyro.conf.arg(metavar="ENV", help=_ENV)]
Rules = Annotated[
    tuple[str, ...] | None,
    option(f"{{{','.join(_RULES)}}} [...]", "default: conditioned; on models fixed and preferred, on logs fixed"),
]


@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    """Train policies for many preferences at once and keep the non-dominated ones: a Pareto archive."""

    env: tyro.conf.Positional[Place]
    problem: Annotated[options.Problem, group("problem")]
    config: Annotated[ExploreConfig, group("")]
    show_config: options.ShowConfig = False
    preferences: Annotated[
        int | str | None, option("INT|FILE|VECTORS", "default: 128 on models, 36 with conditioned, else 16")
    ] = None
    """Number of preferences: each rule trains one trial for each, and one network is evaluated at all of them; or your
    own: a file with a vector on each line, or "0.2,0.8;0.5,0.5"."""
    draw: Annotated[Literal["random", "grid"] | None, option("{random,grid}", "default: grid with conditioned")] = None
    """Preferences at random on the simplex, with its corners and centre, or on a grid of multiples of 1/k."""
    episodes: int = 100
    """New episodes of the real environment to evaluate each policy."""
    rules: Rules = None
    """How preferences become weights: `conditioned` is one network for all, `fixed` is linear scalarisation with one
    policy for each; rules that take no preference start from different weights."""
    entropy: Annotated[
        tuple[float, ...] | None, option(options.FLOATS, "default: stages that fall to 0 on models, else 0")
    ] = None
    """Entropy coefficients of successive stages, each starting from the last; they share the iterations."""
    reference: options.Reference = None
    steps: Annotated[int | None, option("INT", "default: set by --iterations")] = None
    """Environment steps of each rule, all trials together, instead of --iterations."""
    seed: int = 0
    """Random seed of preferences and trials."""
    out: Annotated[Path | None, option("DIR", "default: runs/ENV-explore")] = None
    """Output folder; repeating the command continues an interrupted exploration."""

    def answer(self) -> Answer:
        """Train, select, measure and print; Ctrl-C leaves a folder that the same command continues."""
        config, began, logged = self._checked(), time.monotonic(), Path(self.env).is_dir()
        name = Path(self.env).name if logged else self.env
        out = self.out or Path("runs") / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-explore"
        process.use_all_cores()
        from moac import default_config
        from moac.runs import problems

        source = moac.api.source_of(self.env) if logged else problems.problem_of(self.env, **self.problem.stepping)
        if self.show_config:
            return config_shown(self._shared(config, source), default_config.reasons(source, config))
        if not source.compiled:
            process.dispatch_synchronously()
        if (out / "explore.json").exists():
            say(f"{out} holds an exploration: finished runs are reused, archive and report are replaced.")
        with process.continued(f"the same command continues {out}"), process.Interrupts() as interrupts:
            archive = moac.explore(
                source, config, steps=self.steps, seed=self.seed, draw=self.draw, rules=self.rules, out=out,
                episodes=self.episodes, preferences=self.preferences, entropies=self.entropy, reference=self.reference,
                progress=True, check=interrupts.check,
            )  # fmt: skip
        about = {"seconds": time.monotonic() - began, "run_dir": str(out), "report": str(out / "report.html")}
        return Answer(archive.exploration.record() | about, lambda: _print(archive, out))

    def _shared(self, config: Config, source: Source) -> Config:
        """The configuration of all runs, with the share of evaluations that the option stands for."""
        from moac.search import plan

        chosen = (self.preferences, self.draw, self.rules, self.entropy, self.reference)
        planned = plan.Plan.of(plan.Options(config, *chosen, self.seed, self.steps, self.episodes), source)
        return replace(planned.config, evaluation_share=planned.evaluation_share)

    def _checked(self) -> Config:
        """The configuration that all rules share, with all that can be checked before JAX is imported."""
        if not Path(self.env).is_dir():
            options.check_environment(self.env, ", or a dataset's folder")
        check_trials(1, self.seed)
        return config_of(self.config, self.problem.setting, self.problem.discount)


def _print(archive: Archive, out: Path) -> None:
    """The archive, and the results and facts of the report."""
    from moac.report.numbers import text
    from moac.report.pages import exploration

    explored, page = archive.exploration, exploration.of_folder(out)
    one = CONDITIONED in archive.rules
    vectors = {"p": archive.preferences} | ({} if one else {"λ": archive.weights})
    vectors = vectors if len(explored.objectives) <= _NARROW else {}
    rows: list[list[Any]] = []
    for k in range(min(len(archive), _LISTED)):
        pairs = zip(archive.points[k], (archive.high[k] - archive.low[k]) / 2, strict=True)
        values = [f"{v:.4g} ± {half:.2g}" if half > 1e-12 * abs(v) else f"{v + 0.0:.4g}" for v, half in pairs]
        shown = [f"({', '.join(f'{value + 0.0:.3g}' for value in each[k])})" for each in vectors.values()]
        rows.append([k, *values, *shown, *([] if one else [archive.rules[k]])])
    first, last = ("policy", ()) if one else ("trial", ("rule",))
    count = f"{len(archive)} non-dominated of {counted(len(explored.candidates), 'policy')}; values: {archive.kind}"
    print_table(f"{explored.plan.env}: {count}", [first, *explored.objectives, *vectors, *last], rows)
    print_tables(page.results)
    print_lines([page.summary, *(f"{name}: {text(value)}" for name, value in page.facts)])
    load = exploration.loading(out, archive.record(0), 0)
    print_paths(report=out / "report.html", numbers=out / "explore.json", load=load)
    names = explored.objectives
    floor = f"{names[0]}={_floor(archive)}"
    print_paths(next=shlex.join(["moac", "choose", str(out), "--protect", floor, "--prefer", names[-1]]))


def _floor(archive: Archive) -> str:
    """A floor on the first objective that half of the policies keep, with few digits where they keep it so too."""
    import numpy as np

    low = np.where(np.isnan(archive.low), archive.points, archive.low)[:, 0]
    least = float(np.median(low))
    short = f"{least:.3g}"
    return short if float(short) <= least else repr(least)


@dataclass(frozen=True, kw_only=True)
class Choose(Command):
    """Choose a policy of an exploration: respect floors on some objectives, and maximise the others."""

    run_path: tyro.conf.Positional[RunPath]
    protect: Annotated[tuple[str, ...], option("NAME=LEAST [...]", "default: none")] = ()
    """Floors such as fuel=-1.5, or fuel=-1% relative to the best; an estimate keeps them with its whole interval."""
    prefer: Annotated[tuple[str, ...], option("NAME [NAME ...]", "default: all")] = ()
    """Objectives whose sum is maximised, each divided by its range."""

    def answer(self) -> Answer:
        """Choose, and say how the policy is loaded."""
        from moac.report.pages import exploration

        archive = moac.load(self.run_path).archive
        if archive is None:
            raise ValueError(f"{self.run_path} is not an exploration: moac explore writes one.")
        choice = archive.choose(self.protect, self.prefer)
        chosen, point = choice.index, archive.record(choice.index)
        load, play = (how(self.run_path, point, chosen) for how in (exploration.loading, exploration.playing))

        def show() -> None:
            _print_choice(choice)
            print_paths(load=load, play=play)

        record = choice.record() | {"run": str(self.run_path), "load": load, "play": play}
        return Answer(record, show, 0 if choice.fits else _NOTHING_CHOSEN)


def _print_choice(choice: Choice) -> None:
    """The policy that is chosen, or the one that comes closest where none qualifies, with its floors."""
    archive, k, rows = choice.archive, choice.index, list[list[Any]]()
    columns = (archive.objectives, archive.points[k], archive.low[k], archive.high[k])
    for name, value, low, high in zip(*columns, strict=True):
        interval, floor = f"[{low:.4g}, {high:.4g}]" if low <= high else None, choice.floors.get(name)
        least = low if low <= high else value
        kept = floor if floor is None or least >= floor else f"{floor:.4g}, not kept"
        rows.append([name, f"{value:.4g}", interval, kept])
    if not choice.fits:
        floors = ", ".join(f"{name}={floor:g}" for name, floor in choice.floors.items())
        nearest = f"policy {k} comes closest"
        print_lines([f"no policy qualifies with {floors}, kept with its whole 95 % interval: {nearest}."])
    print_table(f"policy {k} of {len(archive)}", ["objective", "value", "95 % interval", "floor"], rows)
