"""The `ppo` learner around its kernel: who picks it, what it refuses, what it sees, and that it learns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import moac
from moac import default_config, envs, ppo, settings
from moac import parts as components
from moac.config import Average, Config, Discounted
from moac.momdp import FiniteMOMDP, library
from moac.policies.networks import Digits
from moac.types import Batch
from tests.helpers.environments import Line

MODEL = library.random_ergodic(0)
QUICK = {"hidden": (4,), "num_iterations": 2, "num_evaluations": 1}


@pytest.fixture(scope="module")
def line():
    return envs.make(Line, 4, evaluation_episodes=1)


@pytest.mark.parametrize(
    ("chosen", "learner"),
    [
        ({}, "ppo"),
        ({"num_critic_steps": 1}, "paper"),
        ({"critic_batch_size": 4}, "paper"),
        ({"setting": Average()}, "paper"),
        ({"num_critic_steps": 1, "learner": "ppo"}, None),
    ],
)
def test_an_environment_gets_ppo_unless_what_only_the_paper_has_is_asked_for(line, chosen, learner):
    if learner is None:
        with pytest.raises(ValueError, match=r"^`num_critic_steps` must be 0 with learner='ppo', got 1\.$"):
            Config(**chosen)
    else:
        assert settings.complete(Config(**chosen), line.spec).learner == learner
    assert settings.complete(Config(), MODEL.spec).learner == "paper"


def test_the_reason_names_the_learner(line):
    assert "ppo learner" in default_config.reasons(line)
    assert "paper's learner" in default_config.reasons(line, Config(num_critic_steps=1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, r"`epochs` must be a whole number of at least 1, got 0"),
        ({"ratio_clip": 0.0}, r"`ratio_clip` must be positive and finite, got 0.0"),
        ({"ratio_clip": -0.2}, r"`ratio_clip` must be positive and finite, got -0.2"),
        ({"units": "reward"}, r"`units` must be one of return, raw, advantage, got 'reward'"),
        ({"actor_batch_size": 64, "minibatch_size": 24}, r"`minibatch_size` must divide `actor_batch_size` \(64"),
        ({"minibatch_size": 100}, r"`minibatch_size` must divide `actor_batch_size` \(256"),
        ({"setting": Average()}, r"`learner` must be paper in the average setting"),
        ({"learner": "paper", "epochs": 2}, r"`epochs` must be 1 with learner='paper', got 2"),
        ({"learner": "paper", "units": "return"}, r"`units` must be raw with learner='paper', got 'return'"),
    ],
)
def test_mistakes_are_one_line(line, fields, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        settings.complete(Config(**{"learner": "ppo"} | fields), line.spec)
    assert "\n" not in str(caught.value)


def test_no_theorem_covers_more_than_one_epoch(line):
    assert "more than one epoch" in settings.beyond_theory(settings.complete(Config(), line.spec))
    assert "the ppo learner" in settings.beyond_theory(settings.complete(Config(epochs=1), line.spec))
    assert settings.beyond_theory(settings.complete(Config(), MODEL.spec)) == ()


def test_a_falling_step_makes_the_length_part_of_a_run(line):
    assert settings.length_dependent(settings.complete(Config(), line.spec)) == ("schedule",)
    assert settings.length_dependent(settings.complete(Config(schedule="constant"), line.spec)) == ()


# --- what it sees


def test_whole_numbers_are_seen_as_ones_whichever_way_they_come():
    digits = Digits(sum((3, 2, 4)), (3, 2, 4))
    for s, (a, b, c) in enumerate(np.ndindex(3, 2, 4)):
        expected = np.concatenate([np.eye(3)[a], np.eye(2)[b], np.eye(4)[c]])
        np.testing.assert_array_equal(digits.see(np.array(s)), expected)
        np.testing.assert_array_equal(digits.see(np.array([a / 2, b, c / 3], np.float32)), expected)
        np.testing.assert_array_equal(digits.see(jnp.asarray(s)), expected)


def test_sigma_needs_no_episode_to_end():
    """r = 1 for ever: the sum after k steps is (1 − γᵏ)/(1 − γ), over as many rollouts as it takes."""
    spread, gamma = ppo.Spread.unknown(1, 2), (0.5, 0.9)
    for _ in range(3):
        rollout = Batch(jnp.zeros(4, int), jnp.zeros(4, int), jnp.ones((4, 2)) * jnp.array([1.0, 3.0]), None)
        spread = spread.including(rollout, jnp.ones((4, 1), bool), gamma)
    k = np.arange(1, 13)[:, None]
    sums = np.array([1.0, 3.0]) * (1 - np.power(gamma, k)) / (1 - np.array(gamma))
    np.testing.assert_allclose(spread.sigma, sums.std(axis=0), rtol=1e-4)
    np.testing.assert_allclose(spread.sums[0], sums[-1], rtol=1e-5)


def test_a_sum_begins_at_zero_after_the_end_of_an_episode():
    """Two copies; the first one's episode ends with the rollout."""
    whole, ended = jnp.zeros(4, int), jnp.array([False, False, True, False])
    rollout = Batch(whole, whole, jnp.arange(1.0, 5.0)[:, None], None, terminated=ended)
    spread = ppo.Spread.unknown(2, 1).including(rollout, jnp.ones((2, 2), bool), (0.5,))
    np.testing.assert_allclose(spread.sums, [[0.0], [0.5 * 2 + 4]])


