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
            row |= learned(framework.load("learning"), work, row)
        rows = {row["environment"]: row for row in record["one_network"]}
        for new in fronts(framework.load("fronts"), work):
            rows[new["environment"]] = new
        order = framework.load("fronts").parameters["measuring"]["networks"]
        record["one_network"] = [rows[name] for name in order if name in rows]
    _recorded.write(record)


def learned(study: Study, work: Workspace, row: Row) -> Row:
    """The row with what has finished, by method in the unit that its name ends with, and a trial's evaluation steps."""
    name, _, unit = row["environment"].partition(", ")
    table = learning.tables(study)[name]
    values, other_steps = dict(row["values"]), {}
    for _, method, label, job in learning.rows_of(name, table, study):
        arrays = work.finished(label, job)
        if arrays is None or learning.DEFAULTS in method:
            continue
        measured = arrays["discounted"].sum(axis=1)
        if row["measured"] == "hypervolume":
            measured = environments.volumes(arrays["discounted"], table["reference"])
        if unit == "millions":
            measured = measured / 1e6
        values[method] = _mean(measured)
        if method == "MOAC" and "evaluation_steps" in arrays:
            other_steps = {"evaluation_steps": round(arrays["evaluation_steps"].item())}
    return row | {"values": values} | other_steps


def fronts(study: Study, work: Workspace) -> list[Row]:
    """The rows of which a seed is there."""
    return [_front(name, own) for name, own in one_network.measure(study, work).items()]


def _front(name: str, own: one_network.Measured) -> Row:
    """One row: the command, both kinds of environment steps, and the volume over seeds."""
    volumes = own.volumes()
    volume = _mean(volumes)
    if len(volumes) > 1:
        volume += _short([volumes.min(), volumes.max()])
    return {
        "environment": name,
        "command": one_network.command(own.table),
        "steps": round(own.mean("steps")),
        "evaluation_steps": round(own.mean("evaluation_steps")),
        "seeds": len(volumes),
        "volume": volume,
        "bar": own.table.get("least"),
        "peer": one_network.best_peer(own, lambda mean: interval([mean.value, mean.low, mean.high])),
        "cpu": round(own.mean("cpu")),
    }


def _mean(values: Any) -> list[float]:
    """Value, and the ends of the interval where there is one."""
    mean = statistics.mean(values)
    return _short([mean.value] if mean.trials < 2 else [mean.value, mean.low, mean.high])


def _short(values: Any) -> list[float]:
    return [float(f"{value:.4g}") + 0.0 for value in values]


if __name__ == "__main__":
    main(sys.argv[1:])
