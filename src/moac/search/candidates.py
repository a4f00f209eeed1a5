"""A menu of policies from one log, from close to its behaviour to far from it, and the choice among them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import final

from moac import files, locks
from moac.config import Config
from moac.logs.dataset import LoggedDataset
from moac.offline import behaviour
from moac.offline import choose as choosing
from moac.offline.choose import Choice, Floor
from moac.offline.evaluate import evaluate
from moac.offline.evaluation import OfflineEvaluation
from moac.runs import log_files, runner
from moac.runs.runner import Task
from moac.training import result

PULLS = (1.0, 0.3, 0.1, 0.03)
"""Coefficients of the pull to the behaviour: each about a third of the one before."""
CHOICE = "choice.json"


@final
@dataclass(frozen=True)
class Order:
    """What is to be trained.

    Attributes:
        env: name of the data.
        seed: of every policy.
        trials: training seeds of each.
        config: what differs from the defaults.
        pulls: one policy for each.
        kept: floors under protected signals.
        preferences: one more policy for each p over the signals, by the rule `preferred` and the configuration's pull.
    """

    env: str
    seed: int
    trials: int
    config: Config
    pulls: tuple[float, ...] = PULLS
    kept: tuple[Floor, ...] = ()
    preferences: tuple[tuple[float, ...], ...] = ()


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something else; one that an interrupted call has begun is fine."""
    begun = out.is_dir() and (locks.is_empty(out) or (out / "menu").is_dir() or (out / log_files.BEHAVIOUR).exists())
    if out.exists() and (not begun or ((out / "config.json").exists() and not (out / CHOICE).exists())):
        raise ValueError(f"{out} exists already, and is no menu of policies: choose a new folder.")
    files.check_folder("out", out.parent)


def with_behaviour(dataset: LoggedDataset, out: Path, hidden: Sequence[int] | None) -> LoggedDataset:
    """The dataset with the behaviour model that `out` keeps, or with a new one; a log that knows its own stays."""
    if dataset.propensity is not None:
        return dataset
    kept = log_files.restored(dataset, out)
    if kept is not None:
        return kept
    options = behaviour.Options() if hidden is None else behaviour.Options(hidden=tuple(hidden))
    filled = dataset.with_behaviour(behaviour.fit(dataset, options))
    out.mkdir(parents=True, exist_ok=True)
    log_files.write(out, filled)
    return filled


def train(dataset: LoggedDataset, order: Order, out: Path, show: runner.Show) -> dict[str, result.Result]:
    """One run for each pull and preference, in folders under `out`; what has finished is kept, the rest goes on."""
    return {task.label: runner.complete(task, order, dataset, out / "menu", show) for task in _tasks(order)}


def directories(dataset: LoggedDataset, order: Order, out: Path) -> dict[str, Path]:
    """Where `train` keeps the run of each policy."""
    return {task.label: out / "menu" / runner.key(task, order, dataset) for task in _tasks(order)}


def _tasks(order: Order) -> list[Task]:
    configs = {f"pull {pull:g}": replace(order.config, behaviour_pull=pull) for pull in order.pulls}
    for k, p in enumerate(order.preferences, start=1):
        configs[f"preference {k}"] = replace(order.config, weighting="preferred", preferences=(p,))
    return [Task(label, config, order.trials) for label, config in configs.items()]


def choose(
    dataset: LoggedDataset, outcomes: Mapping[str, result.Result], kept: Sequence[Floor]
) -> tuple[OfflineEvaluation, Choice]:
    """The menu judged on validation users, and what is chosen there."""
    methods = {name: (own.policy.policy, own.policy.theta) for name, own in outcomes.items()}
    judged = evaluate(dataset, methods, "validation")
    signs = dict(zip(dataset.signal_names, dataset.signs, strict=True))
    return judged, choosing.choose(judged.report, signs, kept)


def keep(choice: Choice, judged: OfflineEvaluation, order: Order, out: Path, runs: Mapping[str, Path]) -> None:
    """Make `out` the run directory of the chosen policy, and write how it was chosen.

    Args:
        choice: what was chosen.
        judged: on validation users.
        order: what was asked for.
        out: where.
        runs: directories of the policies of the menu, by name.
    """
    record = {
        "format": 1,
        "chosen": choice.chosen,
        "protected": [str(floor) for floor in order.kept],
        "candidates": [asdict(each) | {"run": str(runs[each.name].relative_to(out))} for each in choice.candidates],
        "validation": judged.as_dict(),
    }
    files.write_json(out / CHOICE, files.finite(record))
    if choice.chosen is not None:
        _copy(runs[choice.chosen], out)


def _copy(run: Path, out: Path) -> None:
    """All files of a run, those that make it a finished run last; each appears whole or not at all."""
    last = ("config.json", "policy.safetensors")
    found = sorted((path for path in run.rglob("*") if path.is_file() and path.parent.name != "checkpoint"),
                   key=lambda path: path.name in last)  # fmt: skip
    for path in found:
        target = files.subfolder(out, *path.relative_to(run).parent.parts) / path.name
        with path.open("rb") as content, files.replacing(target) as copy:
            shutil.copyfileobj(content, copy)
