"""`moac offline train`: candidate policies from a log, and the one that validation users choose."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

from rich.table import Table

from moac import files, locks, settings
from moac.cli import interrupts, report
from moac.cli.console import plain
from moac.cli.interrupts import Interrupts
from moac.cli.watched import Watched
from moac.config import Config
from moac.envs.quiet import quiet
from moac.logs.dataset import LoggedDataset
from moac.offline.choose import Choice, floors
from moac.offline.evaluation import OfflineEvaluation
from moac.search import candidates, preferences

_NOTHING_CHOSEN = 1


@final
@dataclass(frozen=True)
class Order:
    """What `moac offline train` was asked to do; no pulls are the default ones."""

    data: Path
    config: Config
    pulls: tuple[float, ...]
    preferences: int
    protect: tuple[str, ...]
    trials: int
    seed: int
    out: Path
    json: bool


def run(order: Order) -> int:
    """Fit how the log chose, train the candidates, choose on validation users, and say how it went."""
    began = time.monotonic()
    dataset = LoggedDataset.from_parquet(order.data)
    kept = floors(order.protect, dataset.signal_names)
    candidates.check_folder(order.out)
    settings.complete(replace(order.config, start="random"), dataset.spec)  # a mistake shows before anything is fitted
    pulls, p = order.pulls or candidates.KL_COEFFICIENTS, _preferences(order, dataset.num_signals)
    wanted = candidates.Plan(dataset.name, order.seed, order.trials, order.config, pulls, kept, p)
    try:
        with locks.folder(order.out):
            filled = with_behaviour(dataset, order.out, order.config.hidden)
            with quiet(), Interrupts() as asked:
                outcomes = candidates.train(filled, wanted, order.out, partial(Watched, asked))
                judged, choice = candidates.choose(filled, outcomes, kept)
                candidates.keep(choice, judged, wanted, order.out, candidates.directories(filled, wanted, order.out))
                if choice.chosen is not None:
                    report.write(order.out)
    except KeyboardInterrupt as error:
        sys.stderr.write(f"moac: stopped; the same command continues {order.out}\n")
        return interrupts.code(error)
    if order.json:
        sys.stdout.write(json.dumps(files.finite(_summary(judged, choice, order, time.monotonic() - began))) + "\n")
    else:
        _tell(judged, choice, order)
    return 0 if choice.chosen is not None else _NOTHING_CHOSEN


def _preferences(order: Order, num_signals: int) -> tuple[tuple[float, ...], ...]:
    if order.preferences < 0:
        raise ValueError(f"`preferences` must be at least 0, got {order.preferences}.")
    return preferences.as_tuples(preferences.random(order.preferences, num_signals, order.seed))


def with_behaviour(dataset: LoggedDataset, out: Path, hidden: tuple[int, ...] | None) -> LoggedDataset:
    """The log with how it chose, from `out` or fitted now."""
    if dataset.propensity is None:
        sys.stderr.write(f"{dataset.name} does not say how it chose: a behaviour model is fitted on train users\n")
    return candidates.with_behaviour(dataset, out, hidden)


def _summary(judged: OfflineEvaluation, choice: Choice, order: Order, seconds: float) -> dict[str, Any]:
    listed = {each.name: {"gain": each.gain, "against": list(each.against)} for each in choice.candidates}
    signals = [] if choice.chosen is None else [vars(line) for line in judged.lines(choice.chosen)]
    return {
        "data": str(order.data),
        "chosen": choice.chosen,
        "protected": list(order.protect),
        "candidates": listed,
        "signals": signals,
        "split": judged.split,
        "seconds": seconds,
        "run_dir": str(order.out) if choice.chosen is not None else None,
    }


def _tell(judged: OfflineEvaluation, choice: Choice, order: Order) -> None:
    console = plain(110)
    console.print(_table(judged, choice))
    for each in choice.candidates:
        for reason in each.against:
            console.print(f"{each.name}: not chosen, {reason}", highlight=False)
    if choice.chosen is None:
        wanted = f" with {', '.join(order.protect)}" if order.protect else ""
        console.print(f"no candidate can be chosen{wanted}: Behavior-Clone stays", highlight=False)
        return
    console.print(f"chosen on validation users: {choice.chosen}; their numbers are a little too good", highlight=False)
    console.print(f"report: {order.out / 'report.html'}", highlight=False, soft_wrap=True)
    console.print(f"next: moac evaluate {order.out} --data {order.data}", highlight=False, soft_wrap=True)


def _table(judged: OfflineEvaluation, choice: Choice) -> Table:
    """A row for each signal, a column for each policy; changes to Behavior-Clone with 95 % intervals."""
    names = [each.name for each in choice.candidates]
    title = f"{judged.data}: change to Behavior-Clone on {judged.users:,} validation users"
    table = Table(title=title, title_justify="left")
    for head in ("", *(f"{name} *" if name == choice.chosen else name for name in names)):
        table.add_column(head, justify="right")
    columns = [[_cell(line) for line in judged.lines(name)] for name in names]
    for i, line in enumerate(judged.lines(names[0])):
        table.add_row(line.label, *(column[i] for column in columns))
    table.add_section()
    shares = [min(d.row_effective_share for d in judged.report.policies[name].diagnostics) for name in names]
    table.add_row("effective share", *(f"{share:.2f}" for share in shares))
    table.add_row("verdict", *(judged.report.policies[name].verdict.level for name in names))
    return table


def _cell(line: Any) -> str:
    if line.outcome == "not estimable":
        return line.outcome
    low, high = line.relative_interval
    return f"{100 * line.relative:+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]"
