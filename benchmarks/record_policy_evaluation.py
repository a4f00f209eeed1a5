"""Let morl-baselines evaluate policies, once, for the suite:  python benchmarks/record_policy_evaluation.py.

Writes tests/data/policy_evaluation_mo.json: what `policy_evaluation_mo` says of a table after a short training run, and
of one network for every preference. The peers' environment has no JAX, so a policy goes there as the chances of its
actions in every state.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from _timing import ROOT, run_peer

import moac
from moac import envs
from moac.policies import log_probs
from moac.training.trained import TrainedPolicy

OUTPUT = ROOT / "tests" / "data" / "policy_evaluation_mo.json"
ITERATIONS, EPISODES, SEED = 200, 400, 0
STEPS, HIDDEN, PREFERENCES = 20_480, (8,), ((1.0, 0.0), (0.3, 0.7), (0.0, 1.0))


def main() -> None:
    """Train, let the peer play, write."""
    OUTPUT.write_text(json.dumps(table() | {"network": network()}) + "\n")


def table() -> dict[str, Any]:
    """A table on resource-gathering."""
    environment = envs.make("resource-gathering-v0", num_envs=8, evaluation_episodes=1)
    config = moac.Config(num_iterations=ITERATIONS, num_evaluations=1)
    policy = moac.train(environment, config, seed=SEED).policy
    logits = np.asarray(policy)[0]
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances = weight / weight.sum(axis=1, keepdims=True)
    said = evaluated("resource-gathering-v0", (6, 6, 6, 6), ((1.0, 1.0, 1.0),), chances[None], policy.gamma)
    about = {"iterations": ITERATIONS, "seed": SEED, "episodes": EPISODES, "logits": logits.round(4).tolist()}
    return about | said | {"returns": said["returns"][0], "discounted": said["discounted"][0]}


def network() -> dict[str, Any]:
    """One network for every preference on deep-sea-treasure."""
    environment = envs.make("deep-sea-treasure-v0", num_envs=8, evaluation_episodes=1)
    fields: dict[str, Any] = {"conditioned": True, "hidden": HIDDEN, "num_evaluations": 1}
    policy = moac.train(environment, steps=STEPS, seed=SEED, setting=moac.Discounted(0.99), **fields).policy
    theta = [np.asarray(leaf[0]).round(4).tolist() for leaf in policy.theta]
    rounded = TrainedPolicy(policy.policy, tuple(np.array([W], np.float32) for W in theta), policy.observations)
    chances = np.array([chances_of(rounded.at(p)) for p in PREFERENCES])
    said = evaluated("deep-sea-treasure-v0", (11, 11), PREFERENCES, chances, 0.99)
    about = {"preferences": PREFERENCES, "episodes": EPISODES, "hidden": HIDDEN, "theta": theta}
    return about | {name: said[name] for name in ("returns", "discounted")}


def chances_of(policy: TrainedPolicy) -> Any:
    """π(a|s) in every state (row, column) of deep-sea-treasure."""
    seen = np.stack([policy.see(np.array(divmod(s, 11), np.int32)) for s in range(121)])
    return np.exp(jax.jit(log_probs, static_argnums=(0, 3))(policy.policy, policy.trial_theta, seen, 4)).tolist()


def evaluated(env: str, shape: Any, preferences: Any, chances: Any, gamma: float) -> dict[str, Any]:
    """What the peer says."""
    told = (env, shape, preferences, np.asarray(chances, dtype=np.float64).round(6).tolist(), gamma, EPISODES)
    return run_peer("policy_evaluation.py", *map(json.dumps, told))


if __name__ == "__main__":
    main()
