"""Training: many trials of the algorithm on one problem, in chunks, as an iterator of snapshots.

A snapshot holds all that is needed to go on from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from moac.training import compiled, hosted
from moac.training.compiled import WIDTH
from moac.training.run import Run, Snapshot, Trial, evaluation_iterations, mean_over_trials, total_iterations

__all__ = [
    "WIDTH",
    "Run",
    "Snapshot",
    "Trial",
    "evaluation_iterations",
    "iterate",
    "mean_over_trials",
    "template",
    "total_iterations",
]


def iterate(run: Run, snapshot: Snapshot | None = None) -> Iterator[Snapshot]:
    """Train and yield a snapshot after each chunk; the last one is the result.

    Args:
        run: what is to be run.
        snapshot: where to go on: one of this run, or another run's `snapshot.as_start()`. None is the start.
    """
    return (compiled if run.source.compiled else hosted).iterate(run, snapshot)


def template(run: Run) -> Trial:
    """Shapes and dtypes of a snapshot's trials."""
    return (compiled if run.source.compiled else hosted).template(run)
