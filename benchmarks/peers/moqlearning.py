"""morl-baselines' tabular MOQLearning on resource-gathering-v0, as JSON.

Its speed:  moqlearning.py [STEPS].  One run and its greedy policy:  moqlearning.py STEPS SEED OBSERVATIONS.
"""

from __future__ import annotations

import json
import sys
import time

import mo_gymnasium
import numpy as np
from _peer import answer, timed
from morl_baselines.single_policy.ser.mo_q_learning import MOQLearning


def train(steps: int, seed: int = 0) -> tuple[MOQLearning, dict[str, float]]:
    """The agent, and wall and CPU seconds of `steps` environment steps without logging or evaluation."""
    env = mo_gymnasium.make("resource-gathering-v0")
    env.reset(seed=1_000 + seed)  # seeds of their own: with the agent's, all three would draw the same numbers
    env.action_space.seed(2_000 + seed)
    agent = MOQLearning(env, weights=np.full(3, 1 / 3), gamma=0.9, log=False, seed=seed)
    return agent, timed(lambda: agent.train(start_time=time.time(), total_timesteps=steps))


def policy(agent: MOQLearning, observation: list[int]) -> list[float]:
    """Action probabilities: the greedy action, or, where the agent has never been, what it then does, any."""
    if tuple(observation) not in agent.q_table:
        return [1 / agent.action_dim] * agent.action_dim
    return np.eye(agent.action_dim)[agent.eval(np.array(observation))].tolist()


def speed(steps: int) -> dict[str, float]:
    """Warm up briefly, train three times, keep the best."""
    train(1_000)
    seconds = min((train(steps)[1] for _ in range(3)), key=lambda x: x["cpu"])
    return {
        **seconds,
        "steps_per_second": steps / seconds["wall"],
        "steps_per_cpu_second": steps / seconds["cpu"],
    }


def run(steps: int, seed: int, observations: list[list[int]]) -> dict[str, object]:
    """Train once and tabulate the policy."""
    agent, seconds = train(steps, seed)
    return {**seconds, "policy": [policy(agent, observation) for observation in observations]}


def main(steps: str = "30000", *recording: str) -> None:
    """Print what was asked."""
    found = run(int(steps), *map(json.loads, recording)) if recording else speed(int(steps))
    answer(steps=int(steps), **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
