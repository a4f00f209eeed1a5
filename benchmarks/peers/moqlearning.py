"""The speed of morl-baselines' tabular MOQLearning on resource-gathering-v0, as JSON:  moqlearning.py [STEPS]."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

import mo_gymnasium
import numpy as np
from morl_baselines.single_policy.ser.mo_q_learning import MOQLearning


def train(steps: int) -> dict[str, float]:
    """Wall and CPU seconds of `steps` environment steps with learning and without logging or evaluation."""
    env = mo_gymnasium.make("resource-gathering-v0")
    env.reset(seed=0)
    agent = MOQLearning(env, weights=np.full(3, 1 / 3), gamma=0.9, log=False, seed=0)
    started, started_cpu = time.perf_counter(), time.process_time()
    agent.train(start_time=time.time(), total_timesteps=steps)
    return {"wall": time.perf_counter() - started, "cpu": time.process_time() - started_cpu}


def main(steps: int = 30_000) -> None:
    """Warm up briefly, train three times, print the best."""
    train(1_000)
    seconds = min((train(steps) for _ in range(3)), key=lambda x: x["cpu"])
    versions = {name: version(name) for name in ("morl-baselines", "mo-gymnasium")}
    rates = {"steps_per_second": steps / seconds["wall"], "steps_per_cpu_second": steps / seconds["cpu"]}
    print(json.dumps({"steps": steps, **seconds, **rates, **versions}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
