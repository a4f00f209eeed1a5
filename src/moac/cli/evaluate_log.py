"""`moac evaluate` of a run on a log: values, changes to Behavior-Clone, and whether to trust them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from moac import api, files
from moac.cli.console import plain
from moac.cli.options import Evaluate
from moac.envs.quiet import quiet
from moac.offline import ncis
from moac.offline.evaluation import Line, OfflineEvaluation
from moac.report.evaluations import between, signed
from moac.report.numbers import number, with_interval

if TYPE_CHECKING:
    from moac.cli.evaluate import Order as Asked

_STYLES = {"better": "green", "worse": "red", "trusted": "green", "with care": "yellow", "not trusted": "red"}


def run(asked: Asked) -> int:
    """Judge the run on a split's users, write card and page, and say what was found."""
    (folder, *others) = asked.runs
    if others:
        raise ValueError(f"`RUN` must be one run where it is on a log, got {len(asked.runs)}.")
    if asked.episodes != Evaluate.episodes or asked.reference is not None:
        raise ValueError(f"`--episodes` and `--reference` are for runs on environments; {folder} is on a log.")
    options = ncis.Options(cap=asked.cap)
    with quiet():
        found = api.evaluate_on_log(folder, asked.data, asked.split, asked.trial, options)
    if asked.json:
        where = {"run": str(folder), "card": str(found.card_path), "page": str(found.page_path)}
        sys.stdout.write(json.dumps(files.finite(where | found.card)) + "\n")
        return 0
    console = plain(140)
    for part in shown(found.evaluation):
        console.print(part, highlight=False)
    for line in _last(found):
        console.print(Text(line), highlight=False, soft_wrap=True)
    return 0


def shown(judged: OfflineEvaluation) -> list[RenderableType]:
    """A table for each method, each with its verdict and the reasons below."""
    found: list[RenderableType] = []
    for name in judged.methods:
        found += [_table(judged, name), *_verdict(judged, name)]
    if judged.left_out:
        fires = "never fires" if len(judged.left_out) == 1 else "never fire"
        found.append(Text(f"left out: {', '.join(judged.left_out)} {fires} among {judged.split} users"))
    return found


def _table(judged: OfflineEvaluation, name: str) -> Table:
    base, seeds = str(judged.report.baseline), judged.seeds[name]
    over = f"{judged.rows} rows of {judged.users} {judged.split} users, cap {judged.report.options.cap:g}"
    policies = "" if seeds == 1 else f" ({seeds} seeds)"
    title = Text(f"{judged.data}: {name}{policies} on {over}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in ("", base, name, "change", "absolute", "p (Holm)", ""):
        table.add_column(Text(head), justify="right" if head else "left")
    for line in judged.lines(name):
        table.add_row(*_cells(line))
    return table


def _cells(line: Line) -> tuple[RenderableType, ...]:
    known = line.outcome != "not estimable"
    return (
        Text(line.label),
        number(line.baseline, 3),
        number(line.value, 3),
        f"{signed(line.relative)} {between(line.relative_interval)}".strip(),
        with_interval(line.difference, line.difference_interval, sign=True),
        f"{line.p:.3f}" if known else "–",
        Text(line.outcome, style=_STYLES.get(line.outcome, "dim")),
    )


def _verdict(judged: OfflineEvaluation, name: str) -> list[RenderableType]:
    own = judged.report.policies[name]
    effective = min(one.row_effective_share for one in own.diagnostics)
    said = Text.assemble(
        f"{name}: ",
        (own.verdict.level, f"bold {_STYLES[own.verdict.level]}"),
        f"; effective share of rows {100 * effective:.0f} %",
    )
    return [said, *(Text(f"  - {reason.text}") for reason in own.verdict.reasons)]


def _last(found: api.RunEvaluation) -> list[str]:
    """Looks, and where everything is."""
    said = []
    if found.accesses is not None:
        said.append(str(found.accesses))
        said += [] if found.accesses.missing is None else [f"not noted beside the data: {found.accesses.missing}"]
    return [*said, f"card: {found.card_path}", f"page: {found.page_path}"]
