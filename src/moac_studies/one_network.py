"""The networks' part of the study `fronts`: one network for every preference, on environments, beside what is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import api, envs, statistics
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.momdp import hypervolume, library
from moac.report.numbers import Value, number
from moac.report.page import Claim, Table
from moac.search import EXPLORING, archive, values
from moac.search.measures import Yardstick
from moac.search.plan import ASKED
from moac.statistics import Mean
from moac.training.trained import TrainedPolicy
from moac_studies import environments, framework, recorded
from moac_studies.framework import Study, Workspace

TITLE, COPIES = "One network for every preference", 16
_NEAR = 0.05  # a hull point is reached within this share of the front's range
_FEW = 5  # so many preferences, the best by discounted return, are compared by their undiscounted return
_PLAYED = 20
"""Episodes that the best by their undiscounted return are chosen by."""
_MEASURED = ("env", "options", "steps", "preferences", "config", "played")
"""What a trial depends on, where its table has it; bars, references and peers may change afterwards."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One environment, all seeds: `points`, `low` and `high` [N, M] at each preference, and the index of `archived`.

    `cpu` has the seconds of all of it, `steps` the environment steps of the training, and `evaluation_steps` all
    others. Where the table has `played`, `first` is what the best preference earns of the first objective,
    undiscounted, in as many further episodes.
    """

    runs: tuple[Arrays, ...]
    table: framework.Table

    @cached_property
    def setting(self) -> Discounted:
        """What the returns are."""
        setting = Config.from_json(self.table["config"]).setting
        return setting if isinstance(setting, Discounted) else Discounted()

    @cached_property
    def known(self) -> Yardstick | None:
        """The exact front; None where there is no model."""
        return Yardstick.exact(library.for_environment(self.table["env"]), self.setting)

    @cached_property
    def reference(self) -> Sequence[float]:
        """Of the hypervolume: the table's, or a tenth of the range below the worst of the exact front."""
        if "reference" in self.table or self.known is None:
            return self.table["reference"]
        return self.known.reference.tolist()

    def mean(self, quantity: str) -> float:
        """The mean over seeds of a number that each of them has."""
        return float(np.mean([run[quantity].sum() for run in self.runs]))

    def volumes(self, reference: Sequence[float] | None = None) -> Float[np.ndarray, " S"]:
        """The hypervolume of each seed, of all its points as they were valued: nothing is filtered."""
        above = np.array(self.reference if reference is None else reference)
        return np.array([hypervolume(run["points"], above) for run in self.runs])


def measure(study: Study, work: Workspace) -> dict[str, Measured]:
    """All environments and seeds of a study side by side; an environment of which no seed has ended is left out."""
    measuring, shared = study.parameters["measuring"], study.parameters["shared"]
    tables = {name: {**shared, **study.parameters["networks"][name]} for name in measuring["networks"]}
    rows = [(name, seed) for name, table in tables.items() for seed in _seeds(table, measuring)]
    done = work.side_by_side(trial, [(f"{name}-{seed}", job(tables[name], seed)) for name, seed in rows])
    runs: dict[str, tuple[Arrays, ...]] = dict.fromkeys(tables, ())
    for (name, _), arrays in zip(rows, done, strict=True):
        runs[name] += () if arrays is None else (arrays,)
    return {name: Measured(runs[name], table) for name, table in tables.items() if runs[name]}


def job(table: framework.Table, seed: int) -> framework.Table:
    """What one trial depends on."""
    return {name: table[name] for name in _MEASURED if name in table} | {"seed": seed}


def _seeds(table: framework.Table, measuring: framework.Table) -> range:
    """Of an environment: as many, from the same on, as the study has unless its table says otherwise."""
    first = table.get("first_seed", measuring["network_seed"])
    return range(first, first + table.get("seeds", measuring["network_seeds"]))


def trial(table: framework.Table) -> Arrays:
    """The exploration of `command`: one network, asked for a grid of preferences."""
    environment = envs.make(table["env"], COPIES, **table.get("options", {}))
    config = Config.from_json({**EXPLORING, **table["config"]})
    began = time.process_time()
    explored = api.explore(
        environment, config, steps=table["steps"], preferences=table["preferences"], seed=table["seed"]
    ).exploration
    cpu = time.process_time() - began

    valued = explored.candidates
    found = {"points": valued.points, "low": valued.low, "high": valued.high, "preferences": valued.preferences}
    found["archived"] = archive.select(valued)
    found["cpu"] = np.array([cpu])
    record = explored.record()
    found["steps"] = np.array([record["env_steps"]])
    found["evaluation_steps"] = np.array([record["evaluation_steps"]])
    if "played" in table:
        best = _best_at_the_first(environment, explored.outcome.policy, found, _PLAYED)
        found["first"] = environments.played(environment, best, table["played"])["returns"][:, 0]
    return found


def command(table: framework.Table) -> str:
    """The line that measures one seed of a table; add `--seed`."""
    reference = table.get("reference")
    if "options" in table:
        made = ", ".join([f'"{table["env"]}"', *(f"{name}={value}" for name, value in table["options"].items())])
        above = "" if reference is None else f", reference={tuple(reference)}"
        return f"moac.explore(moac.envs.make({made}), steps={table['steps']}{above})"
    words = ["moac", "explore", table["env"]]
    if library.for_environment(table["env"]) is not None:
        words.append("--blackbox")
    words += ["--steps", str(table["steps"])]
    if table["preferences"] != ASKED:
        words += ["--preferences", str(table["preferences"])]
    for name, value in table["config"].items():
        option, given = name.replace("_", "-"), value
        if name == "setting":
            option, given = "discount", value["discount"]
        words += [f"--{option}", str(given)]
    if reference is not None:
        words += ["--reference", *(f"{value:g}" for value in reference)]
    return " ".join(words)


