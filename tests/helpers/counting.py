"""An environment that counts the calls of its `step`, whoever makes them."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Counted(gymnasium.Env):
    """Two actions, each with an objective of its own, and noise; an episode ends after `length` steps."""

    calls = 0
    """Of `step`, in this process."""

    def __init__(self, length=20, tells_rewards=True):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))
        self.action_space = spaces.Discrete(2)
        if tells_rewards:
            self.reward_space = spaces.Box(-9.0, 9.0, (2,))
        self.length, self.elapsed = length, 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - Gymnasium's signature
        super().reset(seed=seed)
        self.elapsed = 0
        return self.shown(), {}

    def shown(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def step(self, action):
        Counted.calls += 1
        self.elapsed += 1
        reward = np.eye(2)[action] + 0.1 * self.np_random.standard_normal(2)
        return self.shown(), reward, self.elapsed >= self.length, False, {}


def counted(length=20, tells_rewards=True):
    """A function that makes the environment, with the count at zero."""
    Counted.calls = 0

    def counted_environment():
        return Counted(length, tells_rewards)

    return counted_environment


def calls():
    """Calls of `step` since the count was at zero."""
    return Counted.calls
