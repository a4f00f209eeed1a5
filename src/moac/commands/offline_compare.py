"""`moac offline compare`: all methods on one dataset, with a report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import final

from moac import locks
from moac.commands import interrupts, reproduce
from moac.experiments import comparison, files, spec
from moac.experiments.studies import Findings, Workspace
from moac.logs.dataset import LoggedDataset

STUDY = "kuairand-comparison"
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
    study = _study(order, dataset)
    try:
        with locks.folder(order.out):
            summary = reproduce.study(study, order.out, order.json, partial(_compared, dataset))
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
    from moac.offline import compat

    files.check_folder("out", order.out)
    table = compat.run(order.data, order.iterations or _COMPAT_STEPS, order.seed)
    order.out.mkdir(parents=True, exist_ok=True)
    files.write_json(order.out / "tscac-compat.json", files.finite(table.as_dict()))
    files.write_bytes(order.out / "tscac-compat.txt", f"{table}\n".encode())
    sys.stdout.write(json.dumps(files.finite(table.as_dict())) + "\n" if order.json else f"{table}\n")
    return 0


def _compared(dataset: LoggedDataset, study: spec.Study, work: Workspace) -> Findings:
    return comparison.compare(dataset, study.parameters, study.seed, work, real=False)


def _study(order: Order, dataset: LoggedDataset) -> spec.Study:
    """The study, with the dataset's name, what was asked for, and the signals that it has."""
    study = spec.load(STUDY, order.quick)
    if not isinstance(study, spec.Study):
        raise ValueError(f"{STUDY} must be a study.")
    given = {"trials": order.trials, "iterations": order.iterations}
    chosen = {name: value for name, value in given.items() if value is not None}
    known = [name for name in study.parameters["judging"]["signals"] if name in dataset.signal_names]
    parameters = {
        **study.parameters,
        "training": {**study.parameters["training"], **chosen},
        "judging": {
            **study.parameters["judging"], "test": order.test, "signals": known or list(dataset.signal_names[:2]),
        },
    }  # fmt: skip
    return replace(study, title=f"{dataset.name}: the comparison", seed=order.seed, parameters=parameters)
