"""Small environments of our own, for what the real ones do not do."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """Walk right to the end of five places: r = (1 there, −1 a step). What goes wrong, and when, can be chosen."""

    def __init__(self, fault="", at=7, observation_space=None, limit=None):
        self.observation_space = observation_space or spaces.Discrete(5)
        self.action_space = spaces.Discrete(2)
        self.reward_space = spaces.Box(np.array([0.0, -1.0]), np.array([1.0, 0.0]))
        self.fault, self.at, self.count, self.limit = fault, at, 0, limit
        self.elapsed = self.place = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - Gymnasium's signature
        super().reset(seed=seed)
        if self.fault == "reset":
            raise ZeroDivisionError("no road")
        self.place = self.elapsed = 0
        return self.shown(), {}

    def shown(self):
        return self.place

    def step(self, action):
        self.count, self.elapsed = self.count + 1, self.elapsed + 1
        failing = self.count == self.at
        if failing and self.fault == "raises":
            raise ZeroDivisionError("no road")
        self.place = max(0, self.place + (1 if action else -1))
        reward = np.array([float(self.place == 4), -1.0], dtype=np.float32)
        if failing and self.fault in ("nan", "huge"):
            reward[0] = np.nan if self.fault == "nan" else 1e30
        if failing and self.fault == "short":
            reward = reward[:1]
        if failing and self.fault == "outside":
            self.place = 9
        over = self.limit is not None and self.elapsed >= self.limit
        return self.shown(), reward, self.place == 4, over, {}


class Own(Line):
    """Hands out the array that it keeps writing to."""

    def __init__(self, **options):
        super().__init__(observation_space=spaces.Box(0.0, 4.0, (1,), np.float64), **options)
        self.array = np.zeros(1)

    def shown(self):
        self.array[0] = self.place
        return self.array


class Unbounded(Own):
    """A vector without bounds."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)


class Slow(Line):
    """Takes CPU time in every step."""

    def step(self, action):
        x = 0
        for i in range(3000):
            x += i
        return super().step(action)


class Push(gymnasium.Env):
    """Continuous actions of an odd shape; the rewards are the two numbers that it was given. Ends after five steps."""

    def __init__(self, observation_space=None):
        self.observation_space = observation_space or spaces.Discrete(3)
        self.action_space = spaces.Box(np.array([[-1.0], [0.0]]), np.array([[2.0], [np.inf]]), dtype=np.float64)
        self.reward_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.elapsed = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - Gymnasium's signature
        super().reset(seed=seed)
        self.elapsed = 0
        return self.shown(), {}

    def shown(self):
        place = self.elapsed % 3
        return place if isinstance(self.observation_space, spaces.Discrete) else np.array([place / 2, 0.5])

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = action[:, 0].astype(np.float32)
        action[:] = np.nan  # what was given is the environment's own
        self.elapsed += 1
        return self.shown(), reward, self.elapsed == 5, False, {}
