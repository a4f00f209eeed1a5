"""`moac data kuairand describe`: the paper's data table for a dataset, and a figure."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rich.table import Table

from moac import files
from moac.cli.console import plain
from moac.logs import manifest
from moac.logs.description import Description, describe
from moac.logs.splits import SPLITS
from moac.report import logs as figures
from moac.report import style


def run(data: Path, out: Path | None, as_json: bool) -> int:
    """Compute, print and draw; a manifest that says nonsense is refused."""
    try:
        return _run(data, out, as_json)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{data / manifest.NAME} is damaged: {error} is missing or wrong.") from None


def _run(data: Path, out: Path | None, as_json: bool) -> int:
    found = describe(data)
    figure = _drawn(found, data, out)
    if not as_json:
        console = plain(110)
        for table in (_signals(found), _splits(found)):
            console.print(table)
        for line in _notes(found):
            console.print(f"• {line}", highlight=False)
    if figure is not None:
        sys.stderr.write(f"figure: {figure}\n")
    if as_json:
        summary = found.summary() | {"figure": None if figure is None else str(figure)}
        sys.stdout.write(json.dumps(files.finite(summary)) + "\n")
    return 0


def _drawn(found: Description, data: Path, out: Path | None) -> Path | None:
    """The figure, beside the data; where that cannot be written, none unless a folder is given."""
    if out is None and not os.access(data, os.W_OK):
        sys.stderr.write(f"no figure: {data} cannot be written. Give --out.\n")
        return None
    folder = files.below(data, "figures") if out is None else out
    files.check_folder("out", folder)
    folder.mkdir(parents=True, exist_ok=True)
    figure = figures.description(found)
    for kind in ("svg", "png"):
        files.write_bytes(folder / f"description.{kind}", style.rendered(figure, kind))
    return folder / "description.png"


def _signals(found: Description) -> Table:
    """Amount and share of each signal, as in the paper, and what a row has of it on average."""
    table = Table(title=f"{found.name}: signals of the rows trained on", title_justify="left")
    for name in ("signal", "amount", "share of amounts", "mean per row", *(f"amount, {split}" for split in SPLITS)):
        table.add_column(name, justify="left" if name == "signal" else "right")
    for name, signal in found.signals.items():
        amounts = [found.splits[split]["signals"][name]["amount"] for split in SPLITS]
        mean = f"{signal['mean']:.5f}" if signal["mean"] < 1 else f"{signal['mean']:.3f}"
        table.add_row(name, f"{signal['amount']:,}", f"{signal['share']:.3%}", mean, *(f"{n:,}" for n in amounts))
    return table


def _splits(found: Description) -> Table:
    table = Table(title="Splits, by hash of users", title_justify="left")
    for name in ("", "users", "rows", "rows per user"):
        table.add_column(name, justify="right")
    part = found.manifest["parts"]["rows"]
    for name, split in (*found.splits.items(), ("all", part)):
        per_user = split["rows"] / max(split["users"], 1)
        table.add_row(name, f"{split['users']:,}", f"{split['rows']:,}", f"{per_user:.2f}")
    return table


def _notes(found: Description) -> list[str]:
    about, part = found.manifest, found.manifest["parts"]["rows"]
    spread = part["rows_per_user"]
    notes = [
        f"{found.num_rows:,} states (one a row), {found.num_actions} actions, {len(found.signals)} signals",
        f"rows per user: median {spread['median']:.0f}, 90 % up to {spread['p90']:.0f}, largest {spread['max']:.0f}",
    ]
    for name, log in about["logs"].items():
        days = list(log["days"])
        notes.append(
            f"{name} log: {log['rows_read']:,} rows, {log['rows']:,} without exact duplicates; {days[0]} to {days[-1]}"
        )
    random = about["parts"].get("random")
    if random is not None:
        notes.append(f"random exposure on these actions: {random['rows']:,} rows of {random['users']:,} users")
    rare = [name for name, s in found.splits["test"]["signals"].items() if s["amount"] < 30]
    if rare:
        notes.append(f"fewer than 30 test rows have {', '.join(rare)}: held-out averages of these are noise")
    notes += [f"absent: {name}" for name in about["absent"]] + [f"warning: {text}" for text in about["warnings"]]
    return notes
