"""Explorations: policies for many preferences, trained together, and the Pareto archive of what they reach.

For each rule one run per entropy bonus, each from where the one before it ended. In memory first: a folder keeps
checkpoints and results, and the same call on it goes on where it stopped.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from moac import files, locks, training
from moac.choices import counted
from moac.envs import Environment
from moac.envs.evaluation import Budget
from moac.momdp import FiniteMOMDP, library
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.runs.log_files import BEHAVIOUR
from moac.runs.runner import Task
from moac.search import archive, measures, values
from moac.search.archive import Archive
from moac.search.measures import Yardstick
from moac.search.plan import LOOKING, Plan
from moac.search.values import Valued
from moac.search.valuing import Effort, valued_within
from moac.settings import Settings
from moac.training.result import Result
from moac.types import Source

RECORD = "explore.json"
FORMAT = 1
Stages = Mapping[str, Sequence[Result]]
"""The results of each rule's runs, one after the other."""
_RULES, _MAKING = "rules", ".archive"
_GROWTH = "growth.json"
_LOOKED_AT, _LOOKS = 12, 3
"""Preferences at most, and episodes of each, at which the front is looked at while it grows."""
_HEADLINE = ("env_steps", "evaluation_steps", "hypervolume", "expected_utility")
"""Numbers that stand at the top of the record, too."""
_LAST = "policy.safetensors"
"""With it the run has finished: it goes first and comes last."""


@dataclass(frozen=True, eq=False)
class Exploration:
    """How an archive was found."""

    plan: Plan  # what was trained
    candidates: Archive  # every policy that may be archived
    archive: Archive  # those that no other dominates, with their policies
    yardstick: Yardstick  # what they are measured by
    measured: dict[str, Any]  # `numbers`, `by_rule` and `curves`: see `measures.measured`
    outcome: Result  # the archived policies as the trials of one run

    def __repr__(self) -> str:
        policies = counted(len(self.candidates), "policy")
        return f"Exploration({self.plan.env}, {len(self.archive)} of {policies} archived)"

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
            "episodes": self.plan.episodes,
            "returns_kind": self.archive.kind,
            "points": self.archive.points,
            "intervals": np.stack([self.archive.low, self.archive.high], axis=2),
            "preferences": self.archive.preferences,
            "reference": self.yardstick.reference,
            "reference_is": self.yardstick.about,
            **{name: self.measured["numbers"][name] for name in _HEADLINE},
            "asked": self._asked(),
            "archive": [self.archive.record(k) for k in range(len(self.archive))],
            **self.measured,
        }

    def _asked(self) -> dict[str, Any]:
        """The preferences, and of one network what it is worth at each of those that were valued."""
        if not self.outcome.config.conditioned:
            return {"preferences": self.plan.preferences}
        return {name: getattr(self.candidates, name) for name in ("preferences", "points", "low", "high")}

    def write(self, out: Path) -> None:
        """Make `out` the run directory of the archived policies; each file appears whole or not at all."""
        making = files.subfolder(out, _MAKING)
        shutil.rmtree(making)
        RunDirectory.create(making, self.outcome.run).finish(self.outcome)
        self.archive.write(making)
        files.write_json(making / RECORD, {"format": FORMAT} | self.record())
        (out / _LAST).unlink(missing_ok=True)
        for path in sorted(making.iterdir(), key=lambda path: path.name == _LAST):
            if path.is_file():
                path.replace(out / path.name)
        shutil.rmtree(making)


def run(
    plan: Plan,
    problem: Source,
    out: Path | None = None,
    show: runner.Show = runner.unseen,
    tell: values.Progress = lambda what, done, total: None,
) -> Archive:
    """Train, evaluate, select and measure; what has finished in the folder `out`, which the caller holds, is kept."""
    growth = _Growth(plan, out) if plan.config.conditioned else None
    stages = train(plan, problem, out, show if growth is None else growth.watching(show))
    candidates = values.candidates(stages)
    valuing = values.evaluate(candidates, plan, tell, 0 if growth is None else growth.steps_taken)
    valued = valuing.archive
    kept = valued.picked(archive.select(valued))
    model = problem if isinstance(problem, FiniteMOMDP) else library.for_environment(plan.env)
    yardstick = Yardstick.exact(model, Settings.of(plan.config).setting, plan.reference)
    yardstick = yardstick or Yardstick.of(kept.points, plan.reference)
    outcome = values.merged(candidates, kept)
    kept = replace(kept, policies=outcome.policy)
    measured = measures.measured(stages, valued, kept, yardstick, None if growth is None else growth.points)
    measured["numbers"] |= _evaluation_steps(stages, growth, valuing)
    return replace(kept, exploration=Exploration(plan, valued, kept, yardstick, measured, outcome))


