"""Agents of morl-baselines beside ours, as scripts of `benchmarks` recorded them once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.report.numbers import Value
from moac.report.page import Table
from moac.statistics import mean


@cache
def record(study: str) -> dict[str, Any]:
    """The whole record of the peers of a study."""
    return json.loads((resources.files("moac_studies") / "recorded" / f"{study}.json").read_text(encoding="utf-8"))


def _versions(data: dict[str, Any], *packages: str) -> str:
    return ", ".join(f"{name} {data['versions'][name]}" for name in packages)


def training_table(env: str) -> Table | None:
    """The methods on an environment: steps, returns, hypervolume and CPU time; None where none were recorded."""
    peers = record("training")["environments"].get(env)
    if peers is None:
        return None
    has_utility = all("utility" in method for method in peers["methods"])
    header = ("method", "steps", *peers["objectives"], *(("utility",) if has_utility else ()), "hypervolume", "CPU s")
    front: tuple[Value, ...] = (
        f"exact front, {peers['front']['points']} points",
        *(None for _ in header[1:-2]),
        f"{peers['front']['hypervolume']:.3f}",
        None,
    )
    rows = tuple(_row(method, has_utility) for method in peers["methods"])
    return Table("Peers", _caption(peers), header, (*rows, front))


def _row(method: dict[str, Any], has_utility: bool) -> tuple[Value, ...]:
    columns = [*zip(*method["returns"], strict=True), *((method["utility"],) if has_utility else ())]
    returns, volume = (str(mean(column)) for column in columns), f"{method['hypervolume']:.3f}"
    seconds, first = f"{np.mean(method['cpu_seconds']):.2g}", method.get("cpu_seconds_with_compilation")
    if first is not None:
        seconds += f" ({np.mean(first):.2g} with compilation)"
    return method["name"], method["steps"], *returns, volume, seconds


def _caption(peers: dict[str, Any]) -> str:
    data = record("training")
    settings = "; ".join(f"{method['name']}: {method['settings']}" for method in peers["methods"])
    simulated = [method["name"] for method in peers["methods"] if method["evaluation"] == "simulated"]
    means = f", but for {', '.join(simulated)}: means of {data['episodes']} simulated episodes" if simulated else ""
    seeds, reference = len(data["seeds"]), ", ".join(f"{value:g}" for value in peers["reference"]).replace("-", "−")
    return (
        f"Recorded once by {data['command']}, not measured in this run: "
        f"{_versions(data, 'morl-baselines', 'torch', 'moac', 'jax')}; {data['machine']['cpu']}, "
        f"{data['machine']['cores']} cores shared with other work. {settings}; all else as each library has it, not "
        f"tuned for this. Means of {seeds} seeds with 95 % intervals. Returns are discounted by {data['discount']} and "
        f"exact, from the policy and the model{means}. The hypervolume is that of the {seeds} seeds' points together "
        f"above ({reference}): it also pays for seeds that end apart. CPU seconds are per run, of training "
        f"alone; MOAC computed 64 trials at once, and its {seeds} share a cost that one alone would bear. "
        f"{peers['note']}"
    )


@dataclass(frozen=True, eq=False)
class NetworkPeer:
    """The agent with networks that is nearest to ours on an environment."""

    name: str  # of the agent
    settings: str  # what is not the library's own
    steps: int  # of the environment, per seed
    discounted: Float[np.ndarray, "S M"]  # [S, M] mean return of each seed's final policy
    cpu_seconds: float  # mean over seeds, of training alone


def network_peer(env: str) -> NetworkPeer | None:
    """The record on an environment; None where there is none."""
    peer: dict[str, Any] | None = record("networks")["environments"].get(env)
    if peer is None:
        return None
    seconds = float(np.mean(peer["cpu_seconds"]))
    return NetworkPeer(peer["name"], peer["settings"], peer["steps"], np.array(peer["returns"]), seconds)


def networks_source() -> str:
    """How the record of networks was made."""
    data = record("networks")
    return (
        f"recorded once by {data['command']}, not measured in this run: {_versions(data, 'morl-baselines', 'torch')}, "
        f"all else as the library has it, judged in {data['episodes']} episodes with the same seeds as ours"
    )


def fronts(env: str, discount: float) -> dict[str, list[list[dict[str, Any]]]]:
    """By method, the seeds, and of each as time went by `steps`, `cpu` seconds and `returns` of the policies found."""
    by_method: dict[str, list[list[dict[str, Any]]]] = {}
    data = record("fronts")
    for run in data["runs"]:
        if (run["env"], run["discount"]) == (env, discount):
            seen = [one | {"returns": [data["points"][place] for place in one["returns"]]} for one in run["seen"]]
            by_method.setdefault(run["method"], []).append(seen)
    return by_method


def fronts_source() -> str:
    """How the record of fronts was made, and what is not in it."""
    data = record("fronts")
    missing = "; ".join(f"{one['method']} on {one['env']} left out: {one['why']}" for one in data["left_out"])
    return (
        f"recorded once by {data['command']} ({_versions(data, 'morl-baselines', 'mo-gymnasium', 'torch')}; {missing})"
    )


def one_front(env: str, discount: Any, steps: int) -> dict[str, list[dict[str, Any]]]:
    """By method, of each seed `steps`, `cpu` seconds and `points` of one front, after at most so many steps.

    Valued as one network's is; or, of a method that was only recorded over time, what it had found in the end.
    """
    by_method: dict[str, list[dict[str, Any]]] = {}
    for run in record("fronts")["one_front"]:
        if (run["env"], run["discount"]) == (env, discount):
            by_method.setdefault(run["method"], []).append(run)
    for method, seeds in fronts(env, discount).items():
        ends = [seen[-1] | {"points": seen[-1]["returns"]} for seen in seeds]
        if max(end["steps"] for end in ends) <= steps:
            by_method.setdefault(method, ends)
    return by_method


def one_front_source() -> str:
    """How these were recorded."""
    data = record("fronts")
    settings = {run["method"]: run["settings"] for run in data["one_front"] if run["settings"]}
    told = "; ".join(f"{name}: {each}" for name, each in settings.items())
    return f"Peers were recorded by {data['command']} ({_versions(data, 'morl-baselines', 'torch')}; {told})."
