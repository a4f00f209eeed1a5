"""morl-baselines' multi-policy agents, and what their policies are worth as CPU time goes by, as JSON.

fronts.py METHOD ENV DISCOUNT SEED SECONDS…  The seconds are CPU seconds of training; evaluation is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import mo_gymnasium
import numpy as np
from _peer import answer
from morl_baselines.common.weights import equally_spaced_weights
from morl_baselines.multi_policy.envelope.envelope import Envelope
from morl_baselines.multi_policy.multi_policy_moqlearning.mp_mo_q_learning import MPMOQLearning
from morl_baselines.multi_policy.pareto_q_learning.pql import PQL

STOCHASTIC, EPISODES = "resource-gathering-v0", 40
MOST, STEPS = 200, 1_000
"""Policies that are evaluated, and steps of an episode at most."""
REFERENCES = {3: (-1.0, -1.0, -2.0), 2: (-10.0, -50.0), 6: (-1.0,) * 6}
Policy = Callable[[np.ndarray], int]
Rounds = Iterator[tuple[int, Callable[[], list[np.ndarray]]]]
"""After each round of training: steps so far, and what gives the returns of the policies found."""


def rollouts(env: Any, gamma: float, start: Callable[[], Policy], seed: int) -> np.ndarray:
    """Mean discounted return; `start` gives the policy of one episode. One episode, where nothing is random."""
    returns, count = 0.0, EPISODES if env.spec.id == STOCHASTIC else 1
    for episode in range(count):
        observation, _ = env.reset(seed=10_000 * seed + episode)
        policy, total, factor = start(), 0.0, 1.0
        for _ in range(STEPS):
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, factor = total + factor * reward, factor * gamma
            if terminated or truncated:
                break
        returns = returns + total / count
    return np.asarray(returns)


def moqlearning(env: Any, other: Any, gamma: float, seed: int) -> Rounds:
    """Q-learning for one weight vector after the other, by optimistic linear support; 5,000 steps each."""
    agent = MPMOQLearning(env, learning_rate=0.3, gamma=gamma, initial_epsilon=1.0, final_epsilon=0.05,
                          epsilon_decay_steps=20_000, weight_selection_algo="ols", epsilon_ols=0.0, seed=seed,
                          log=False)  # fmt: skip
    size = len(REFERENCES[env.unwrapped.reward_space.shape[0]])
    while True:
        agent.train(5_000, other, np.zeros(size), timesteps_per_iteration=5_000, num_eval_episodes_for_front=1)

        def found() -> list[np.ndarray]:
            kept = agent.policies[:MOST]
            return [rollouts(other, gamma, lambda own=own: lambda o: int(own.eval(o)), seed) for own in kept]

        yield agent.global_step, found


def pql(env: Any, other: Any, gamma: float, seed: int) -> Rounds:
    """Pareto Q-learning; the set of the start state, its vectors tracked."""
    size = env.unwrapped.reward_space.shape[0]
    agent = PQL(env, np.array(REFERENCES[size]), gamma=gamma, epsilon_decay_steps=50_000, seed=seed, log=False)
    scored = "hypervolume" if size <= 3 else "pareto_cardinality"
    first = int(np.ravel_multi_index(other.reset(seed=0)[0], agent.env_shape))
    while True:
        agent.train(agent.global_step + 200, other, action_eval=scored)

        def found() -> list[np.ndarray]:
            vectors = sorted(agent.get_local_pcs(first))[:MOST]
            return [rollouts(other, gamma, lambda vec=vec: Tracker(agent, vec), seed) for vec in vectors]

        yield agent.global_step, found


class Tracker:
    """The policy that `PQL.track_policy` follows for a vector, one episode long."""

    def __init__(self, agent: PQL, vector: Any) -> None:
        self.agent, self.target = agent, np.array(vector)

    def __call__(self, observation: np.ndarray) -> int:
        """The action whose vectors come nearest to what is left of the target."""
        agent = self.agent
        state = int(np.ravel_multi_index(observation, agent.env_shape))
        options = [(float(np.abs(agent.avg_reward[state, a] + agent.gamma * np.array(q) - self.target).sum()), a, q)
                   for a in range(agent.num_actions) for q in agent.non_dominated[state][a]]  # fmt: skip
        _, action, following = min(options)
        self.target = np.array(following)
        return action


def envelope(env: Any, other: Any, gamma: float, seed: int) -> Rounds:
    """Envelope Q-learning, two layers of 64 and batches of 32: its defaults make 10 steps a second."""
    agent = Envelope(env, gamma=gamma, net_arch=[64, 64], batch_size=32, buffer_size=20_000, initial_epsilon=1.0,
                     final_epsilon=0.05, epsilon_decay_steps=2_000, seed=seed, log=False, device="cpu")  # fmt: skip
    weights = [np.asarray(w) for w in equally_spaced_weights(agent.reward_dim, n=10)][:MOST]
    done = 0
    while True:
        agent.train(100, reset_num_timesteps=False)
        done += 100

        def found() -> list[np.ndarray]:
            return [rollouts(other, gamma, lambda w=w: lambda o: int(agent.eval(o, w)), seed) for w in weights]

        yield done, found


def main(method: str, name: str, discount: str, seed: str, *seconds: str) -> None:
    """Train until the last of the CPU seconds, and evaluate at each."""
    env, other = (mo_gymnasium.make(json.loads(name)) for _ in range(2))
    env.reset(seed=1_000 + int(seed))
    env.action_space.seed(2_000 + int(seed))
    marks, seen, spent = [float(s) for s in seconds], [], 0.0
    learner = {"MPMOQLearning": moqlearning, "PQL": pql, "Envelope": envelope}[json.loads(method)]
    rounds = learner(env, other, float(discount), int(seed))
    while marks:
        began = time.process_time()
        steps, found = next(rounds)
        spent += time.process_time() - began
        if spent >= marks[0]:
            marks = [mark for mark in marks if mark > spent]
            points = [[float(x) for x in point] for point in found()]
            seen.append({"steps": steps, "cpu": spent, "returns": points})
    answer(cpu=spent, seen=seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
