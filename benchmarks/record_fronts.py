"""Record what morl-baselines' multi-policy agents find, once, for reports to read:  python benchmarks/record_fronts.py.

Writes src/moac_studies/recorded/fronts.json: after some CPU seconds of training, the environment steps and
the discounted returns of the policies found. Each run is a process of its own in the peers' environment, on one
thread. Interrupted, it goes on with the runs that are missing.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from _recording import about, peer_run, write
from _timing import ROOT

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


def main() -> None:
    """Run what is missing, seed by seed, and write the file after each run."""
    kept: list[dict[str, Any]] = json.loads(OUTPUT.read_text())["runs"] if OUTPUT.exists() else []
    done = {(run["method"], run["env"], run["discount"], run["seed"]) for run in kept}
    for seed, (env, discount), method in product(SEEDS, PROBLEMS, METHODS):
        if (method, env) in LEFT_OUT or (method, env, discount, seed) in done:
            continue
        run = peer_run("fronts.py", method, env, discount, seed, *SECONDS)
        for each in run["seen"]:
            each["cpu"] = round(each["cpu"], 2)
            points = (tuple(round(x, 5) + 0.0 for x in point) for point in each["returns"])
            each["returns"] = list(dict.fromkeys(points))  # a point that several policies have is kept once
        kept.append({"method": method, "env": env, "discount": discount, "seed": seed, "seen": run["seen"]})
        left_out = [{"method": m, "env": e, "why": why} for (m, e), why in LEFT_OUT.items()]
        content = {**about("python benchmarks/record_fronts.py"), "seconds": list(SECONDS), "left_out": left_out}
        write(OUTPUT, content | {"runs": kept})


if __name__ == "__main__":
    main()
