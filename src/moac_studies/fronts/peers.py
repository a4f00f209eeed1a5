"""Multi-policy agents of morl-baselines, as `benchmarks/record_fronts.py` recorded them once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac_studies import peers

FILE = "fronts.json"


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """What one seed of a peer had found by some time: environment steps, CPU seconds, returns of its policies."""

    steps: int
    cpu: float
    points: Float[np.ndarray, "N M"]


def of(env: str, discount: float) -> dict[str, list[list[Seen]]]:
    """By method, the seeds, and of each what was seen as time went by."""
    found: dict[str, list[list[Seen]]] = {}
    for run in peers.record(FILE)["runs"]:
        if (run["env"], run["discount"]) == (env, discount):
            seen = [Seen(each["steps"], each["cpu"], np.array(each["returns"])) for each in run["seen"]]
            found.setdefault(run["method"], []).append(seen)
    return found


def where_from() -> str:
    """How the record was made, and what is not in it."""
    data: dict[str, Any] = peers.record(FILE)
    versions = ", ".join(f"{name} {data['versions'][name]}" for name in ("morl-baselines", "mo-gymnasium", "torch"))
    missing = "; ".join(f"{one['method']} on {one['env']} left out: {one['why']}" for one in data["left_out"])
    return f"recorded once by {data['command']} ({versions}; {missing})"
