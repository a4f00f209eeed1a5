"""Record what morl-baselines' multi-policy agents find, once, for reports to read:  python benchmarks/record_fronts.py.

Writes src/moac_studies/recorded/fronts.json. Its `runs`: after some CPU seconds of training, the environment steps and
the discounted returns of the policies found. Its `one_front`: one front at the steps, preferences and episodes of a row
of the study's networks, or what the agent had reached when its CPU seconds were over. Each run is a process of its own
in the peers' environment, on one thread. Interrupted, it goes on with the runs that are missing.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from _recording import about, peer_run, write
from _timing import ROOT

from moac import envs
from moac.search.plan import grid
from moac_studies import framework

OUTPUT = ROOT / "src" / "moac_studies" / "recorded" / "fronts.json"
PROBLEMS = (
    ("deep-sea-treasure-v0", 0.99),
    ("resource-gathering-v0", 0.9),
    ("resource-gathering-v0", 0.99),
    ("deep-sea-treasure-concave-v0", 0.99),
    ("fruit-tree-v0", 0.99),
    ("four-room-v0", 0.99),
)
METHODS = ("PQL", "MPMOQLearning", "Envelope")
LEFT_OUT = {("PQL", "four-room-v0"): "a table of 14¹⁴ states"}
SEEDS, SECONDS = range(5), (1, 3, 8, 15)
ONE_FRONT = (
    ("MPMOQLearning", "four-room", 200),
    ("MPMOQLearning", "resource-gathering", 200),
    ("Envelope", "deep-sea-treasure", 200),
    ("CAPQL", "mo-mountaincarcontinuous", 200),
    ("PCN", "minecart-deterministic", 200),
    ("PCN", "mo-lunar-lander", 200),
    ("Envelope", "fruit-tree", 60),
    ("GPI-LS", "minecart-deterministic", 200),
)
"""Agents, rows of the study's networks, and CPU seconds at most; PQL is among the runs over time already."""
FEW = range(3)
KINDS = ("points", "runs", "one_front")


def main() -> None:
    """Run what is missing, seed by seed, and write the file after each run."""
    record: dict[str, Any] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {kind: [] for kind in KINDS}
    done = {(run["method"], run["env"], run["discount"], run["seed"]) for run in record["runs"]}
    for seed, (env, discount), method in product(SEEDS, PROBLEMS, METHODS):
        if (method, env) not in LEFT_OUT and (method, env, discount, seed) not in done:
            keep(record, "runs", over_time(method, env, discount, seed, record["points"]))
    tables, shared = (framework.load("fronts").parameters[name] for name in ("networks", "shared"))
    done = {(run["method"], run["row"], run["seed"]) for run in record["one_front"]}
    for (method, row, seconds), seed in product(ONE_FRONT, FEW):
        if (method, row, seed) not in done:
            keep(record, "one_front", one_front(method, row, {**shared, **tables[row]}, seed, seconds))


def over_time(method: str, env: str, discount: float, seed: int, points: list[list[float]]) -> dict[str, Any]:
    """What was found after some CPU seconds, by its places among all `points`, which grow by those that are new."""
    seen = peer_run("fronts.py", method, env, discount, seed, *SECONDS)["seen"]
    for each in seen:
        found = shortened(each["returns"])
        points += [point for point in found if point not in points]
        each |= {"cpu": round(each["cpu"], 2), "returns": [points.index(point) for point in found]}
    return {"method": method, "env": env, "discount": discount, "seed": seed, "seen": seen}


def one_front(method: str, row: str, table: framework.Table, seed: int, seconds: float) -> dict[str, Any]:
    """The front of one agent at the steps of a row of the study, or what it had when its seconds were over."""
    discount, count = table["config"]["setting"]["discount"], table["preferences"]
    preferences = grid(count, envs.make(table["env"]).spec.num_objectives, 0.0).tolist()
    told = (method, table["env"], discount, seed, table["steps"], seconds, preferences, table["episodes"])
    run = peer_run("one_front.py", *told)
    about = {"method": method, "row": row, "env": table["env"], "discount": discount, "seed": seed}
    kept = {"settings": run["settings"], "steps": run["steps"], "cpu": round(run["cpu"], 1)}
    return about | kept | {"points": shortened(run["points"])}


def shortened(points: Any) -> list[list[float]]:
    """Points to five digits; one that several policies have is kept once."""
    return list(map(list, dict.fromkeys(tuple(float(f"{x:.5g}") + 0.0 for x in point) for point in points)))


def keep(record: dict[str, Any], kind: str, run: dict[str, Any]) -> None:
    """Add a run, and write the file."""
    record[kind].append(run)
    left_out = [{"method": m, "env": e, "why": why} for (m, e), why in LEFT_OUT.items()]
    head = {**about("python benchmarks/record_fronts.py"), "seconds": list(SECONDS), "left_out": left_out}
    write(OUTPUT, head | {kind: record[kind] for kind in KINDS})


if __name__ == "__main__":
    main()
