"""The study `fronts`: what explorations find, against steps and CPU seconds, beside morl-baselines' agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from moac import envs, statistics
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.momdp import hypervolume, library
from moac.report.numbers import Value
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.search import EXPLORING, archive, explore, values
from moac.search.measures import REACH, Yardstick
from moac.search.plan import Options, Plan
from moac.training import result
from moac.types import Source
from moac_studies import compare, drawings, framework, one_network, recorded
from moac_studies.framework import Study, Tables, Workspace

OURS, MINUTE = "moac explore", 60.0
_STOCHASTIC, _NOISY = "resource-gathering-v0", 0.05
"""Where a peer's points are means of episodes, and what counts as found there."""


@dataclass(frozen=True, eq=False)
class Explored:
    """One problem, all seeds."""

    known: Yardstick | None  # the exact front; None where it is not known
    # of each seed `steps` and `cpu` [L] at the ends of its L stages, `returns_0` … [N, M] of the archive then,
    # `wall`, and `compiling`, CPU and wall seconds
    runs: tuple[Arrays, ...]

    @property
    def compiling(self) -> float:
        """Seconds that the first exploration took to compile; later ones have its programs."""
        return float(self.runs[0]["compiling"][1])


@dataclass(frozen=True, eq=False)
class Curve:
    """One seed of one method: after each of L moments the CPU seconds, steps, volume and hull points found."""

    cpu: Float[np.ndarray, " L"]
    steps: Float[np.ndarray, " L"]
    volume: Float[np.ndarray, " L"]
    hull: Float[np.ndarray, " L"]

    def at(self, quantity: str, seconds: float) -> float:
        """A value after so many CPU seconds, a tenth more counts as within; 0 where nothing had been found."""
        within = np.flatnonzero(self.cpu <= 1.1 * seconds)
        return float(getattr(self, quantity)[within[-1]]) if len(within) else 0.0


Several = Mapping[str, Explored]  # by problem
Curves = Mapping[str, list[Curve]]  # The seeds by method


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    measuring = study.parameters["measuring"]
    problems = {name: study.parameters["problems"][name] for name in measuring["problems"]}
    seeds = range(study.seed, study.seed + measuring["seeds"])
    explored = {name: _explored(table, seeds, work) for name, table in problems.items()}
    longer = {name: {**problems[name], "iterations": measuring["whole_iterations"]} for name in measuring["whole"]}
    first = seeds[: measuring["whole_seeds"]]
    whole = {name: _explored(table, first, work) for name, table in longer.items()}
    found = findings(problems, explored, whole, float(measuring["seconds"]))
    networks = one_network.measure(study, work)  # one for every preference, with seeds of their own
    if not networks:
        return found
    claims = (*one_network.claims(networks), *found.claims)
    return replace(found, claims=claims, tables=(one_network.table(networks), *found.tables))


def _explored(table: framework.Table, seeds: Sequence[int], work: Workspace) -> Explored:
    """From the files of an earlier call, or measured now: the exact model, or eight copies of the environment."""
    model = library.for_environment(table["env"])
    problem, label = model or envs.make(table["env"], 8), f"{table['env']}-{table['discount']:g}"
    runs = [work.keep(f"{label}-{s}", {**table, "seed": s}, lambda s=s: _measured(problem, table, s)) for s in seeds]
    return Explored(Yardstick.exact(model, Discounted(table["discount"])), tuple(runs))


def _measured(problem: Source, table: framework.Table, seed: int) -> Arrays:
    """Compile by a run of one iteration per stage, then explore."""
    fields: dict[str, Any] = {**EXPLORING, "num_iterations": table["iterations"], "num_evaluations": 1}
    config = Config(setting=Discounted(table["discount"]), **fields)
    plan = Plan.of(Options(config, table["preferences"], seed=seed), problem)
    stages = len(plan.entropies)
    first = replace(plan, config=replace(plan.config, num_iterations=stages, num_evaluations=stages))
    compiling, _ = _timed(lambda: explore.train(first, problem))
    (cpu, wall), outcomes = _timed(lambda: explore.train(plan, problem))
    steps = np.cumsum([sum(done[k].env_steps for done in outcomes.values()) for k in range(stages)])
    returns = [_kept({rule: done[: k + 1] for rule, done in outcomes.items()}, plan) for k in range(stages)]
    clocks = {"cpu": cpu * steps / steps[-1], "wall": np.array([wall]), "compiling": np.array(compiling)}
    return {f"returns_{k}": points for k, points in enumerate(returns)} | {"steps": steps} | clocks


def _kept(stages: Mapping[str, Sequence[result.Result]], plan: Plan) -> Float[np.ndarray, "N M"]:
    """Values of the policies that would be archived if the exploration ended with these stages."""
    valued = values.evaluate(values.candidates(stages), plan, lambda what, done, total: None)
    return valued.archive.points[archive.select(valued.archive)]


