"""Explorations, timed, each kept as arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Float

from moac import envs
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.momdp import library
from moac.search import EXPLORING, archive, explore, values
from moac.search.measures import Exact
from moac.training import result
from moac.types import Source
from moac_studies.studies import Workspace

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
    return Explored(Exact.of(model, Discounted(table["discount"])), tuple(runs))


def _problem(table: Table) -> Source:
    """The exact model, or the environment, eight copies of which stand side by side."""
    return library.for_environment(table["env"]) or envs.make(table["env"], 8)


def _measured(problem: Source, table: Table, seed: int) -> Arrays:
    """Compile by a run of one iteration per stage, then explore."""
    plan = _plan(problem, table, seed)
    stages = len(plan.entropies)
    first = replace(plan, config=replace(plan.config, num_iterations=stages, num_evaluations=stages))
    compiling, _ = _timed(lambda: explore.train(first, problem))
    (cpu, wall), outcomes = _timed(lambda: explore.train(plan, problem))
    steps = np.cumsum([sum(done[k].env_steps for done in outcomes.values()) for k in range(stages)])
    returns = [_kept({rule: done[: k + 1] for rule, done in outcomes.items()}, plan) for k in range(stages)]
    return {f"returns_{k}": own for k, own in enumerate(returns)} | {
        "steps": steps, "cpu": cpu * steps / steps[-1], "wall": np.array([wall]), "compiling": np.array(compiling),
    }  # fmt: skip


def _kept(stages: Mapping[str, Sequence[result.Result]], plan: explore.Plan) -> Float[np.ndarray, "N M"]:
    """Values of the policies that would be archived if the exploration ended with these stages."""
    valued = values.evaluate(values.candidates(stages), plan.preferences, lambda what, done, total: None)
    return valued.points[archive.select(valued)]


def _plan(problem: Source, table: Table, seed: int) -> explore.Plan:
    fields: dict[str, Any] = {**EXPLORING, "num_iterations": table["iterations"], "num_evaluations": 1}
    config = Config(setting=Discounted(table["discount"]), **fields)
    return explore.Plan.of(explore.Options(config, table["preferences"], seed=seed), problem, table["env"])


def _timed(train: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """CPU and wall seconds of an exploration, and what it gives."""
    began, began_cpu = time.perf_counter(), time.process_time()
    trained = jax.block_until_ready(train())
    return (time.process_time() - began_cpu, time.perf_counter() - began), trained
