"""Action spaces that cannot be trained on, or perhaps in vain; those of observations: policies/test_encoding.py."""

import numpy as np
import pytest
from gymnasium import spaces

from moac import default_config, envs
from moac.envs.make import actions_of
from tests.helpers.environments import Push


@pytest.mark.parametrize(
    ("space", "right"),
    [
        (spaces.Box(0, 5, (2,), np.int32), "must be Discrete or a Box of real numbers"),
        (spaces.MultiDiscrete([2, 3]), "must be Discrete or a Box of real numbers"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "must be Discrete or a Box of real numbers"),
        (spaces.Discrete(3, start=1), "must start at 0"),
        (spaces.Box(np.array([0.0, 1.0]), np.array([1.0, 1.0])), "must have a lower bound below the upper one"),
    ],
)
def test_other_actions_are_refused_with_one_line(space, right):
    with pytest.raises(ValueError) as error:
        actions_of(space)
    assert str(error.value).startswith(f"`action_space` {right}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seen", [spaces.Discrete(3), spaces.Box(0.0, 1.0, (2,), np.float64)])
def test_actions_without_a_bound_are_warned_of(seen):
    told = default_config.reasons(envs.make(lambda: Push(seen), num_envs=1))
    assert told.endswith("The policy starts with small ones: if only large ones matter, scale them.")
    assert "no bound" not in default_config.reasons(envs.make("mo-mountaincarcontinuous-v0", num_envs=1))
