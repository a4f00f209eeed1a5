"""The runs of an exploration: for each rule one run per entropy bonus, each from where the one before it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import training
from moac.choices import takes_preferences
from moac.config import Config
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.runs.runner import Task
from moac.search.explore import preferences
from moac.settings import Settings
from moac.training import result
from moac.types import Source

FOLDER = "rules"
FALLING = (0.1, 0.03, 0.01, 0.003, 1e-5)
"""Shares of the largest reward; the last counts for nothing, yet is not 0, so that all stages share one program."""


@final
@dataclass(frozen=True, eq=False)
class Order:
    """What is to be trained.

    Attributes:
        env: the environment, or the name of the data.
        seed: of every run.
        config: resolved, but for what varies: rule, preferences and entropy.
        rules: by name.
        entropies: bonuses of the stages, one after the other; iterations and evaluations are shared evenly.
        preferences: p [N, M] of the trials of each rule.
    """

    env: str
    seed: int
    config: Config
    rules: tuple[str, ...]
    entropies: tuple[float, ...]
    preferences: Float[np.ndarray, "N M"]

    @property
    def trials(self) -> int:
        """Of each rule."""
        return len(self.preferences)


def check_rules(rules: Sequence[str]) -> None:
    """Refuse a rule that is named twice; an unknown one, or one that asks for more, is refused by the configuration."""
    if not rules:
        raise ValueError("`rules` must name at least one rule, got none.")
    twice = [rule for k, rule in enumerate(rules) if rule in rules[:k]]
    if twice:
        raise ValueError(f"`rules` must name each rule once, got {twice[0]} twice.")


def stages(order: Order, rule: str) -> list[Task]:
    """The runs of one rule; a label says all that went before, since the result depends on it."""
    count, total = len(order.entropies), Settings.of(order.config).num_iterations
    if total < count:
        raise ValueError(f"`iterations` must be at least one per entropy ({count}), got {total}.")
    p = preferences.as_tuples(order.preferences) if takes_preferences(rule) else None
    each = max(1, order.config.num_evaluations // count)
    found: list[Task] = []
    for k, entropy in enumerate(order.entropies):
        share = total // count if k < count - 1 else total - (count - 1) * (total // count)
        vary: dict[str, Any] = {"weighting": rule, "preferences": p, "entropy": entropy, "num_iterations": share}
        config = replace(order.config, **vary, num_evaluations=each)
        label = f"{rule} entropy {' '.join(f'{each:g}' for each in order.entropies[: k + 1])}"
        found.append(Task(label, config, order.trials))
    return found


def run(order: Order, problem: Source, out: Path, show: runner.Show) -> dict[str, list[result.Result]]:
    """The stages of every rule; what has finished is kept, what was interrupted goes on."""
    return {rule: _staged(stages(order, rule), order, problem, out / FOLDER, show) for rule in order.rules}


def _staged(tasks: list[Task], order: Order, problem: Source, folder: Path, show: runner.Show) -> list[result.Result]:
    done: list[result.Result] = []
    for k, task in enumerate(tasks):
        start = None
        if done:
            start = partial(_start, done[-1], folder / runner.key(tasks[k - 1], order, problem))
        done.append(runner.complete(task, order, problem, folder, show, start))
    return done


def _start(ended: result.Result, folder: Path) -> training.Snapshot:
    """Where the next stage begins: at the last snapshot of a stage, which its folder has if it ran in another call."""
    last = ended.snapshot or RunDirectory(folder).checkpoints().newest(ended.run)
    if last is None:
        raise ValueError(f"{folder} has no checkpoint to go on from: delete it, and the same command trains it again.")
    return last.as_start()


def default_rules(problem: Source) -> tuple[str, ...]:
    """On a model what finds corners and what finds the places between; elsewhere, where time is dear, the former."""
    return ("fixed", "preferred") if problem.compiled and not problem.spec.logged else ("fixed",)


def default_entropies(problem: Source) -> tuple[float, ...]:
    """A bonus that falls to nothing, in units of the largest reward; a log, and a stepped environment, have none."""
    if not problem.compiled or problem.spec.logged:
        return (0.0,)
    return tuple(share * problem.spec.reward_bound for share in FALLING)


def joined_history(done: list[result.Result]) -> tuple[Any, Any]:
    """Environment steps [L] and returns [K, L, M] over all stages of a rule."""
    steps: list[Any] = []
    before = 0
    for stage in done:
        steps.append(before + stage.history.iteration * stage.run.env_steps_per_iteration)
        before += stage.env_steps
    return np.concatenate(steps), np.concatenate([stage.history.returns for stage in done], axis=1)
