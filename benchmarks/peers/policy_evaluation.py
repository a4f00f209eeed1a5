"""morl-baselines' `policy_evaluation_mo` of policies given as tables:  ENV SHAPE PREFERENCES CHANCES DISCOUNT EPISODES.

The agent has what the function asks for and no more: `.gamma` and `.eval(obs, w)`. CHANCES [P, S, A] are those of the
actions in every state, for each of the preferences [P, M]; SHAPE is how states are numbered.
"""

from __future__ import annotations

import json
import sys

import mo_gymnasium
import numpy as np
from _peer import answer
from morl_baselines.common.evaluation import policy_evaluation_mo


class Agent:
    """Draws from the table of the preference that it is asked for."""

    def __init__(self, shape: list[int], preferences: np.ndarray, chances: np.ndarray, gamma: float) -> None:
        self.shape, self.preferences, self.chances = shape, preferences, chances
        self.gamma, self.random = gamma, np.random.default_rng(0)

    def eval(self, obs: np.ndarray, w: np.ndarray) -> int:
        """An action."""
        (which,) = np.flatnonzero((self.preferences == w).all(axis=1))
        row = self.chances[which, np.ravel_multi_index(tuple(obs), self.shape)]
        return int(self.random.choice(len(row), p=row / row.sum()))


def main(name: str, shape: list[int], *rest: list | float) -> None:
    """Let the function play, and print what it says of each preference."""
    preferences, chances, gamma, episodes = rest
    env = mo_gymnasium.make(name)
    env.reset(seed=0)
    agent = Agent(shape, np.array(preferences), np.array(chances), gamma)
    said = [policy_evaluation_mo(agent, env, w, rep=episodes)[2:] for w in agent.preferences]
    answer(returns=[each[0].tolist() for each in said], discounted=[each[1].tolist() for each in said])


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
