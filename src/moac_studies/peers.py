"""Agents of morl-baselines beside MOAC, as `benchmarks/record_peers.py` recorded them once."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from moac.report.numbers import Value
from moac.report.page import Table
from moac.statistics import mean

_NOTES = {
    "resource-gathering-v0": (
        "At the same number of steps MOAC has only begun to learn, and MOQLearning is far ahead. At its default length "
        "MOAC's seeds all end beside the same point of the front, the diamond alone; this reference point moreover "
        "counts gold twice as much."
    ),
    "fishwood-v0": (
        "Utility is the mean of min(fish, wood // 2) over whole simulated episodes: the goal that EUPG is given, and "
        "that MOAC does not know. Every policy lies on the front here: MOAC drifts along it, and the volume of its "
        "seeds is that of their spread."
    ),
}
"""What to see, by environment."""


@cache
def record(file: str = "training.json") -> dict[str, Any]:
    """The whole record."""
    return json.loads((resources.files("moac_studies") / "recorded" / file).read_text(encoding="utf-8"))


def table(env: str) -> Table | None:
    """The methods on an environment: steps, returns, hypervolume and CPU time; None where none were recorded."""
    found = record()["environments"].get(env)
    if found is None:
        return None
    has_utility = all("utility" in method for method in found["methods"])
    header = ("method", "steps", *found["objectives"], *(("utility",) if has_utility else ()), "hypervolume", "CPU s")
    front: tuple[Value, ...] = (
        f"exact front, {found['front']['points']} points",
        *(None for _ in header[1:-2]),
        f"{found['front']['hypervolume']:.3f}",
        None,
    )
    rows = tuple(_row(method, has_utility) for method in found["methods"])
    return Table("Peers", _caption(env, found), header, (*rows, front))


def _row(method: dict[str, Any], has_utility: bool) -> tuple[Value, ...]:
    columns = [*zip(*method["returns"], strict=True), *((method["utility"],) if has_utility else ())]
    return (
        method["name"],
        method["steps"],
        *(str(mean(column)) for column in columns),
        f"{method['hypervolume']:.3f}",
        _seconds(method),
    )


def _seconds(method: dict[str, Any]) -> str:
    """CPU seconds of a run and, where code is compiled first, what they are with that."""
    seconds = f"{np.mean(method['cpu_seconds']):.2g}"
    first = method.get("cpu_seconds_with_compilation")
    return seconds if first is None else f"{seconds} ({np.mean(first):.2g} with compilation)"


def _caption(env: str, found: dict[str, Any]) -> str:
    data = record()
    versions = ", ".join(f"{name} {data['versions'][name]}" for name in ("morl-baselines", "torch", "moac", "jax"))
    settings = "; ".join(f"{method['name']}: {method['settings']}" for method in found["methods"])
    seeds = len(data["seeds"])
    return (
        f"Recorded once by {data['command']}, not measured in this run: {versions}; {data['machine']['cpu']}, "
        f"{data['machine']['cores']} cores shared with other work. {settings}; all else as each library has it, not "
        f"tuned for this. Means of {seeds} seeds with 95 % intervals. Returns are discounted by {data['discount']} and "
        f"{_how(found, data['episodes'])}. The hypervolume is that of the {seeds} seeds' points together above "
        f"{_point(found['reference'])}: it also pays for seeds that end apart. CPU seconds are per run, of training "
        f"alone; MOAC always computes 64 trials at once, and its {seeds} share a cost that one alone would bear. "
        f"{_NOTES[env]}"
    )


def _how(found: dict[str, Any], episodes: int) -> str:
    """How the returns were evaluated."""
    simulated = [method["name"] for method in found["methods"] if method["evaluation"] == "simulated"]
    rest = f", but for {', '.join(simulated)}: means of {episodes} simulated episodes" if simulated else ""
    return f"exact, from the policy and the model{rest}"


def _point(values: list[float]) -> str:
    return f"({', '.join(f'{value:g}' for value in values)})".replace("-", "−")
