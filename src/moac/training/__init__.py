"""Training: many trials of the algorithm on one problem, in chunks, as an iterator of snapshots.

A source that can be traced is sampled inside the compiled program (`compiled`), any other on the host (`hosted`); what
both share is here: chunks by measured time, evaluations, snapshots. A snapshot holds all that is needed to go on.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moac.training import compiled, hosted
from moac.training.run import (
    History,
    Run,
    Snapshot,
    Trial,
    evaluation_allowance,
    evaluation_iterations,
    mean_over_trials,
    template,
)

__all__ = [
    "Pace", "Run", "Snapshot", "Trial", "evaluation_iterations", "first", "iterate", "mean_over_trials",
    "template",
]  # fmt: skip

SECONDS = 0.5
"""Seconds that a chunk is meant to take: half of what may pass between two snapshots, since machines are shared."""
_GROWTH = 4  # a chunk has at most this many times the iterations of the one before


def iterate(run: Run, snapshot: Snapshot | None = None, stop_every: int | None = None) -> Iterator[Snapshot]:
    """Train and yield a snapshot after each chunk; the last one is the result.

    Args:
        run: the problem, the configuration and the parts.
        snapshot: where training continues: a snapshot of this run, or another run's `snapshot.as_start()`. None is the
            start. On a model or a log the run ends as if it had never stopped, bit for bit; an environment starts new
            episodes, with seeds that follow from (seed, trial, iteration).
        stop_every: chunks also end at multiples of this many iterations; the numbers are the same.
    """
    trials, pace = _trials(run, snapshot), Pace()
    iteration, history = (0, History.empty()) if snapshot is None else (snapshot.iteration, snapshot.history)
    evaluated = set(evaluation_iterations(run.settings).tolist())
    stops = () if stop_every is None else range(stop_every, run.settings.num_iterations + 1, stop_every)
    for target in sorted(t for t in evaluated.union(stops) if t > iteration):
        while iteration < target:
            count = min(pace.longest, target - iteration)
            with pace.timed(count):
                trials.advance(count)
            iteration += count
            if iteration in evaluated:
                evaluation = trials.evaluate(evaluation_allowance(run, iteration, history))
                if evaluation is not None:
                    history = history.extended(iteration, trials.metrics(), evaluation)
            yield Snapshot(iteration, trials.stored(), history)


def first(run: Run) -> Snapshot:
    """A run before its first iteration."""
    return Snapshot(0, _trials(run, None).stored(), History.empty())


def _trials(run: Run, snapshot: Snapshot | None) -> compiled.Blocks | hosted.Chains:
    return (compiled.Blocks if run.source.compiled else hosted.Chains)(run, snapshot)


@dataclass(eq=False)
class Pace:
    """The length of the next chunk, by the time that earlier chunks took.

    The first chunk has one iteration: what an iteration costs is not known yet, and this chunk includes compiling. A
    chunk that ended early, because an evaluation was due, has a larger share of fixed costs: it makes later chunks
    shorter only where it took too long itself.
    """

    longest: int = 1  # iterations of the next chunk, at most

    @contextmanager
    def timed(self, iterations: int) -> Generator[None]:
        """Time a chunk of this many iterations, and set the length of the next."""
        began = time.perf_counter()
        yield
        self.adapt(iterations, time.perf_counter() - began)

    def adapt(self, iterations: int, seconds: float) -> None:
        """Set the length of the next chunk, given what the last one had and took."""
        fitting = int(min(SECONDS / max(seconds, 1e-9), _GROWTH) * iterations)
        if iterations == self.longest or fitting < iterations:
            self.longest = max(1, fitting)