def train(
    plan: Plan, problem: Source, out: Path | None = None, show: runner.Show = runner.unseen
) -> dict[str, list[Result]]:
    """The stages of every rule; in a folder what has finished is kept, and what was interrupted goes on."""
    folder, done = None if out is None else out / _RULES, dict[str, list[Result]]()
    for rule in plan.rules:
        done[rule], start = [], None
        for task in plan.stages(rule):
            done[rule].append(runner.complete(task, problem, folder, show, start))
            start = partial(_start, done[rule][-1], None if folder is None else folder / runner.key(task, problem))
    return done


def _start(ended: Result, folder: Path | None) -> training.Snapshot:
    """Where the next stage begins: at the last snapshot of a stage, which its folder has if it ran in another call."""
    last = ended.snapshot
    if last is None and folder is not None:
        last = RunDirectory(folder).checkpoints().newest(ended.run)
    if last is None:
        raise ValueError(f"{folder} has no checkpoint to continue from: delete it and repeat the command.")
    return last.as_start()


def _evaluation_steps(stages: Stages, growth: _Growth | None, valuing: Valued) -> dict[str, Any]:
    """Environment steps on top of those of the training, by what they were for; None where some were not counted."""
    training = sum(stage.history.steps_taken for rule in stages.values() for stage in rule)
    looks = 0 if growth is None else growth.steps_taken
    return {
        "evaluation_steps": _whole(training + looks + valuing.steps),
        "evaluation_steps_by_purpose": {
            "evaluations while training": _whole(training),
            "looks at the growing front": looks,
            "valuing the policies": valuing.steps,
        },
        "not_valued": valuing.left_out,
    }


def _whole(steps: float) -> int | None:
    """A number of steps; None where some were not counted."""
    return int(steps) if np.isfinite(steps) else None


class _Growth:
    """What one network was worth at a few preferences while it was trained, by environment steps of the training.

    A folder keeps it for the same call to go on. Where each preference has its own policy, there is nothing to look at.
    """

    def __init__(self, plan: Plan, out: Path | None) -> None:
        self._share = LOOKING * plan.evaluation_share
        self._path = None if out is None else out / _GROWTH
        self._preferences = plan.preferences[:: -(-len(plan.preferences) // _LOOKED_AT)]
        self.points: dict[int, Any] = {}
        self.steps_taken = self._longest = 0
        if self._path is not None and self._path.exists():
            stored = files.read_json(self._path)
            with files.interpreting(self._path):
                self.points = {int(steps): np.array(points) for steps, points in stored["points"].items()}
                self.steps_taken = int(stored["evaluation_steps"])

    def watching(self, show: runner.Show) -> runner.Show:
        """`show`, which also looks at the front after each evaluation."""

        @contextmanager
        def shown(task: Task, run: training.Run, done: int) -> Generator[Any]:
            with show(task, run, done) as watch:
                yield lambda snapshot: (watch(snapshot), self._look(run, snapshot))

        return shown

    def _look(self, run: training.Run, snapshot: training.Snapshot) -> None:
        """Value the network where that fits into the steps for looks."""
        if snapshot.iteration not in snapshot.history.iteration[-1:]:
            return
        environment = cast(Environment, run.source)
        trained_for = snapshot.iteration * run.env_steps_per_iteration
        allowed = self._share * trained_for - self.steps_taken
        # before the first look: each evaluation of the run has played an episode at least
        longest = self._longest or math.ceil(snapshot.history.steps_taken / len(snapshot.history.iteration))
        if Budget(allowed, longest).fitting(environment.interface.limit) < len(self._preferences):
            return
        policies = Result.of(run, snapshot).policies(self._preferences)
        effort = Effort(_LOOKS, allowed, first=_LOOKS, longest=longest)
        values = valued_within(environment, policies, self._preferences, effort)
        self.steps_taken += values.steps
        self._longest = max(self._longest, values.longest)
        if values.known.all():  # else the volume would be that of another set of preferences
            self.points[trained_for] = values.mean
        if self._path is not None:
            files.write_json(self._path, {"evaluation_steps": self.steps_taken, "points": self.points})


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something else; one that an earlier call has begun or saved is fine."""
    fitted = (out / BEHAVIOUR).exists() and not (out / "config.json").exists()  # stopped before its first run began
    known = (out / _RULES).is_dir() or (out / RECORD).exists() or fitted
    if out.exists() and not (out.is_dir() and (known or locks.is_empty(out))):
        raise ValueError(f"{out} exists already and is not an exploration: choose a new folder.")
    files.check_folder("out", out)
