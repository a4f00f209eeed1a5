"""Trained policies act on the environment's own observations; recommendations: offline/test_recommend.py."""

import jax
import numpy as np
import pytest

from moac import momdp
from moac.policies import SoftmaxTable
from moac.policies.encoding import Encoder, Leaf
from moac.policies.observations import StateSpec, VectorSpec
from moac.training.trained import TrainedPolicy

MODEL = momdp.library.resource_gathering()
S, A = MODEL.num_states, MODEL.num_actions


def test_acts_as_its_trial():
    theta = np.zeros((2, 3, 2), np.float32)
    theta[0, :, 0], theta[1, :, 1] = 50, 50
    policy = TrainedPolicy(SoftmaxTable(3, 2), theta, StateSpec(3))
    for trial in (0, 1):
        one = policy.of_trial(trial)
        assert {one.act(state, jax.random.key(7)) for state in (0, np.int64(1), np.array([2]))} == {trial}
        assert one.log_prob(1, trial) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("observation", [-1, 3, 0.5, [0, 1], None, "left"])
def test_observation_that_is_no_index(observation):
    policy = TrainedPolicy(SoftmaxTable(3, 2), np.zeros((1, 3, 2)), StateSpec(3))
    with pytest.raises(ValueError, match=r"^`observation` must be the index of a state, got "):
        policy.act(observation, jax.random.key(0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_observation_that_is_not_finite(bad):
    seen = VectorSpec(Encoder((Leaf((), "float", (0.0, 0.0), (1.0, 1.0)),))).learned(None, 1)
    policy = TrainedPolicy(SoftmaxTable(3, 2), np.zeros((1, 3, 2)), seen)
    for ask in (lambda x: policy.act(x, jax.random.key(0)), lambda x: policy.log_prob(x, 0), policy.see):
        with pytest.raises(ValueError, match=rf"^`observation` must be finite, got \[0.5, {bad}\]\.$"):
            ask(np.array([0.5, bad]))


@pytest.mark.parametrize("key", [0, np.int64(3), None])
def test_a_key_that_is_none(key):
    policy = TrainedPolicy(SoftmaxTable(3, 2), np.zeros((1, 3, 2)), StateSpec(3))
    with pytest.raises(ValueError, match=r"^`key` must be a key such as jax.random.key\(0\), got "):
        policy.act(0, key)
    assert policy.act(0, jax.random.key(0)) == policy.act(0, jax.random.PRNGKey(0))


@pytest.mark.parametrize("action", [-1, 2, 0.5, None])
def test_an_action_that_is_none(action):
    policy = TrainedPolicy(SoftmaxTable(3, 2), np.zeros((1, 3, 2)), StateSpec(3))
    with pytest.raises(ValueError, match=r"^`action` must be a whole number in \[0, 2\), got "):
        policy.log_prob(0, action)
    for known in (1, np.int64(1), np.array(1)):
        assert policy.log_prob(0, known) == pytest.approx(np.log(0.5))


def test_observations_of_the_environment():
    policy = TrainedPolicy(SoftmaxTable(S, A), np.zeros((1, S, A), np.float32), MODEL.spec.observations)
    for state in (0, 17, S - 1):
        shown = MODEL.observations[state]
        for same in (shown, shown.astype(np.int64), shown.astype(float), shown.tolist()):
            assert policy.see(same) == state
    for other in (MODEL.observations[0] + 0.5, MODEL.observations[0] + 99, 0, np.full(4, 2**32)):
        with pytest.raises(ValueError, match=r"^`observation` must be one that the model knows, such as .*, got "):
            policy.act(other, jax.random.key(0))