def _timed(train: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """CPU and wall seconds of an exploration, and what it gives."""
    began, began_cpu = time.perf_counter(), time.process_time()
    trained = jax.block_until_ready(train())
    return (time.process_time() - began_cpu, time.perf_counter() - began), trained


def findings(tables: Tables, explored: Several, whole: Several, seconds: float) -> Findings:
    """Problem by problem, after so many CPU seconds; `explored` in about as many, `whole` of the default length."""
    curves = {name: _curves(tables[name], explored[name]) for name in tables}
    claims = [all_hull(name, longer, explored[name].compiling, tables[name]) for name, longer in whole.items()]
    claims += [above_peers(name, curves[name], seconds) for name in tables]
    listed = [_table(name, tables[name], explored[name], curves[name], seconds) for name in tables]
    known = {name: methods for name, methods in curves.items() if explored[name].known is not None}
    shown = (
        _figure("Hypervolume over CPU seconds", "volume", "Hypervolume of the policies kept", curves),
        _figure("Hull points over CPU seconds", "hull", "Points of the exact hull that are found", known),
    )
    return Findings(tuple(claims), tuple(listed), shown)


def _curves(table: framework.Table, own: Explored) -> dict[str, list[Curve]]:
    """Of ours and of all peers, by one reference."""
    reference, known = _reference(table, own.known), own.known
    reach = _NOISY if table["env"] == _STOCHASTIC else REACH

    def curve(cpu: Any, steps: Any, points: list[Any], reach: float) -> Curve:
        volume = np.array([hypervolume(each, reference) for each in points])
        hull = [np.nan if known is None else float((known.shortfalls(each) <= reach).sum()) for each in points]
        return Curve(np.asarray(cpu, float), np.asarray(steps, float), volume, np.array(hull))

    def of_run(run: Arrays) -> Curve:
        return curve(run["cpu"], run["steps"], [run[f"returns_{k}"] for k in range(len(run["steps"]))], REACH)

    def of_peer(seen: list[dict[str, Any]]) -> Curve:
        cpu, steps, returns = ([one[key] for one in seen] for key in ("cpu", "steps", "returns"))
        return curve(cpu, steps, [np.array(points) for points in returns], reach)

    peers = recorded.fronts(table["env"], table["discount"])
    return {OURS: [of_run(run) for run in own.runs]} | {
        method: [of_peer(seen) for seen in seeds] for method, seeds in peers.items()
    }


def _reference(table: framework.Table, known: Yardstick | None) -> Float[np.ndarray, " M"]:
    return np.array(table["reference"]) if known is None else known.reference


def all_hull(name: str, own: Explored, compiling: float, table: framework.Table) -> Claim:
    """All points of the hull within a minute, with what the first exploration of the problem took to compile."""
    total = 0 if own.known is None else len(own.known.hull)
    counts = [int(curve.hull[-1]) for curve in _curves(table, own)[OURS]]
    walls = [float(run["wall"][0]) + compiling for run in own.runs]
    return compare.claim(
        f"On {name} every point of the exact hull is found within a minute",
        f"{', '.join(map(str, counts))} of {total} points, in {', '.join(f'{wall:.0f}' for wall in walls)} s, "
        f"{compiling:.0f} of them to compile",
        [compare.known(count == total and wall <= MINUTE) for count, wall in zip(counts, walls, strict=True)],
        f"{name}: what is found",
    )


def above_peers(name: str, curves: Curves, seconds: float) -> Claim:
    """The hypervolume at equal CPU time, against each peer, whose seeds are its own."""
    volumes = {method: [curve.at("volume", seconds) for curve in seeds] for method, seeds in curves.items()}
    ours = volumes.pop(OURS)
    differences = {method: compare.apart(ours, theirs) for method, theirs in volumes.items()}
    told = "; ".join(f"{peer} {statistics.mean(volumes[peer])}, difference {d}" for peer, d in differences.items())
    return compare.claim(
        f"On {name} the hypervolume after {seconds:g} CPU seconds is above every peer's",
        f"{statistics.mean(ours)}; {told}.",
        map(compare.above, differences.values()),
        f"{name}: what is found",
    )


def _table(name: str, table: framework.Table, own: Explored, curves: Curves, seconds: float) -> Table:
    """One row per method."""
    rows: list[tuple[Value, ...]] = []
    for method, seeds in curves.items():
        steps, volume, hull = (
            statistics.mean([curve.at(key, seconds) for curve in seeds]) for key in ("steps", "volume", "hull")
        )
        points = "–" if own.known is None else str(hull)
        rows.append((method, len(seeds), f"{steps.value:.3g}", str(volume), points))
    if own.known is not None:
        whole = hypervolume(own.known.front, _reference(table, own.known))
        points = f"{len(own.known.hull)} of {len(own.known.front)}"
        rows.append(("exact front", None, None, f"{whole:.3g}", points))
    caption = (
        f"After {seconds:g} CPU seconds of training: means over seeds with 95 % intervals; hull points within 1 % of "
        f"the range ({100 * _NOISY:g} % for peers on resource-gathering). Compiling took ours {own.compiling:.0f} s "
        f"more, once. Peers: {recorded.fronts_source()}."
    )
    header = ("method", "seeds", "steps", "hypervolume", "hull points")
    return Table(f"{name}: what is found", caption, header, tuple(rows))


def _figure(title: str, quantity: str, what: str, curves: Mapping[str, Curves]) -> Shown:
    """One panel per problem. Seeds stand at nearly the same moments; the last of those that have fewer is repeated."""
    methods = list(dict.fromkeys(method for own in curves.values() for method in own))

    def drawn(method: str, seeds: list[Curve]) -> drawings.Curve:
        longest = max(len(curve.cpu) for curve in seeds)
        pads = [(0, longest - len(curve.cpu)) for curve in seeds]
        cpu, values = (
            np.array([np.pad(getattr(curve, key), pad, "edge") for curve, pad in zip(seeds, pads, strict=True)])
            for key in ("cpu", quantity)
        )
        return drawings.Curve(method, cpu.mean(axis=0), values, methods.index(method))

    panels: list[drawings.Panel] = []
    for name, own in curves.items():
        lines = tuple(drawn(method, seeds) for method, seeds in own.items())
        panels.append(drawings.Panel(name, ("CPU seconds", what.lower()), lines, log_y=False))
    return Shown(
        title,
        f"{quantity}s",
        drawings.curves(panels, columns=min(3, len(panels))),
        f"{what}: means over seeds with 95 % bands. CPU seconds of training, without compiling.",
        "Line plots over CPU seconds, one panel per problem and one line per method.",
    )
