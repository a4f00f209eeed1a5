"""morl-baselines' `policy_evaluation_mo` of a table policy on resource-gathering-v0:  CHANCES DISCOUNT EPISODES.

The agent has what the function asks for and no more: `.gamma` and `.eval(obs, w)`.
"""

from __future__ import annotations

import json
import sys

import mo_gymnasium
import numpy as np
from _peer import answer
from morl_baselines.common.evaluation import policy_evaluation_mo


class Agent:
    """Draws from a table over the states (row, column, gold, diamond), each from 0 to 5."""

    def __init__(self, chances: list[list[float]], gamma: float) -> None:
        self.chances, self.gamma, self.random = np.array(chances), gamma, np.random.default_rng(0)

    def eval(self, obs: np.ndarray, w: np.ndarray | None) -> int:
        """An action."""
        del w
        row = self.chances[np.ravel_multi_index(tuple(obs), (6, 6, 6, 6))]
        return int(self.random.choice(len(row), p=row / row.sum()))


def main(chances: str, gamma: str, episodes: str) -> None:
    """Judge, and print."""
    env = mo_gymnasium.make("resource-gathering-v0")
    env.reset(seed=0)
    agent = Agent(json.loads(chances), float(gamma))
    _, _, returns, discounted = policy_evaluation_mo(agent, env, np.ones(3), rep=int(episodes))
    answer(returns=returns.tolist(), discounted=discounted.tolist())


if __name__ == "__main__":
    main(*sys.argv[1:])
