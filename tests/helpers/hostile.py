"""Environments that do what no environment should, each by its name; all are `Line` but for one thing.

A `Case` says what comes of it: a part of the one line that refuses it, or None where it trains all the same.
"""

import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.helpers.environments import Line

AT = 6
"""The step, or the reset, that does something else."""
VECTOR = spaces.Box(0.0, 4.0, (1,), np.float64)


class MuteError(Exception):
    """An error that cannot say what it is."""

    def __str__(self):
        raise RuntimeError("not even this")


class Exploding:
    """An observation that cannot be made an array."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")


def raising(error):
    def act(env, answer):
        raise error

    return act


def stepping(place, value):
    """Another answer at that place of a step's five."""

    def act(env, answer):
        changed = list(answer)
        changed[place] = value(env) if callable(value) else value
        return tuple(changed)

    return act


def answering(value):
    """Another answer altogether; of the real one where the value is a function."""
    return lambda env, answer: value(answer) if callable(value) else value


def forking(env, answer):
    """A child process that ends at once, without what Python does at the end."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return answer


def seeding(env, answer):
    np.random.seed(0)  # noqa: NPY002 - what is done wrong
    random.seed(0)
    return answer


def printing(env, answer):
    print("no end of line", end="")
    return answer


def interrupted(env, answer):
    signal.raise_signal(signal.SIGINT)
    return answer


def killing(number):
    return lambda env, answer: os.kill(os.getpid(), number)


def sleeping(env, answer):
    time.sleep(1000)


STEPS: dict[str, tuple[Any, str | None]] = {
    "raises": (raising(ZeroDivisionError("no road")), "step raised ZeroDivisionError: no road."),
    "raises in several lines": (raising(ValueError("one\n\ntwo")), "step raised ValueError: one two."),
    "raises without words": (raising(MuteError()), "step raised MuteError."),
    "runs out of memory": (raising(MemoryError()), "step raised MemoryError."),
    "stops iterating": (raising(StopIteration()), "step raised StopIteration."),
    "exits with 0": (raising(SystemExit(0)), "step raised SystemExit: 0."),
    "exits with 3": (raising(SystemExit(3)), "step raised SystemExit: 3."),
    "exits with a text": (raising(SystemExit("bye")), "step raised SystemExit: bye."),
    "exits": (lambda env, answer: sys.exit(), "step raised SystemExit"),
    "interrupts": (raising(KeyboardInterrupt()), "step raised KeyboardInterrupt."),
    "leaves its generator": (raising(GeneratorExit()), "step raised GeneratorExit."),
    "answers nothing": (answering(None), "step raised TypeError"),
    "answers four": (answering(lambda answer: answer[:4]), "step raised ValueError: not enough values"),
    "answers six": (answering(lambda answer: (*answer, 1)), "step raised ValueError: too many values"),
    "rewards NaN": (stepping(1, np.array([np.nan, 0.0])), "its reward must be finite and within"),
    "rewards infinity": (stepping(1, [np.inf, 0.0]), "its reward must be finite and within"),
    "rewards None": (stepping(1, None), "its reward must be a vector of real numbers, got objects."),
    "rewards a None": (stepping(1, [None, 0.0]), "its reward must be a vector of real numbers, got objects."),
    "rewards a text": (stepping(1, "1.0"), "its reward must be a vector of real numbers, got texts."),
    "rewards texts": (stepping(1, ["1.0", "2.0"]), "its reward must be a vector of real numbers, got texts."),
    "rewards complex": (stepping(1, np.array([1j, 2])), "a vector of real numbers, got complex numbers."),
    "rewards a column": (stepping(1, np.zeros((2, 1), np.float32)), "must be a vector, got an array of shape (2, 1)."),
    "rewards a row": (stepping(1, [[0.0, -1.0]]), "must be a vector, got an array of shape (1, 2)."),
    "rewards a number": (stepping(1, 1.0), "its reward must have length 2, got 1."),
    "rewards one too many": (stepping(1, np.zeros(3, np.float32)), "its reward must have length 2, got 3."),
    "rewards nothing": (stepping(1, []), "its reward must have length 2, got 0."),
    "rewards a table": (stepping(1, {"a": 1}), "its reward must be a vector of real numbers, got objects."),
    "rewards raggedly": (stepping(1, [[1], [1, 2]]), "step raised ValueError: setting an array element"),
    "rewards 10^400": (stepping(1, [10**400, 0]), "step raised OverflowError"),
    "shows None": (stepping(0, None), "must hold real numbers at its only array, got objects."),
    "shows a text": (stepping(0, "3"), "must hold real numbers at its only array, got texts."),
    "shows texts": (stepping(0, np.array(["3"])), "must hold real numbers at its only array, got texts."),
    "shows complex": (stepping(0, np.array([2j])), "real numbers at its only array, got complex numbers."),
    "shows two numbers": (stepping(0, np.zeros(2)), "`observation` must have 1 numbers at its only array, got 2."),
    "shows no numbers": (stepping(0, np.zeros(0)), "`observation` must have 1 numbers at its only array, got 0."),
    "shows NaN": (stepping(0, np.array([np.nan])), ", got [nan]."),
    "shows infinity": (stepping(0, np.array([np.inf])), ", got [inf]."),
    "shows a table": (stepping(0, {"a": 1}), "must hold real numbers at its only array, got objects."),
    "shows what explodes": (stepping(0, lambda env: Exploding()), "no array"),
    "ends by two flags": (stepping(2, np.array([True, True])), "step raised ValueError: The truth value"),
    "ends by a text": (stepping(2, "False"), "`terminated` must be true or false, got 'False'."),
    "ends by NaN": (stepping(2, float("nan")), "`terminated` must be true or false, got nan."),
    "is cut by a text": (stepping(3, "no"), "`truncated` must be true or false, got 'no'."),
    "ends by NumPy's flag": (stepping(2, np.True_), None),
    "ends by an array of one": (stepping(2, np.array([1])), None),
    "ends by None": (stepping(2, None), None),
    "tells no table": (stepping(4, None), None),
    "prints": (printing, None),
    "forks": (forking, None),
    "seeds everybody": (seeding, None),
}
"""What a step does in place of the real answer, and what comes of it, in states as in vectors."""
RESETS: dict[str, tuple[Any, str | None]] = {
    "reset raises": (raising(ZeroDivisionError("no road")), "reset raised ZeroDivisionError: no road."),
    "reset exits": (raising(SystemExit(0)), "reset raised SystemExit: 0."),
    "reset interrupts": (raising(KeyboardInterrupt()), "reset raised KeyboardInterrupt."),
    "reset answers nothing": (answering(None), "reset raised TypeError"),
    "reset answers three": (answering(lambda answer: (*answer, 1)), "reset raised ValueError: too many values"),
    "reset shows a text": (stepping(0, "here"), "must hold real numbers at its only array, got texts."),
    "reset shows two numbers": (stepping(0, np.zeros(2)), "`observation` must have 1 numbers"),
    "reset tells no table": (stepping(1, None), None),
}
"""The same of a reset, the first or a later one."""
DEADLY: dict[str, tuple[Any, str | None]] = {
    "leaves at once": (lambda env, answer: os._exit(0), r"worker process \d ended with exit code 0\."),
    "kills itself": (killing(signal.SIGKILL), r"worker process \d ended with exit code -9\."),
    "breaks down": (killing(signal.SIGSEGV), r"worker process \d ended with exit code -11\."),
    "hangs": (sleeping, r"a step in worker process \d took longer than 2 s\."),
}
"""Steps that end their process, or never end: for worker processes alone."""


class Hostile(Line):
    """Does something else, by its name, at step `at` of a copy, or at a reset; episodes are short."""

    def __init__(self, name, at=AT, vectors=False, limit=4):
        super().__init__(observation_space=VECTOR if vectors else None, limit=limit)
        self.name, self.moment, self.resets = name, at, 0

    def shown(self):
        return self.place if isinstance(self.observation_space, spaces.Discrete) else np.array([float(self.place)])

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - Gymnasium's signature
        answer = super().reset(seed=seed)
        self.resets += 1
        if self.name in RESETS and self.resets == self.moment:
            return RESETS[self.name][0](self, answer)
        return answer

    def step(self, action):
        answer = super().step(action)
        if self.count == self.moment and (act := (STEPS | DEADLY).get(self.name)):
            return act[0](self, answer)
        return answer


class Unmade(Line):
    """Cannot be made twice."""

    made = 0

    def __init__(self, error=ZeroDivisionError, allowed=1):
        super().__init__(limit=4)
        type(self).made += 1
        if type(self).made > allowed:
            raise error("no more")


class Unclosed(Line):
    """Cannot be closed."""

    def __init__(self, error=ZeroDivisionError):
        super().__init__(limit=4)
        self.error = error

    def close(self):
        raise self.error("stuck")


class Brief(Line):
    """Every episode has one step."""

    def __init__(self):
        super().__init__(limit=1)


class Endless(Line):
    """No episode ends."""

    def step(self, action):  # noqa: ARG002 - whatever is done
        observation, reward, _, _, info = super().step(0)
        return observation, reward, False, False, info


class Shifted(Line):
    """States that are counted from 3."""

    def __init__(self):
        super().__init__(observation_space=spaces.Discrete(5, start=3), limit=4)

    def shown(self):
        return self.place + 3


class Chatty(Line):
    """Prints all the time, also where nobody looks: as it is closed, and as the process ends."""

    def __init__(self):
        import atexit

        super().__init__(limit=4)
        print("made", end="")
        atexit.register(print, "ended", end="")

    def step(self, action):
        os.write(1, b"beside Python")
        print("step", end="")
        return super().step(action)

    def close(self):
        print("closed", end="")


@dataclass(frozen=True)
class Space:
    """A space that is refused as the environment is made."""

    line: str
    observation: Any = None
    action: Any = None
    reward: Any = None


SPACES = {
    "an image": Space("images", observation=spaces.Box(0, 255, (64, 48, 3), np.uint8)),
    "a large image": Space("images", observation=spaces.Box(0, 255, (480, 480, 3), np.uint8)),
    "an image among others": Space(
        "images", observation=spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 255, (64, 64, 1), np.uint8))
    ),
    "a long vector": Space("at most", observation=spaces.Box(-1.0, 1.0, (200_000,))),
    "no numbers": Space("`observation_space` must hold at least one number", observation=spaces.Box(0, 1, (0,))),
    "texts": Space("`observation_space` must be Discrete, ", observation=spaces.Text(5)),
    "no space": Space("`observation_space` must be Discrete, ", observation=3),
    "actions from 1": Space("`action_space` must start at 0", action=spaces.Discrete(2, start=1)),
    "no actions": Space("`action_space` must be Discrete or a Box", action=3),
    "several actions": Space("`action_space` must be Discrete or a Box", action=spaces.MultiDiscrete([2, 2])),
    "a point for actions": Space("a lower bound below the upper", action=spaces.Box(1.0, 1.0, (1,))),
    "no action at all": Space("a lower bound below the upper", action=spaces.Box(-1.0, 1.0, (0,))),
}


class Spaced(Line):
    """Has one of these spaces."""

    def __init__(self, name):
        super().__init__(limit=4)
        space = SPACES[name]
        self.observation_space = self.observation_space if space.observation is None else space.observation
        self.action_space = self.action_space if space.action is None else space.action


class Lying(Line):
    """Its reward space tells of three numbers."""

    def __init__(self):
        super().__init__(limit=4)
        self.reward_space = spaces.Box(-1.0, 1.0, (3,))


class Unspoken(Line):
    """Has no reward space, and gives something else for a reward."""

    def __init__(self, reward):
        super().__init__(limit=4)
        self.reward, self.reward_space = reward, None

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.reward, *rest


class Guarded(gymnasium.Env):
    """Does not let anybody see its spaces."""

    @property
    def action_space(self):
        raise PermissionError("not for you")

    observation_space = action_space


IDS = {
    "Exits-v0": (Hostile, {"name": "exits with 0"}),
    "ExitsWith3-v0": (Hostile, {"name": "exits with 3"}),
    "ResetExits-v0": (Hostile, {"name": "reset exits", "at": 1}),
    "Interrupts-v0": (Hostile, {"name": "interrupts"}),
    "Leaves-v0": (Hostile, {"name": "leaves at once"}),
    "UnmadeExits-v0": (Unmade, {"error": SystemExit, "allowed": 0}),
    "Unclosed-v0": (Unclosed, {}),
    "UnclosedExits-v0": (Unclosed, {"error": SystemExit}),
    "Chatty-v0": (Chatty, {}),
    "Image-v0": (Spaced, {"name": "an image"}),
}
for _name, (_kind, _options) in IDS.items():
    gymnasium.register(_name, entry_point=_kind, kwargs=_options)
