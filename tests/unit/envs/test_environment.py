"""An environment as a source of training: trials, batches, what chains learn."""

import numpy as np
import pytest

import moac
from moac import envs, training
from moac.momdp import library
from moac.training import result
from moac.types import Sampling
from tests.helpers.environments import Line, Unbounded
from tests.helpers.rollouts import sampled


def test_running_moments_are_kept_per_chain_and_recalled():
    environment = envs.make(Unbounded, num_envs=2)
    run = result.prepare(environment, moac.Config(learner="paper", num_iterations=3, num_evaluations=3), 2, 0)
    assert run.config.observation_scale == "running"
    last = list(training.iterate(run))[-1]
    memory = last.trials.chain
    assert memory["count"].tolist() == [3 * 448] * 2
    assert memory["mean"][0] != memory["mean"][1]
    policy = result.Result.of(run, last).policy
    low = memory["mean"][1] - 3 * np.sqrt(memory["squares"][1] / memory["count"][1])
    np.testing.assert_allclose(policy.observations.scales["shift"][1], low)


def test_batches_must_hold_whole_rows_of_copies():
    with pytest.raises(ValueError, match=r"`critic_batch_size` must be a multiple of `num_envs` \(3\), got 64"):
        result.prepare(envs.make(Line, num_envs=3), moac.Config(critic_batch_size=64), 1, 0)
    with pytest.raises(ValueError, match=r"`actor_batch_size` must be a multiple of `num_envs` \(3\), got 64"):
        result.prepare(envs.make(Line, num_envs=3), moac.Config(learner="ppo", actor_batch_size=64), 1, 0)
    assert moac.defaults(envs.make(Line, num_envs=3), moac.Config(learner="paper")).critic_batch_size == 66


def test_a_trial_depends_on_seed_and_number_alone():
    environment, config = envs.make(Line, num_envs=4), moac.Config(learner="paper", num_iterations=4, num_evaluations=2)
    one, three = moac.train(environment, config, seed=3), moac.train(environment, config, trials=3, seed=3)
    for name in ("returns", "weights", "gradient_norm_squared"):
        np.testing.assert_array_equal(getattr(one.history, name)[0], getattr(three.history, name)[0])
    np.testing.assert_array_equal(np.asarray(one.policy)[0], np.asarray(three.policy)[0])
    assert np.abs(np.asarray(three.policy)[0] - np.asarray(three.policy)[1]).max() > 0
    assert three.returns.shape == (3, 2)


def test_the_real_environment_takes_the_steps_of_its_model():
    """Every observed transition is one that the exact model allows, and leaves the frequencies it should."""
    model, environment = library.resource_gathering(), envs.make("resource-gathering-v0", num_envs=8)
    batch = sampled(environment, Sampling(1, 4000, 4000, average=False, survival=None))
    state_of = {environment.interface.encoder.state(row): s for s, row in enumerate(model.observations)}
    s = np.array([state_of[i] for i in batch.observation])
    possible = model.probability[s, batch.action] > 0
    same = (model.reward[s, batch.action] == batch.reward[:, None]).all(axis=2)
    same &= model.terminated[s, batch.action] == batch.terminated[:, None]
    assert (possible & same).any(axis=1).all()
    assert abs((batch.action == 0).mean() - 0.25) < 0.02
