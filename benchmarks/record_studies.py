"""Record what `moac reproduce learning` and `fronts` have measured:  python benchmarks/record_studies.py OUT [OUT ...].

Takes over what has finished below the folders OUT, whether or not the study has ended there: means over trials or seeds
with their 95 % intervals, into the rows of benchmarks/recorded.json. What was not measured in OUT stays as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _recorded
import numpy as np
from tables import interval

from moac import statistics
from moac_studies import environments, framework, learning, one_network
from moac_studies.framework import Job, Study, Table, Workspace

Row = dict[str, Any]


class Finished(Workspace):
    """Measures nothing."""

    def side_by_side(self, measure: Callable[[Table], Any], jobs: Sequence[Job]) -> list[Any]:
        """What was measured before."""
        del measure
        return [self.finished(*job) for job in jobs]


def main(folders: list[str]) -> None:
    """Both studies, folder by folder."""
    record = _recorded.read()
    for folder in folders:
        work = Finished(Path(folder) / "tasks", print)
        for row in record["learning"]:
            row["values"] |= learned(framework.load("learning"), work, row)
        for new in fronts(framework.load("fronts"), work):
            old = next((row for row in record["one_network"] if row["environment"] == new["environment"]), None)
            record["one_network"] += [new] if old is None else []
            (old or new).update(new)
    order = framework.load("fronts").parameters["measuring"]["networks"]
    record["one_network"].sort(key=lambda row: order.index(row["environment"]))
    _recorded.write(record)


def learned(study: Study, work: Workspace, row: Row) -> dict[str, list[float]]:
    """By method what `row` says is measured, in the unit that its name ends with."""
    name, _, unit = row["environment"].partition(", ")
    table, found = learning.tables(study)[name], dict[str, list[float]]()
    for _, method, label, job in learning.rows_of(name, table, study):
        arrays = work.finished(label, job)
        if arrays is not None and learning.DEFAULTS not in method:
            J = arrays["discounted"]
            volume = row["measured"] == "hypervolume"
            values = environments.volumes(J, table["reference"]) if volume else J.sum(axis=1)
            found[method] = _mean(values / (1e6 if unit == "millions" else 1))
    return found


def fronts(study: Study, work: Workspace) -> list[Row]:
    """The rows of which a seed is there."""
    return [_front(name, own) for name, own in one_network.measure(study, work).items()]


def _front(name: str, own: one_network.Measured) -> Row:
    volumes, steps = own.volumes(), int(own.runs[0]["steps"][0])
    spread = _short([volumes.min(), volumes.max()]) if len(volumes) > 1 else []
    cpu = np.mean([run["cpu"] for run in own.runs], axis=0)
    peer = one_network.best_peer(own, lambda mean: interval([mean.value, mean.low, mean.high]))
    about = {"environment": name, "steps": steps, "seeds": len(volumes), "volume": [*_mean(volumes), *spread]}
    return about | {"bar": own.table.get("least"), "peer": peer, "cpu": [round(float(x)) for x in cpu]}


def _mean(values: Any) -> list[float]:
    """Value, and the ends of the interval where there is one."""
    mean = statistics.mean(values)
    return _short([mean.value] if mean.trials < 2 else [mean.value, mean.low, mean.high])


def _short(values: Any) -> list[float]:
    return [float(f"{value:.4g}") + 0.0 for value in values]


if __name__ == "__main__":
    main(sys.argv[1:])
