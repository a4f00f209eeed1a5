"""An environment of your own: any Gymnasium environment whose reward is a vector.

Run: python examples/custom_env.py
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import moac


class Ferry(gymnasium.Env[int, int]):
    """Wait for passengers or sail: a full boat earns more, those on board get impatient."""

    def __init__(self, seats: int = 6) -> None:
        self.seats, self.aboard = seats, 0
        self.observation_space = spaces.Discrete(seats + 1)
        self.action_space = spaces.Discrete(2)  # wait, sail
        self.reward_space = spaces.Box(np.float32([0, -seats]), np.float32([seats, 0]))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """An empty boat."""
        super().reset(seed=seed, options=options)
        self.aboard = 0
        return self.aboard, {}

    def step(self, action: int) -> tuple[int, Any, bool, bool, dict[str, Any]]:
        """Sailing pays one fare each and ends the day; waiting costs everyone aboard a minute."""
        if action == 1:
            return self.aboard, np.array([self.aboard, 0.0]), True, False, {}
        waited = np.array([0.0, -self.aboard / 10])
        self.aboard = min(self.aboard + int(self.np_random.integers(0, 3)), self.seats)
        return self.aboard, waited, False, False, {}


def main(iterations: int = 200, trials: int = 4) -> np.ndarray:
    """Train, save nothing, print what was earned and what the policies do with each number aboard."""
    environment = moac.envs.make(Ferry, num_envs=8)  # or Ferry itself, for the usual number of copies
    setting = moac.Discounted(0.95)
    result = moac.train(
        environment, trials=trials, setting=setting, num_iterations=iterations, num_evaluations=4, progress=True
    )
    print("fares, patience:", result.returns.mean(axis=0).round(2))
    chance = [np.exp(result.policy.log_prob(aboard, 1)) for aboard in range(7)]
    print("chance to sail with 0 … 6 aboard:", np.round(chance, 2))
    return result.returns


if __name__ == "__main__":
    main()
