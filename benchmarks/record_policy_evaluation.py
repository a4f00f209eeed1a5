"""Let morl-baselines judge a policy, once, for the suite:  python benchmarks/record_policy_evaluation.py.

Writes tests/data/policy_evaluation_mo.json: the seed of a short training run, and what `policy_evaluation_mo` says of
its policy. The peers' environment has no JAX, so the policy goes there as a table of actions drawn before.
"""

from __future__ import annotations

import json

import numpy as np
from _timing import ROOT, run_peer

import moac
from moac import envs

OUTPUT = ROOT / "tests" / "data" / "policy_evaluation_mo.json"
ITERATIONS, EPISODES, SEED = 200, 400, 0


def main() -> None:
    """Train, let the peer play, write."""
    environment = envs.make("resource-gathering-v0", num_envs=8, evaluation_episodes=1)
    config = moac.Config(num_iterations=ITERATIONS, num_evaluations=1)
    policy = moac.train(environment, config, seed=SEED).policy
    logits = np.asarray(policy)[0]
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances = (weight / weight.sum(axis=1, keepdims=True)).tolist()
    found = run_peer("policy_evaluation.py", json.dumps(chances), str(policy.gamma), str(EPISODES))
    content = {
        "iterations": ITERATIONS,
        "seed": SEED,
        "episodes": EPISODES,
        "logits": logits.round(4).tolist(),
        **found,
    }
    OUTPUT.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