def test_sigma_is_one_where_nothing_was_earned():
    np.testing.assert_array_equal(ppo.Spread.unknown(2, 3).sigma, np.ones(3))


# --- what is off is absent


def primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from primitives(inner)


@pytest.mark.parametrize("once", [True, False])
def test_one_plain_epoch_has_neither_loop_nor_ratio(once):
    plain = {"epochs": 1, "minibatch_size": 1024, "gae": 0.0, "whitening": "none", "units": "raw", "entropy": 0.0}
    config = Config(learner="ppo", policy="table", weighting="uniform", **(plain if once else {}))
    resolved = settings.resolve(config, MODEL.spec)
    init, update = ppo.build(resolved, MODEL.spec, *components.build(resolved, MODEL.spec, 0))
    whole = jnp.zeros(1024, int)
    batch = Batch(whole, whole, jnp.zeros((1024, MODEL.spec.num_objectives)), whole)
    found = list(primitives(jax.make_jaxpr(update)(init(jax.random.key(0)), batch, batch).jaxpr))
    assert (found.count("scan") > 1) != once  # one sums the discounted rewards
    assert ("sort" in found) != once  # of a random order


# --- that it runs, and learns


def test_a_table_on_a_model_finds_the_better_action():
    better = np.array([[[0.0, 0.0], [1.0, 2.0]]] * 2)  # action 1 is better for both
    model = FiniteMOMDP.from_dense(np.full((2, 2, 2), 0.5), better)
    config = Config(
        learner="ppo", num_iterations=20, actor_batch_size=64, minibatch_size=32, epochs=4, num_evaluations=1
    )
    result = moac.train(model, replace(config, entropy=0.0), trials=2)
    np.testing.assert_allclose(result.returns, [[10.0, 20.0]] * 2, rtol=0.05)
    np.testing.assert_allclose(result.history.weights.sum(axis=-1), 1.0, rtol=1e-5)


def test_a_network_learns_to_reach_the_end_of_the_line():
    result = moac.train(envs.make(lambda: Line(limit=30), 4), steps=4096, policy="mlp", hidden=(16,), num_evaluations=2)
    assert result.config.learner == "ppo"
    assert result.env_steps == 4096
    assert result.returns[0, 1] > -7  # four steps are enough; at random it takes about a dozen


def test_an_update_that_is_not_finite_stops_the_trial_before_it():
    config = Config(critic_step_size=1e38, critic_optimiser="constant", gradient_clip=1e38, units="raw", **QUICK)
    outcome = moac.train(envs.make(Line, 4, evaluation_episodes=1), config)
    assert outcome.stopped[0] >= 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(outcome.policy.theta))


def test_nan_advantages_do_not_pass_for_health():
    """A clip or a minimum that hid them would let a trial go on with whatever came out."""
    config = settings.resolve(
        Config(learner="ppo", policy="table", actor_batch_size=8, setting=Discounted(0.9)), MODEL.spec
    )
    init, update = ppo.build(config, MODEL.spec, *components.build(config, MODEL.spec, 0))
    M = MODEL.spec.num_objectives
    batch = Batch(jnp.zeros(8, int), jnp.zeros(8, int), jnp.full((8, M), jnp.nan), jnp.zeros(8, int))
    state, _ = jax.jit(update)(init(jax.random.key(0)), batch, batch)
    assert np.isnan(state.theta).any()


def test_a_long_rollout_is_told_apart_from_its_continuation():
    """Continued runs go on with the running moments and sums: one run of two iterations has seen both rollouts."""
    result = moac.train(envs.make(Line, 4, evaluation_episodes=1), Config(**QUICK))
    assert float(result.snapshot.trials.state.spread.count[0]) == 2 * result.config.actor_batch_size
    assert Discounted(0.9) == result.config.setting


@pytest.mark.parametrize("size", [1, 2, 3, 1024, 2048, 2**16, 2**16 + 1])  # from 2048 on it takes two rounds
def test_permutations_are_those_of_jax(size):
    key = jax.random.key(size)
    np.testing.assert_array_equal(ppo.permutation(key, size), jax.random.permutation(key, size))
