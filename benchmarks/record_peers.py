"""Record morl-baselines' agents beside moac, once, for reports to read:  python benchmarks/record_peers.py.

Writes src/moac_studies/recorded/training.json. Each run of a peer is a process of its own in the peers'
environment, on one thread. Where a policy is a table over the states its returns are exact, from the model; EUPG's
are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from _recording import about, peer_run, write
from _timing import ROOT, measure

import moac
from moac import momdp, statistics
from moac.momdp import hypervolume, oracle

OUTPUT = ROOT / "src" / "moac_studies" / "recorded" / "training.json"
SEEDS, BUDGET, DISCOUNT = range(5), 100_000, 0.9
EPISODES, EPISODE_LENGTH = 200, 200
"""Of a simulation, in fishwood."""
SETTING = moac.Discounted(DISCOUNT)
REFERENCES = {"resource-gathering-v0": (-1.0, -1.0, -2.0), "fishwood-v0": (-1.0, -1.0)}
NOTES = {
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
"""What to see, by environment; tests hold it against the record."""


def record_env(env: str) -> dict[str, Any]:
    """All methods on one environment, and what its exact front is worth."""
    model = momdp.library.for_environment(env)
    points = momdp.pareto_front(model, SETTING).points
    reference = REFERENCES[env]
    entries = [*_peers(model), *_ours(model)]
    for entry in entries:
        entry["hypervolume"] = hypervolume(entry["returns"], reference)
    return {
        "objectives": list(model.objective_names),
        "reference": list(reference),
        "front": {"points": len(points), "hypervolume": hypervolume(points, reference)},
        "methods": entries,
        "note": NOTES[env],
    }


def _peers(model: momdp.FiniteMOMDP) -> Iterable[dict[str, Any]]:
    if model.name == "fishwood-v0":
        yield _entry("EUPG", f"u = min(fish, wood // 2), γ = {DISCOUNT}", "simulated", _run("eupg.py", EPISODES))
        return
    shown = model.observations.tolist()
    for name, settings, script in (
        ("MOQLearning", f"weights 1/3 each, γ = {DISCOUNT}; its greedy policy", "moqlearning.py"),
        ("NLMOPPO", f"u = sum of the returns, γ = {DISCOUNT}, 8 environments; its stochastic policy", "nlmoppo.py"),
    ):
        runs = _run(script, shown)
        exact = oracle.of_policy(model, [run["policy"] for run in runs], SETTING).returns
        for run, returns in zip(runs, exact, strict=True):
            run["returns"] = returns.tolist()
        yield _entry(name, settings, "exact", runs)


def _run(script: str, *arguments: Any) -> list[dict[str, Any]]:
    """One process per seed."""
    return [peer_run(script, BUDGET, seed, *arguments) for seed in SEEDS]


def _ours(model: momdp.FiniteMOMDP) -> Iterable[dict[str, Any]]:
    """MOAC as it comes, stopped at the budget and run to its end."""
    config = moac.defaults(model)
    per_iteration = config.num_critic_steps * config.critic_batch_size + config.actor_batch_size
    within = BUDGET // per_iteration
    for name, iterations in (("MOAC", within), ("MOAC, default length", config.num_iterations)):
        settings = f"the defaults of moac train, {iterations} iterations"
        yield _entry(name, settings, "exact", _train(model, iterations, per_iteration))


def _train(model: momdp.FiniteMOMDP, iterations: int, per_iteration: int) -> list[dict[str, Any]]:
    """All seeds are trials of one call; it is timed twice, the first time with compilation, and shared out evenly.

    A single evaluation keeps the exact oracle out of the times; the returns are computed after them.
    """
    config = moac.Config(setting=SETTING, num_iterations=iterations, num_evaluations=1)
    results = []
    timing = measure(lambda: results.append(moac.train(model, config, trials=len(SEEDS), seed=0)), repeats=2)
    exact = momdp.evaluate(model, np.asarray(results[0].policy), SETTING)
    compiled, first = timing.cpu[1] / len(SEEDS), timing.cpu[0] / len(SEEDS)
    runs = [
        {"steps": iterations * per_iteration, "cpu": compiled, "cpu_first": first, "returns": returns.tolist()}
        for returns in exact.returns
    ]
    if model.name == "fishwood-v0":
        for seed, run in enumerate(runs):
            run["utility"] = _utility(exact.policy[seed], np.random.default_rng(seed))
    return runs


def _utility(policy: np.ndarray, rng: np.random.Generator) -> float:
    """Mean of min(fish, wood // 2) over whole fishwood episodes, the goal that EUPG is given."""
    state = np.ones(EPISODES, dtype=int)
    earned = np.zeros((EPISODES, 2))
    for _ in range(EPISODE_LENGTH):
        earned[np.arange(EPISODES), state] += rng.random(EPISODES) < np.where(state == 1, 0.9, 0.1)
        state = (rng.random(EPISODES) < policy[state, 1]).astype(int)
    return float(np.minimum(earned[:, 0], earned[:, 1] // 2).mean())


def _entry(name: str, settings: str, evaluation: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of a method's runs."""
    returns = [[round(x, 6) + 0.0 for x in run["returns"]] for run in runs]
    means = [statistics.mean(column) for column in zip(*returns, strict=True)]
    cpu = [round(run["cpu"], 3) for run in runs]
    entry = {
        "name": name,
        "settings": settings,
        "evaluation": evaluation,
        "steps": runs[0]["steps"],
        "returns": returns,
        "mean": [mean.value for mean in means],
        "interval": [[mean.low, mean.high] for mean in means],
        "cpu_seconds": cpu,
        "steps_per_cpu_second": runs[0]["steps"] / float(np.mean(cpu)),
    }
    if "cpu_first" in runs[0]:
        entry["cpu_seconds_with_compilation"] = [round(run["cpu_first"], 3) for run in runs]
    if "utility" in runs[0]:
        entry["utility"] = [run["utility"] for run in runs]
    return entry


def main() -> None:
    """Run everything and write the file."""
    environments = {env: record_env(env) for env in REFERENCES}
    content = {
        **about("python benchmarks/record_peers.py"),
        "seeds": list(SEEDS),
        "budget": BUDGET,
        "discount": DISCOUNT,
        "episodes": EPISODES,
        "environments": environments,
    }
    write(OUTPUT, content)


if __name__ == "__main__":
    main()
