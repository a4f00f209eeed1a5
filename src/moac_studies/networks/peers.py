"""Agents of morl-baselines, as `benchmarks/record_network_peers.py` recorded them once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac_studies import peers

FILE = "networks.json"


@final
@dataclass(frozen=True, eq=False)
class Peer:
    """The nearest agent on an environment.

    Attributes:
        name: of the agent.
        settings: what is not the library's own.
        steps: of the environment, per seed.
        discounted: [S, M] mean return of each seed's final policy.
        cpu_seconds: mean over seeds, of training alone.
    """

    name: str
    settings: str
    steps: int
    discounted: Float[np.ndarray, "S M"]
    cpu_seconds: float


def of(env: str) -> Peer | None:
    """The record on an environment; None where there is none."""
    found: dict[str, Any] | None = peers.record(FILE)["environments"].get(env)
    if found is None:
        return None
    seconds = float(np.mean(found["cpu_seconds"]))
    return Peer(found["name"], found["settings"], found["steps"], np.array(found["returns"]), seconds)


def where_from() -> str:
    """How the record was made."""
    data = peers.record(FILE)
    versions = ", ".join(f"{name} {data['versions'][name]}" for name in ("morl-baselines", "torch"))
    return (
        f"recorded once by {data['command']}, not measured in this run: {versions}, all else as the library has it, "
        f"judged in {data['episodes']} episodes with the same seeds as ours"
    )
