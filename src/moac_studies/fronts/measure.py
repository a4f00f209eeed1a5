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

from moac import envs, settings
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.momdp import library
from moac.runs import runner
from moac.search.explore import candidates, exact, finding, preferences, running, selection
from moac.search.explore.exact import Exact
from moac.training import result
from moac.types import Source
from moac_studies.studies import Workspace

GAE = 0.95
"""As `moac explore` has it."""
Table = Mapping[str, Any]


@final
@dataclass(frozen=True, eq=False)
class Explored:
    """One problem, all seeds.

    Attributes:
        known: the exact front; None where it is not known.
        runs: of each seed `steps` and `cpu` [L] at the ends of its L stages, `returns_0` … [N, M] of the archive then,
            `wall`, and `compiling`, CPU and wall seconds.
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
    steps = np.cumsum([sum(done[k].env_steps for done in outcomes.values()) for k in range(stages)])
    returns = [_kept({rule: done[: k + 1] for rule, done in outcomes.items()}, order) for k in range(stages)]
    return {f"returns_{k}": own for k, own in enumerate(returns)} | {
        "steps": steps, "cpu": cpu * steps / steps[-1], "wall": np.array([wall]), "compiling": np.array(compiling),
    }  # fmt: skip


def _kept(outcomes: Mapping[str, Sequence[result.Result]], order: running.Order) -> Float[np.ndarray, "N M"]:
    """Values of the policies that would be archived if the exploration ended with these stages."""
    found = finding.found(candidates.of(outcomes), order, lambda what, done, total: None)
    return found.points[selection.select(found)]


def _order(problem: Source, table: Table, seed: int) -> running.Order:
    config = Config(
        setting=Discounted(table["discount"]), num_iterations=table["iterations"], gae=GAE, num_evaluations=1
    )
    p = preferences.random(table["preferences"], problem.spec.num_objectives, seed)
    full = settings.complete(config, problem.spec)
    rules, entropies = running.default_rules(problem), running.default_entropies(problem)
    return running.Order(table["env"], seed, full, rules, entropies, p)


def _timed(explore: Callable[[Path], Any]) -> tuple[tuple[float, float], Any]:
    """CPU and wall seconds of an exploration in a folder of its own, and what it gives."""
    with tempfile.TemporaryDirectory() as folder:
        began, began_cpu = time.perf_counter(), time.process_time()
        found = jax.block_until_ready(explore(Path(folder)))
        return (time.process_time() - began_cpu, time.perf_counter() - began), found
