"""What morl-baselines' `policy_evaluation_mo` said of a policy, recorded once, against our own episodes."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moac
from moac import envs
from moac.envs.evaluation import play, seeds_of
from moac.momdp import library
from moac.policies import SoftmaxTable
from moac.search import values
from moac.training import result
from moac.training.trained import TrainedPolicy

RECORD = json.loads((Path(__file__).parents[1] / "data" / "policy_evaluation_mo.json").read_text())
SETTING = moac.Discounted(0.9)


@pytest.fixture(scope="module")
def environment():
    return envs.make("resource-gathering-v0")


@pytest.fixture(scope="module")
def policy(environment):
    logits = jnp.asarray(RECORD["logits"], jnp.float32)
    return TrainedPolicy.of(SoftmaxTable(*logits.shape), logits[None], environment.spec, None, SETTING)


@pytest.fixture(scope="module")
def ours(environment, policy):
    return play(environment, policy, seeds_of(7, 3000), (0.9,) * 3)


def test_our_episodes_agree_with_the_recorded_judgement(ours):
    for found, recorded in ((ours.returns, RECORD["returns"]), (ours.discounted, RECORD["discounted"])):
        error = np.sqrt(found.var(axis=0) * (1 / len(found) + 1 / RECORD["episodes"]))
        assert (np.abs(found.mean(axis=0) - recorded) <= 3.5 * error).all()
        assert (error < 0.03).all()


def test_our_episodes_agree_with_the_exact_values(ours, policy):
    exact = values.exact(library.resource_gathering(), [policy], SETTING)[0]
    error = np.sqrt(ours.discounted.var(axis=0) / len(ours.discounted))
    assert (np.abs(ours.discounted.mean(axis=0) - exact) <= 3.5 * error).all()


def test_one_network_agrees_with_what_was_recorded_for_each_preference():
    """The recorded weights stand in a network of this library, which plays by `.at(p)`."""
    said, sea = RECORD["network"], envs.make("deep-sea-treasure-v0")
    config = moac.Config(
        conditioned=True, hidden=tuple(said["hidden"]), num_iterations=1, setting=moac.Discounted(0.99)
    )
    run = result.prepare(sea, config, 1, 0)
    theta = tuple(jnp.asarray([W], jnp.float32) for W in said["theta"])
    assert jax.tree.map(jnp.shape, theta) == tuple((1, *W.shape) for W in run.parts.policy.init(jax.random.key(0)))
    network = TrainedPolicy.of(run.parts.policy, theta, run.source.spec, None, config.setting)
    for k in (0, -1):
        played = play(sea, network.at(said["preferences"][k]), seeds_of(9, 150), (0.99,) * 2)
        for found, recorded in ((played.returns, said["returns"][k]), (played.discounted, said["discounted"][k])):
            error = np.sqrt(found.var(axis=0) * (1 / len(found) + 1 / said["episodes"]))
            assert (np.abs(found.mean(axis=0) - recorded) <= 3.5 * error).all()
    ends = np.array(said["discounted"])[[0, -1]]
    assert ends[0, 0] > ends[1, 0] + 1 and ends[0, 1] < ends[1, 1] - 1  # the recorded network listens


def test_the_interface_that_morl_baselines_asks_for(environment, policy):
    """Its loop: actions by `eval(obs, w)`, the first reward undiscounted, each next one times `gamma` once more."""
    env, _ = environment.interface.make()
    observation, _ = env.reset(seed=0)
    total, discount, done = np.zeros(3), 1.0, False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(policy.eval(observation, np.ones(3)))
        total, discount, done = total + discount * reward, discount * policy.gamma, terminated or truncated
    assert discount < 1
    assert np.isfinite(total).all()


def test_gamma_of_several_objectives_and_of_the_average_setting(policy):
    other = TrainedPolicy(policy.policy, policy.theta, policy.observations, setting=moac.Discounted((0.9, 0.8, 0.7)))
    np.testing.assert_array_equal(other.gamma, [0.9, 0.8, 0.7])
    assert TrainedPolicy(policy.policy, policy.theta, policy.observations, setting=moac.Average()).gamma == 1
