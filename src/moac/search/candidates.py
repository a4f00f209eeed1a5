"""Train several offline policies with decreasing KL regularisation, and pick one on validation users."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moac import files, locks
from moac.config import Config
from moac.logs.dataset import LoggedDataset
from moac.offline import behaviour
from moac.offline import choose as choosing
from moac.offline.choose import Choice, Floor
from moac.offline.evaluate import evaluate, with_estimator
from moac.runs import log_files, runner
from moac.runs.runner import Task

KL_COEFFICIENTS = (1.0, 0.3, 0.1, 0.03)
"""Of KL regularisation towards the behaviour (`Config.behaviour_pull`): each about a third of the one before."""
_FOLDER = "menu"
"""Holds the runs of all candidates; a folder that was begun by an older version goes on, so that the name stays."""

_SAID = ("card-*.json", "evaluation-*.html", "report.html")
"""Of the policy that a run directory holds."""


@dataclass(frozen=True)
class Plan:
    """The candidates that are trained on a log."""

    seed: int  # of every policy
    trials: int  # training seeds of each
    config: Config  # what differs from the defaults
    kl_coefficients: tuple[float, ...] = KL_COEFFICIENTS  # one policy for each
    floors: tuple[Floor, ...] = ()  # under protected signals
    # one more policy for each p over the signals, by the rule `preferred` with the configuration's own KL coefficient
    preferences: tuple[tuple[float, ...], ...] = ()

    def tasks(self) -> list[Task]:
        """One run for each candidate."""
        configs = {f"pull {each:g}": replace(self.config, behaviour_pull=each) for each in self.kl_coefficients}
        for k, p in enumerate(self.preferences, start=1):
            configs[f"preference {k}"] = replace(self.config, weighting="preferred", preferences=(p,))
        return [Task(label, config, self.trials, self.seed) for label, config in configs.items()]


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something else; one that an interrupted call has begun is fine."""
    begun = out.is_dir() and (locks.is_empty(out) or (out / _FOLDER).is_dir() or (out / log_files.BEHAVIOUR).exists())
    if out.exists() and (not begun or ((out / "config.json").exists() and not (out / choosing.NAME).exists())):
        raise ValueError(f"{out} exists already and does not hold candidates: choose a new folder.")
    files.check_folder("out", out.parent)


def with_behaviour(source: Any, out: Path | None, config: Config) -> Any:
    """A log with the behaviour model that `out` keeps, or with a new one; other sources, and logs that know, stay."""
    if not isinstance(source, LoggedDataset) or source.propensity is not None:
        return source
    dataset, kept = source, None if out is None else log_files.restored(source, out)
    if kept is not None:
        return kept
    items = config.policy == "items" or (config.policy is None and dataset.lists is not None)
    chosen: dict[str, Any] = {"policy": "items", "item_embedding": config.item_embedding} if items else {}
    chosen |= {} if config.hidden is None else {"hidden": config.hidden}
    options = behaviour.Options(**chosen)
    filled = dataset.with_behaviour(behaviour.fit(dataset, options))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        log_files.write(out, filled)
    return filled


def choose(dataset: LoggedDataset, plan: Plan, out: Path | None = None, show: runner.Show = runner.unseen) -> Choice:
    """Train the candidates, evaluate them on validation users, and choose one.

    In a folder `out`, which the caller holds, what has finished is kept and the rest goes on; it becomes the run
    directory of the policy that is chosen, with `choice.json`, which says how.
    """
    source, folder = with_estimator(dataset), None if out is None else out / _FOLDER
    outcomes = {task.label: runner.complete(task, source, folder, show) for task in plan.tasks()}
    methods = {name: (outcome.policy.policy, outcome.policy.theta) for name, outcome in outcomes.items()}
    choice = choosing.choose(evaluate(dataset, methods, "validation"), plan.floors)
    if choice.chosen is not None:
        choice = replace(choice, policy=outcomes[choice.chosen].policy)
    if out is not None:
        keep(choice, out, directories(dataset, plan, out))
    return choice


def directories(dataset: LoggedDataset, plan: Plan, out: Path) -> dict[str, Path]:
    """The run directory of each candidate."""
    return {task.label: out / _FOLDER / runner.key(task, dataset) for task in plan.tasks()}


def keep(choice: Choice, out: Path, runs: Mapping[str, Path]) -> None:
    """Make `out` the run directory of the chosen policy, and write how it was chosen; `runs` are by name.

    Files that make it a finished run are copied last; each appears whole or not at all. What an earlier choice has left
    of another policy, and what was said of it, is removed.
    """
    last, run = ("config.json", "policy.safetensors"), None if choice.chosen is None else runs[choice.chosen]
    if run is None or not _is_copy(out / last[-1], run / last[-1]):
        for path in (*(out / name for name in last), *(each for glob in _SAID for each in out.glob(glob))):
            path.unlink(missing_ok=True)
    choice.save(out, {name: str(path.relative_to(out)) for name, path in runs.items()})
    if run is None:
        return
    copied = [path for path in run.rglob("*") if path.is_file() and path.parent.name != "checkpoint"]
    for path in sorted(copied, key=lambda path: path.name in last):
        target = files.subfolder(out, *path.relative_to(run).parent.parts) / path.name
        with path.open("rb") as content, files.replacing(target) as copy:
            shutil.copyfileobj(content, copy)


def _is_copy(path: Path, original: Path) -> bool:
    return path.exists() and path.read_bytes() == original.read_bytes()
