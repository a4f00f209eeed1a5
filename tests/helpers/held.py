"""Memory that a process holds while it makes and uses one thing after the other:

python -m tests.helpers.held models 50     prints MB after ten of them, and after all
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import numpy as np

import moac
from moac import momdp
from moac.kuairand import generate
from moac.offline.evaluate import with_estimator

TEN = 10
SIZES = {"num_critic_steps": 1, "critic_batch_size": 2, "actor_batch_size": 2}


def model(seed, num_states=300):
    """Two actions with two outcomes each, nearly all of which end the episode, which starts in the first state."""
    rng = np.random.default_rng(seed)
    shape = (num_states, 2, 2)
    tables = rng.integers(num_states, size=shape), np.full(shape, 0.5), rng.normal(size=(*shape, 2))
    return momdp.FiniteMOMDP.from_outcomes(*tables, rng.random(shape) < 0.9, start=np.eye(num_states)[0])


def models(number):
    """Models of one shape: trained on, evaluated and explored."""
    each = model(number)
    moac.train(each, num_iterations=3, num_evaluations=1, **SIZES)
    momdp.evaluate(each, np.zeros((each.num_states, each.num_actions)), moac.Discounted(0.9))
    moac.explore(each, preferences=2, rules=["fixed"], entropies=[0.0], num_iterations=3, num_evaluations=1, **SIZES)


def logs(number):
    """Logs, each with other users and items: trained on, and the policy evaluated."""
    log = with_estimator(generate.log(400, number, num_users=60).dataset())
    moac.train(log, policy="mlp", num_iterations=2, num_evaluations=1)


def environments(number):
    """Environments: trained on, and the policy evaluated."""
    environment = moac.envs.make("deep-sea-treasure-v0", num_envs=2, evaluation_episodes=1)
    trained = moac.train(environment, num_iterations=1, num_evaluations=1, hidden=(4,), epochs=1, seed=number)
    moac.evaluate(trained, episodes=2)


KINDS = {use.__name__: use for use in (models, logs, environments)}


def resident():
    """MB of memory that the process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(kind, count):
    """Use so many of a kind; MB after ten, and after all."""
    for number in range(TEN):
        KINDS[kind](number)
    after_ten = resident()
    for number in range(TEN, count):
        KINDS[kind](number)
    print(json.dumps({"after ten": after_ten, "after all": resident()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
