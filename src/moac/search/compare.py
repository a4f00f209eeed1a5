"""Runs side by side: the returns of each over environment steps, and what they end with, paired where seeds pair."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import t as student

from moac.config import Setting
from moac.runs import directory
from moac.settings import Settings
from moac.statistics import Mean, mean
from moac.training.result import Result


@dataclass(frozen=True, eq=False)
class Compared:
    """One of the runs: K trials, evaluated L times."""

    name: str  # by which it is shown
    problem: tuple[str, str]  # name and fingerprint of what it was trained on
    objectives: tuple[str, ...]  # their names
    setting: Setting  # what the returns are
    kind: str  # how they were evaluated
    seed: int  # trial i depends on (seed, i) alone
    steps: Int[np.ndarray, " L"]  # environment steps of a trial at each evaluation
    returns: Float[np.ndarray, "K L M"]
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])  # all fields of its configuration, plain data

    @classmethod
    def of(cls, run: str | Path | Result, name: str) -> Compared:
        """Of a result, or of the folder of a run that has finished."""
        read = directory.read(run)
        settings, history, seed = Settings.of(read.config), read.history, read.description["seed"]
        problem = read.name, str(read.description["problem"]["fingerprint"])
        steps = history.iteration * settings.samples_per_iteration
        about = (name, problem, read.objectives, settings.setting, history.kind, seed, steps, history.returns)
        return cls(*about, config=read.config.to_json())

    @property
    def options(self) -> dict[str, Any]:
        """All that was set for the run, by name."""
        return {"problem": self.problem[0], "trials": len(self.returns), "seed": self.seed, **self.config}

    @property
    def ends(self) -> tuple[Mean, ...]:
        """The mean return of each objective over trials, after the last iteration."""
        return tuple(mean(column) for column in self.returns[:, -1].T)

    def pairs_with(self, other: Compared) -> bool:
        """Whether trial i of both had the same randomness: same problem, setting, seed and number of trials."""
        mine, theirs = ((one.problem[1], one.setting, one.seed, len(one.returns)) for one in (self, other))
        return mine == theirs


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs with the same objectives; the first is what the others are compared with."""

    runs: tuple[Compared, ...]

    def __repr__(self) -> str:
        return f"Comparison({', '.join(run.name for run in self.runs)}; {', '.join(self.objectives)})"

    @property
    def objectives(self) -> tuple[str, ...]:
        """Their names."""
        return self.runs[0].objectives

    def difference(self, index: int) -> tuple[Mean, ...]:
        """How much more each objective earns in a run than in the first; unknown (NaN) where settings differ."""
        first, other = self.runs[0], self.runs[index]
        if first.setting != other.setting:
            return (Mean(math.nan, math.nan, math.nan, 0),) * len(self.objectives)
        estimate = paired if other.pairs_with(first) else apart
        return tuple(map(estimate, other.returns[:, -1].T, first.returns[:, -1].T))

    @property
    def options_that_differ(self) -> dict[str, list[Any]]:
        """The options in which the runs are not all alike, with the value of each run."""
        options = [run.options for run in self.runs]
        names = dict.fromkeys(itertools.chain(*options))
        values = {name: [each.get(name) for each in options] for name in names}
        return {name: each for name, each in values.items() if any(value != each[0] for value in each)}

    @property
    def notes(self) -> tuple[str, ...]:
        """What makes a difference hard to read, as sentences."""
        first, notes = self.runs[0], list[str]()
        for run in self.runs[1:]:
            if run.setting != first.setting:
                notes.append(f"{run.name} was trained in another setting than {first.name}: no difference is computed.")
            elif run.problem[1] != first.problem[1]:
                notes.append(f"{run.name} was trained on {run.problem[0]}, another problem than {first.name}'s.")
            if run.steps[-1] != first.steps[-1]:
                ends = f"{run.steps[-1]} steps of a trial, {first.name} after {first.steps[-1]}"
                notes.append(f"{run.name} ends after {ends}.")
        return tuple(notes)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One line for each run and objective: the mean at its end, and the difference to the first run."""
        lines: list[dict[str, Any]] = []
        for k, run in enumerate(self.runs):
            for name, end, more in zip(self.objectives, run.ends, self.difference(k), strict=True):
                line: dict[str, Any] = {"run": run.name, "objective": name, "trials": end.trials, "return": vars(end)}
                if k:
                    line |= {"difference": vars(more), "paired": run.pairs_with(self.runs[0])}
                lines.append(line)
        return lines

    def record(self) -> dict[str, Any]:
        """comparison.json: plain data."""
        runs = [{"name": run.name, "problem": run.problem[0], "returns_kind": run.kind, "seed": run.seed,
                 "trials": len(run.returns), "env_steps": int(run.steps[-1])} for run in self.runs]  # fmt: skip
        record = {"runs": runs, "objectives": list(self.objectives), "ends": self.table}
        return record | {"options_that_differ": self.options_that_differ, "notes": list(self.notes)}

    def save(self, directory: str | Path) -> Path:
        """Write comparison.json, the figure and report.html into a folder."""
        from moac.report.pages import comparison

        return comparison.save(self, Path(directory))


def compare(runs: Sequence[str | Path | Result], names: Sequence[str] | None = None) -> Comparison:
    """Several results or finished runs side by side; names that are alike are numbered."""
    if len(runs) < 2:
        raise ValueError(f"`runs` must hold at least two runs to compare, got {len(runs)}.")
    if names is None:
        own = [run.run.source.spec.name if isinstance(run, Result) else Path(run).absolute().name for run in runs]
        names = own if len(set(own)) == len(own) else [f"{k} {name}" for k, name in enumerate(own, start=1)]
    if len(names) != len(runs) or len(set(names)) != len(names):
        raise ValueError(f"`names` must hold one name for each of {len(runs)} runs, got {', '.join(names)}.")
    compared = tuple(Compared.of(run, name) for run, name in zip(runs, names, strict=True))
    for run in compared[1:]:
        if run.objectives != compared[0].objectives:
            told = " and ".join(f"{', '.join(each.objectives)} ({each.name})" for each in (compared[0], run))
            raise ValueError(f"`runs` must have the same objectives, got {told}.")
    return Comparison(compared)


def paired(a: Any, b: Any) -> Mean:
    """The mean of a − b over trials [K] that share their seeds."""
    return mean(np.asarray(a, np.float64) - np.asarray(b, np.float64))


def apart(a: Any, b: Any) -> Mean:
    """The difference of the means of a [K] and b [L], whose trials share nothing, with Welch's interval.

    Its `trials` are those of the smaller sample.
    """
    samples = [x[np.isfinite(x)] for x in (np.asarray(a, np.float64), np.asarray(b, np.float64))]
    count = min(len(x) for x in samples)
    difference = float(samples[0].mean() - samples[1].mean())
    if count < 2:
        return Mean(difference, np.nan, np.nan, count)
    parts = [float(x.var(ddof=1)) / len(x) for x in samples]
    if sum(parts) == 0:
        return Mean(difference, difference, difference, count)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, samples, strict=True))
    half = float(student.ppf(0.975, freedom)) * math.sqrt(sum(parts))
    return Mean(difference, difference - half, difference + half, count)
