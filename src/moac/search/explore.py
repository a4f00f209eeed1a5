"""Explorations: policies for many preferences, trained together, and the Pareto archive of what they reach.

For each rule one run per entropy bonus, each from where the one before it ended. In memory first: a folder keeps
checkpoints and results, and the same call on it goes on where it stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Float

from moac import files, locks, training
from moac import settings as resolving
from moac.choices import takes_preferences
from moac.config import Config
from moac.momdp import FiniteMOMDP, library
from moac.policies.observations import LogSpec
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.runs.log_files import BEHAVIOUR
from moac.runs.runner import Task
from moac.search import EXPLORING, archive, measures, preferences, values
from moac.search.archive import Archive
from moac.search.measures import Yardstick
from moac.settings import Settings
from moac.training import result
from moac.training.result import Result
from moac.types import Source

MANY, FEW = 128, 16
"""Preferences on a model, and elsewhere, where time is dear."""
ITERATIONS = 6_000
"""On a model."""
FALLING = (0.1, 0.03, 0.01, 0.003, 1e-5)
"""Shares of the largest reward; the last counts for nothing, yet is not 0, so that all stages share one program."""
RECORD = "explore.json"
FORMAT = 1
_RULES, _MAKING = "rules", ".archive"
_LAST = "policy.safetensors"
"""With it the run has finished: it goes first and comes last."""


@final
@dataclass(frozen=True, eq=False)
class Options:
    """What is to be explored; what is None depends on the problem."""

    # what all rules share; rule, preferences and entropy are left to the exploration
    config: Config = field(default_factory=lambda: Config(**EXPLORING))
    # how many, a text or file with vectors, or vectors [N, M]; None is `MANY` or `FEW`
    preferences: int | str | preferences.Vectors | None = None
    draw: Literal["random", "grid"] = "random"  # how preferences are drawn that are not given
    # by name; None is `fixed`, on a model also `preferred`, which finds the places between corners
    rules: tuple[str, ...] | None = None
    entropies: tuple[float, ...] | None = None  # bonuses, one after the other; None is `FALLING` on a model, else 0
    reference: Sequence[float] | None = None  # of the hypervolume; None is below the worst of the front
    seed: int = 0  # of preferences and trials


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """What is trained: `Options` resolved for a problem."""

    env: str  # the environment, or the name of the data
    seed: int  # of every run
    config: Config  # resolved, but for what varies: rule, preferences and entropy
    rules: tuple[str, ...]  # by name
    # bonuses of the stages, one after the other; iterations and evaluations are shared evenly
    entropies: tuple[float, ...]
    preferences: Float[np.ndarray, "N M"]  # p [N, M] of the trials of each rule
    reference: Sequence[float] | None = None  # of the hypervolume; None is below the worst of the front

    @classmethod
    def of(cls, options: Options, problem: Source, env: str | None = None) -> Plan:
        """The plan for a problem; a mistake in the options is a ValueError."""
        spec, config = problem.spec, options.config
        logged = isinstance(spec.observations, LogSpec)
        simple = problem.compiled and not logged
        if logged:
            config = replace(config, gae=0.0)  # rows are drawn one by one
        if simple and config.num_iterations is None:
            config = replace(config, num_iterations=ITERATIONS)
        rules = (("fixed", "preferred") if simple else ("fixed",)) if options.rules is None else options.rules
        check_rules(rules)
        p = _preferences(options, spec.num_objectives, MANY if simple else FEW)
        entropies = options.entropies
        if entropies is None:
            entropies = tuple(share * spec.reward_bound for share in FALLING) if simple else (0.0,)
        if options.reference is not None and len(options.reference) != spec.num_objectives:
            expected = f"one number per objective ({spec.num_objectives})"
            raise ValueError(f"`reference` must hold {expected}, got {len(options.reference)}.")
        name = spec.name if logged or env is None else env
        full = resolving.complete(config, spec)
        plan = cls(name, options.seed, full, rules, entropies, p, options.reference)
        for rule in rules:
            plan.stages(rule)  # which checks
        return plan

    def stages(self, rule: str) -> list[Task]:
        """The runs of one rule; a label says all that went before, since the result depends on it."""
        count, total = len(self.entropies), Settings.of(self.config).num_iterations
        if total < count:
            raise ValueError(f"`iterations` must be at least one per entropy ({count}), got {total}.")
        p = preferences.as_tuples(self.preferences) if takes_preferences(rule) else None
        evaluations = max(1, self.config.num_evaluations // count)
        tasks: list[Task] = []
        for k, entropy in enumerate(self.entropies):
            share = total // count if k < count - 1 else total - (count - 1) * (total // count)
            vary: dict[str, Any] = {"weighting": rule, "preferences": p, "entropy": entropy, "num_iterations": share}
            label = f"{rule} entropy {' '.join(f'{each:g}' for each in self.entropies[: k + 1])}"
            config = replace(self.config, **vary, num_evaluations=evaluations)
            tasks.append(Task(label, config, len(self.preferences)))
        return tasks


@final
@dataclass(frozen=True, eq=False)
class Explored:
    """What an exploration found."""

    plan: Plan  # what was trained
    candidates: Archive  # every policy that may be archived
    archive: Archive  # those that no other dominates, with their policies
    yardstick: Yardstick  # what they are measured by
    # `numbers` of the archive, `by_rule`, and `curves` over environment steps: see `measures.measured`
    measured: dict[str, Any]
    outcome: Result  # the archived policies as the trials of one run

    @property
    def objectives(self) -> tuple[str, ...]:
        """Their names."""
        return self.outcome.run.source.spec.objective_names

    def record(self) -> dict[str, Any]:
        """explore.json: plain data."""
        return {
            "env": self.plan.env,
            "objectives": list(self.objectives),
            "seed": self.plan.seed,
            "rules": list(self.plan.rules),
            "entropies": list(self.plan.entropies),
            "preferences": self.plan.preferences,
            "returns_kind": self.archive.kind,
            "reference": self.yardstick.reference,
            "reference_is": self.yardstick.about,
            "numbers": self.measured["numbers"],
            "by_rule": self.measured["by_rule"],
            "archive": self.archive.records(),
            "curves": self.measured["curves"],
        }

    def write(self, out: Path) -> None:
        """Make `out` the run directory of the archived policies; each file appears whole or not at all."""
        making = out / _RULES / _MAKING
        shutil.rmtree(making, ignore_errors=True)
        RunDirectory.create(making, self.outcome.run, self.plan.env).finish(self.outcome)
        self.archive.write(making)
        files.write_json(making / RECORD, {"format": FORMAT} | self.record())
        (out / _LAST).unlink(missing_ok=True)
        for path in sorted(making.iterdir(), key=lambda path: path.name == _LAST):
            if path.is_file():
                path.replace(out / path.name)
        shutil.rmtree(making)


def explore(problem: Source, options: Options | None = None, out: Path | None = None) -> Archive:
    """Train policies for many preferences, and keep those that no other dominates.

    Args:
        problem: a model, an environment, or a log with its propensities.
        options: what is to be explored.
        out: a folder that keeps everything, and from which the same call goes on; None keeps nothing on disk.
    """
    if out is not None:
        check_folder(out)
    explored = run(Plan.of(options or Options(), problem), problem, out)
    if out is not None:
        explored.write(out)
    return explored.archive


def run(
    plan: Plan,
    problem: Source,
    out: Path | None = None,
    show: runner.Show = runner.unseen,
    tell: values.Progress = lambda what, done, total: None,
) -> Explored:
    """Train, evaluate, select and measure; what has finished in the folder `out` is kept."""
    stages = train(plan, problem, out, show)
    candidates = values.candidates(stages)
    valued = values.evaluate(candidates, plan.preferences, tell)
    kept = valued.picked(archive.select(valued))
    model = problem if isinstance(problem, FiniteMOMDP) else library.for_environment(plan.env)
    yardstick = Yardstick.exact(model, Settings.of(plan.config).setting, plan.reference)
    yardstick = yardstick or Yardstick.of(kept.points, plan.reference)
    outcome = values.merged(candidates, kept)
    measured = measures.measured(stages, valued, kept, yardstick)
    return Explored(plan, valued, replace(kept, policies=outcome.policy), yardstick, measured, outcome)


def train(
    plan: Plan, problem: Source, out: Path | None = None, show: runner.Show = runner.unseen
) -> dict[str, list[Result]]:
    """The stages of every rule; in a folder what has finished is kept, and what was interrupted goes on."""
    folder = None if out is None else out / _RULES
    return {rule: _staged(plan.stages(rule), plan, problem, folder, show) for rule in plan.rules}


def _staged(tasks: list[Task], plan: Plan, problem: Source, folder: Path | None, show: runner.Show) -> list[Result]:
    done: list[Result] = []
    for k, task in enumerate(tasks):
        before = None if folder is None or k == 0 else folder / runner.key(tasks[k - 1], plan, problem)
        start = partial(_start, done[-1], before) if done else None
        if folder is None:
            done.append(_in_memory(task, plan, problem, show, start))
        else:
            done.append(runner.complete(task, plan, problem, folder, show, start))
    return done


def _in_memory(task: Task, plan: Plan, problem: Source, show: runner.Show, start: Any) -> Result:
    prepared = result.prepare(problem, task.config, task.trials, plan.seed)
    snapshot: Any = None
    with show(task, prepared, 0) as display:
        for snapshot in training.iterate(prepared, None if start is None else start()):
            display.show(snapshot)
    return Result.of(prepared, snapshot)


def _start(ended: Result, folder: Path | None) -> training.Snapshot:
    """Where the next stage begins: at the last snapshot of a stage, which its folder has if it ran in another call."""
    last = ended.snapshot
    if last is None and folder is not None:
        last = RunDirectory(folder).checkpoints().newest(ended.run)
    if last is None:
        raise ValueError(f"{folder} has no checkpoint to go on from: delete it, and the same command trains it again.")
    return last.as_start()


def check_rules(rules: Sequence[str]) -> None:
    """Refuse a rule that is named twice; an unknown one, or one that asks for more, is refused by the configuration."""
    if not rules:
        raise ValueError("`rules` must name at least one rule, got none.")
    twice = [rule for k, rule in enumerate(rules) if rule in rules[:k]]
    if twice:
        raise ValueError(f"`rules` must name each rule once, got {twice[0]} twice.")


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something else; one that an earlier call has begun is fine."""
    fitted = (out / BEHAVIOUR).exists() and not (out / "config.json").exists()  # stopped before its first run began
    begun = out.is_dir() and (locks.is_empty(out) or (out / _RULES).is_dir() or fitted)
    if out.exists() and not begun:
        raise ValueError(f"{out} exists already, and is no exploration: choose a new folder.")
    files.check_folder("out", out)


def _preferences(options: Options, num_objectives: int, usual: int) -> preferences.Vectors:
    wanted = usual if options.preferences is None else options.preferences
    if isinstance(wanted, str):
        return preferences.given(wanted, num_objectives)
    if not isinstance(wanted, int):
        return preferences.clipped(wanted)
    if options.draw == "grid":
        return preferences.grid(wanted, num_objectives)
    return preferences.random(wanted, num_objectives, options.seed)
