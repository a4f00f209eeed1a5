"""Record morl-baselines' agents with networks for the study `learning`: benchmarks/record_network_peers.py [NAME …].

Writes src/moac_studies/recorded/networks.json. Environments, steps and episodes are those of the study's file, all of
them or those named; each run is a process of its own in the peers' environment, on one thread. What an interrupted
record holds is kept.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from typing import Any

from _recording import about, peer_run, write
from _timing import ROOT

from moac_studies import environments, framework, learning

OUTPUT = ROOT / "src" / "moac_studies" / "recorded" / "networks.json"
SEEDS = range(5)
KEPT = ("name", "settings", "steps")


def record_seed(table: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One run on one environment, judged in the episodes of the study's trial of that number."""
    episodes = environments.episode_seeds(seed, table["episodes"])
    discount = table["config"]["setting"]["discount"]
    return peer_run("network_agent.py", table["env"], table["steps"], seed, discount, episodes)


def extended(found: dict[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """An environment's entry with one more seed."""
    return {
        **{key: run[key] for key in KEPT},
        "returns": [*found.get("returns", []), [round(x, 6) + 0.0 for x in run["returns"]]],
        "cpu_seconds": [*found.get("cpu_seconds", []), round(run["cpu"], 2)],
    }


def main(names: list[str]) -> None:
    """Run what is missing, a seed of every environment at a time, and write the file after each."""
    tables = learning.tables(framework.load("learning"))
    tables = {name: tables[name] for name in names or tables}
    records = json.loads(OUTPUT.read_text())["environments"] if OUTPUT.exists() else {}
    for seed, table in itertools.product(SEEDS, tables.values()):
        recorded = records.get(table["env"], {})
        if len(recorded.get("returns", [])) <= seed:
            records[table["env"]] = extended(recorded, record_seed(table, seed))
            shared = {"episodes": table["episodes"], "discount": table["config"]["setting"]["discount"]}
            write(OUTPUT, about("python benchmarks/record_network_peers.py") | shared | {"environments": records})


if __name__ == "__main__":
    main(sys.argv[1:])
