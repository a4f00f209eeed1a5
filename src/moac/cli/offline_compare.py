"""`moac offline compare`: all methods on one dataset, with a report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac import files, locks
from moac.cli import interrupts, reproduce
from moac.cli.studies import studies
from moac.logs.dataset import LoggedDataset

_COMPAT_STEPS = 500
"""Of each learner, where the published ones took 240,000 to 1,000,000."""


@final
@dataclass(frozen=True)
class Order:
    """What `moac offline compare` was asked to do."""

    data: Path
    trials: int | None
    iterations: int | None
    protocol: str
    test: bool
    quick: bool
    seed: int
    out: Path
    json: bool


def run(order: Order) -> int:
    """Compare, and write the report."""
    if order.protocol == "tscac-compat":
        return _compat(order)
    dataset = LoggedDataset.from_parquet(order.data)
    files.check_folder("out", order.out)
    study = studies().comparison_of(dataset, order)
    try:
        with locks.folder(order.out):
            began = reproduce.begin(study)
            studies().compare_methods(dataset, study, order.out, reproduce.say)
            summary = reproduce.summary(study, order.out, order.json, began)
    except KeyboardInterrupt as error:
        sys.stderr.write(f"moac: stopped; the same command continues {order.out}\n")
        return interrupts.code(error)
    if order.json:
        sys.stdout.write(json.dumps(files.finite(summary | {"data": str(order.data)})) + "\n")
    return 0


def _compat(order: Order) -> int:
    """The published protocol on the rows at hand; its table, and every fault of it."""
    if order.trials is not None or order.test or order.quick:
        raise ValueError("`--protocol tscac-compat` takes --iterations and --seed only, got another.")
    files.check_folder("out", order.out)
    table = studies().published_protocol(order.data, order.iterations or _COMPAT_STEPS, order.seed)
    order.out.mkdir(parents=True, exist_ok=True)
    files.write_json(order.out / "tscac-compat.json", files.finite(table.as_dict()))
    files.write_bytes(order.out / "tscac-compat.txt", f"{table}\n".encode())
    sys.stdout.write(json.dumps(files.finite(table.as_dict())) + "\n" if order.json else f"{table}\n")
    return 0