def _best_at_the_first(source: envs.Environment, network: TrainedPolicy, found: Arrays, count: int) -> TrainedPolicy:
    """The network at the preference that earns most of the first objective, undiscounted.

    It is one of the few whose discounted return is highest. The undiscounted one is a mean over `count` episodes.
    """
    few = [network.at(p) for p in found["preferences"][np.argsort(-found["points"][:, 0])[:_FEW]]]
    return max(few, key=lambda one: values.by_episodes(source, one, (one.trial,), count).returns[0].value)


def claims(measured: Mapping[str, Measured]) -> list[Claim]:
    """One for each bar of the study's file; environments without one are reported alone."""
    return [_claim(name, *bar) for name, own in measured.items() for bar in _bars(own)]


def _bars(own: Measured) -> list[tuple[str, Any, float, bool]]:
    """What is asked, its value in each seed, the bar, and whether every seed must reach it or the mean."""
    table, volumes, bars = own.table, own.volumes(), list[tuple[str, Any, float, bool]]()
    if "least" in table:
        bars.append(("hypervolume in the mean", volumes, table["least"], False))
    if "smallest" in table:
        bars.append(("hypervolume of every seed", volumes, table["smallest"], True))
    if "first" in table:
        best = np.array([run["first"].item() for run in own.runs])
        bars.append(("best undiscounted first objective of every seed", best, table["first"], True))
    if "apart" in table:
        several = np.array([len(run["archived"]) >= table["apart"] for run in own.runs], dtype=float)
        bars.append(
            (f"share of seeds with {table['apart']} archived points that intervals tell apart", several, 0.5, False)
        )
    if "hull" in table:
        bars.append(("number of hull points within 5 % in the mean", _hull_found(own), table["hull"], False))
    return bars


def _hull_found(own: Measured) -> Float[np.ndarray, " S"]:
    """Points of the exact hull within 5 % of the range."""
    if own.known is None:
        return np.full(len(own.runs), np.nan)
    return np.array([float((own.known.shortfalls(run["points"]) <= _NEAR).sum()) for run in own.runs])


def _claim(name: str, what: str, found: Any, least: float, every: bool) -> Claim:
    mean, low, high = statistics.mean(found), float(found.min()), float(found.max())
    holds = low >= least if every else mean.value >= least
    said = f"On {name} one network has a {what} of at least {number(least)}"
    told = f"{mean}; {len(found)} seeds between {low:,.4g} and {high:,.4g}."
    if len(found) == 1:
        return Claim(said, f"One seed has {low:,.4g}: too few to judge.", "not decided", TITLE)
    return Claim(said, told, "holds" if holds else "does not hold", TITLE)


def table(measured: Mapping[str, Measured]) -> Table:
    """One row for each environment."""
    header = (
        "environment", "command", "seeds", "hypervolume", "above", "steps: training + evaluations", "bar",
        "best peer", "ceiling", "CPU s",
    )  # fmt: skip
    caption = (
        "Hypervolume of the front that one network has on a grid of preferences, as the command gives it with "
        "`--seed` added: of all policies that were valued, each by new episodes that chose nothing; mean over seeds "
        "with its 95 % interval, smallest and largest seed. A volume of noisy means is biased upwards, for all alike; "
        "nothing is filtered after valuing. Steps are calls of the environment's `step`, for training and for "
        "everything else. Peers have as many for training, or what they had when they were stopped, and are valued at "
        "up to as many points in 20 episodes. Published values have settings of their own. A ceiling is the volume of "
        "the exact front, or of the environment's own, which policies that choose at random may exceed. Options are "
        "those of the command, chosen on other seeds. CPU seconds include compiling, unless a program of the same "
        f"kind was kept on disk. {recorded.one_front_source()}"
    )
    return Table(TITLE, caption, header, tuple(_row(name, own) for name, own in measured.items()))


def _row(name: str, own: Measured) -> tuple[Value, ...]:
    volumes, table = own.volumes(), own.table
    told = [f"{statistics.mean(volumes)}, {volumes.min():,.4g} to {volumes.max():,.4g}"]
    told += [f"{statistics.mean(own.volumes(each))} above {_shown(each)}" for each in table.get("also", ())]
    bar = f"{table['least']:,g}" if "least" in table else None
    ceiling = own.table.get("ceiling") if own.known is None else hypervolume(own.known.front, np.array(own.reference))
    return (
        name, command(table), len(volumes), "; ".join(told), _shown(own.reference),
        f"{own.mean('steps'):,.0f} + {own.mean('evaluation_steps'):,.0f}", bar, best_peer(own),
        None if ceiling is None else f"{ceiling:,.4g}", f"{own.mean('cpu'):.0f}",
    )  # fmt: skip


def best_peer(own: Measured, told: Callable[[Mean], str] = str) -> str | None:
    """Of the agents on record the one with the largest mean volume above the same reference; else what is published.

    `told` writes that mean.
    """
    peers = recorded.one_front(own.table["env"], own.setting.discount, own.table["steps"])
    volumes = {name: [hypervolume(np.array(run["points"]), np.array(own.reference)) for run in runs]
               for name, runs in peers.items()}  # fmt: skip
    if not volumes:
        return own.table.get("published")
    best = max(volumes, key=lambda name: float(np.mean(volumes[name])))
    steps, cpu = (np.mean([run[key] for run in peers[best]]) for key in ("steps", "cpu"))
    volume, count = told(statistics.mean(volumes[best])), len(peers[best])
    peer = f"{best} {volume}, {count} seeds, {steps:,.0f} steps in {cpu:.0f} CPU s"
    return f"{peer}; {own.table['published']}" if "published" in own.table else peer


def _shown(reference: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.4g}' for value in reference)})".replace("-", "−")
