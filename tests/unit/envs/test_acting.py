"""Acting on the host: continuous actions, how they are drawn, given, kept and loaded."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import moac
from moac import envs, training
from moac.envs import rollout
from moac.policies import Reparametrised
from moac.policies.encoding import ActionBox
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.types import Sampling
from tests.helpers.environments import Push

SIZES = Sampling(num_critic_steps=3, critic_batch_size=8, actor_batch_size=16, average=False, survival=None)
KEY = np.array([1, 2], np.uint32)
VECTORS = spaces.Box(0.0, 1.0, (2,), np.float64)
BOX = ActionBox((2, 1), "float64", (-1.0, 0.0), (2.0, math.inf))
CONFIG = moac.Config(learner="paper", num_iterations=3, num_evaluations=3, hidden=(4,))


class Plain:
    """Somebody's own Gaussian policy, of three functions and without bounds."""

    def init(self, key):
        return jax.random.normal(key, (2,))

    def sample(self, theta, observation, key):
        return theta + 3 * jax.random.normal(key, (2,)) + 0 * jnp.sum(observation)

    def log_prob(self, theta, observation, action):
        return -jnp.sum((action - theta) ** 2) / 18 + 0 * jnp.sum(observation)


def sampled(environment, policy=None):
    """One iteration's transitions in one row, and the policy with its parameters."""
    run = result.prepare(environment, CONFIG, 1, 0, {"policy": policy, "critic": None, "rule": None})
    theta = run.parts.policy.init(jax.random.key(0))
    _, critic, actor = environment.sample(environment.start(KEY), run.parts.policy, theta, KEY, SIZES)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), critic)
    return jax.tree.map(lambda a, b: np.concatenate([a, b]), flat, actor), run.parts.policy, theta


@pytest.mark.parametrize("observation_space", [None, VECTORS], ids=["states", "vectors"])
def test_actions_follow_from_normal_numbers_of_each_copy(observation_space):
    environment = envs.make(Push, num_envs=4, observation_space=observation_space)
    batch, policy, theta = sampled(environment)
    assert isinstance(policy, Reparametrised)
    normal = rollout.draw(KEY, (4, 10), SIZES, 2).normal.swapaxes(0, 1).reshape(40, 2)
    expected = policy.act(jax.tree.map(np.asarray, theta), batch.observation, normal)
    np.testing.assert_allclose(batch.action, expected, rtol=1e-6)
    assert batch.action.dtype == np.float32
    np.testing.assert_allclose(batch.reward, batch.action, rtol=1e-6)  # what the environment was given
    assert batch.observation.dtype == (np.int32 if observation_space is None else np.float32)
    assert np.unique(batch.action, axis=0).shape == (40, 2)
    assert batch.terminated.sum() == 8


def test_states_and_vectors_of_one_environment_walk_alike():
    """Where the policy does not look, the form of what is seen changes nothing."""
    batches = [sampled(envs.make(Push, num_envs=2, observation_space=space), Plain())[0] for space in (None, VECTORS)]
    np.testing.assert_allclose(batches[0].observation / 2, batches[1].observation[:, 0])
    for name in ("action", "reward", "terminated"):
        np.testing.assert_array_equal(getattr(batches[0], name), getattr(batches[1], name))


def test_a_policy_of_three_functions_acts_by_its_sampler():
    """What it wants beyond the bounds is kept in the batch; the environment is given the nearest it takes."""
    batch, _, _ = sampled(envs.make(Push, num_envs=4), Plain())
    assert (batch.action < -1).any()
    np.testing.assert_allclose(batch.reward, np.clip(batch.action, [-1, 0], [2, np.inf]), rtol=1e-6)


def test_workers_draw_the_same():
    alone, beside = (envs.make(Push, num_envs=2, workers=workers) for workers in (0, 2))
    batches = [sampled(environment)[0] for environment in (alone, beside)]
    beside.close()
    for name in ("observation", "action", "reward"):
        np.testing.assert_array_equal(getattr(batches[0], name), getattr(batches[1], name))


@pytest.fixture(scope="module")
def trained():
    """Two trials on states, and the environment."""
    environment = envs.make(Push, num_envs=4, evaluation_episodes=2)
    return environment, moac.train(environment, CONFIG, trials=2, seed=1)


def test_trained_policies_act_in_the_box(trained, tmp_path):
    environment, outcome = trained
    assert (environment.spec.num_actions, environment.spec.action_box.low) == (0, (-1.0, 0.0))
    assert outcome.config.policy == "gaussian"
    outcome.save(tmp_path / "run")
    loaded, policy = moac.load(tmp_path / "run", trial=1), outcome.policy.of_trial(1)
    for k in range(2):
        action = policy.act(k, jax.random.key(k))
        assert environment.spec.action_box == loaded.box == BOX
        assert (action.shape, action.dtype) == ((2, 1), np.float64)
        np.testing.assert_array_equal(loaded.act(k, jax.random.key(k)), action)
        law = policy.policy.log_prob(policy.trial_theta, jnp.asarray(k), jnp.asarray(action[:, 0], jnp.float32))
        np.testing.assert_allclose([p.log_prob(k, action) for p in (policy, loaded)], float(law), rtol=1e-6)
    with pytest.raises(ValueError, match="`action` must have 2 numbers, got 3"):
        loaded.log_prob(0, [1.0, 2.0, 3.0])


def test_a_run_with_continuous_actions_goes_on(trained, tmp_path):
    """With new episodes, so only its length and its finite end are known."""
    environment, outcome = trained
    run = result.prepare(environment, CONFIG, 2, 1)
    directory = RunDirectory.create(tmp_path / "run", run)
    first = next(training.iterate(run))
    directory.checkpoints().write(first)
    again = moac.resume(tmp_path / "run", environment)
    assert again.iteration == 3
    np.testing.assert_array_equal(again.history.returns[:, 0], outcome.history.returns[:, 0])
    assert np.isfinite(again.returns).all()
