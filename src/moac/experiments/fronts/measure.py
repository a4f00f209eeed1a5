"""Explorations, timed, each kept as arrays."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Float

from moac import components, envs
from moac.config import Config, Discounted
from moac.experiments import runner
from moac.experiments.explore import exact, preferences, running
from moac.experiments.explore.exact import Exact
from moac.experiments.files import Arrays
from moac.experiments.studies import Workspace
from moac.momdp import library
from moac.types import Source

RULE, GAE = "fixed", 0.95
"""As `moac explore` has them."""
_MOMENTS = 20
"""Evaluations of a run, whose CPU time counts too."""

Table = Mapping[str, Any]


@final
@dataclass(frozen=True, eq=False)
class Explored:
    """One problem, all seeds.

    Attributes:
        known: the exact front; None where it is not known.
        runs: of each seed `steps` [L], `cpu` [L], `returns` [K, L, M], `wall`, and `compiling`, CPU and wall seconds.
    """

    known: Exact | None
    runs: tuple[Arrays, ...]

    @property
    def compiling(self) -> float:
        """Seconds that the first exploration took to compile; later ones have its programs."""
        return float(self.runs[0]["compiling"][1])


def explored(table: Table, seeds: Sequence[int], work: Workspace) -> Explored:
    """From the files of an earlier call, or measured now."""
    problem = _problem(table)
    model = library.for_environment(table["env"])
    label = f"{table['env']}-{table['discount']:g}"
    runs = [work.arrays(f"{label}-{s}", {**table, "seed": s}, lambda s=s: _measured(problem, table, s)) for s in seeds]
    return Explored(exact.of(model, Discounted(table["discount"])), tuple(runs))


def _problem(table: Table) -> Source:
    """The exact model, or the environment, eight copies of which stand side by side."""
    return library.for_environment(table["env"]) or envs.make(table["env"], 8)


def _measured(problem: Source, table: Table, seed: int) -> Arrays:
    """Compile by a run of one iteration per stage, then explore."""
    order = _order(problem, table, seed)
    stages = len(order.entropies)
    first = replace(order, config=replace(order.config, num_iterations=stages, num_evaluations=stages))
    compiling, _ = _timed(lambda folder: running.run(first, problem, folder, runner.unseen))
    (cpu, wall), outcomes = _timed(lambda folder: running.run(order, problem, folder, runner.unseen))
    steps, returns = running.joined_history(outcomes[RULE])
    spent = cpu * steps / steps[-1]
    return {
        "steps": steps,
        "cpu": spent,
        "returns": returns,
        "wall": np.array([wall]),
        "compiling": np.array(compiling),
    }


def _order(problem: Source, table: Table, seed: int) -> running.Order:
    config = Config(
        setting=Discounted(table["discount"]), num_iterations=table["iterations"], gae=GAE, num_evaluations=_MOMENTS
    )
    p = preferences.random(table["preferences"], problem.spec.num_objectives, seed)
    full = components.resolved(config, problem)
    return running.Order(table["env"], seed, full, (RULE,), running.default_entropies(problem), p)


def _timed(explore: Callable[[Path], Any]) -> tuple[tuple[float, float], Any]:
    """CPU and wall seconds of an exploration in a folder of its own, and what it gives."""
    with tempfile.TemporaryDirectory() as folder:
        began, began_cpu = time.perf_counter(), time.process_time()
        found = jax.block_until_ready(explore(Path(folder)))
        return (time.process_time() - began_cpu, time.perf_counter() - began), found


def cumulative(returns: Float[np.ndarray, "K L M"], count: int) -> Float[np.ndarray, "N M"]:
    """All that K trials had found by the first `count` evaluations."""
    seen = returns[:, :count].reshape(-1, returns.shape[2])
    return np.unique(seen[np.isfinite(seen).all(axis=1)], axis=0)
