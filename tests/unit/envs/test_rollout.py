"""Rollouts: what is stepped, what is kept of it, and what goes wrong."""

import random

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import moac
from moac import envs
from moac.envs import rollout
from moac.envs.rollout import Copy, draw, packed, rewards_of
from moac.training import result
from moac.types import Sampling, SourceError
from tests.helpers.environments import Line, Own
from tests.helpers.rollouts import KEY, SIZES, always_right, copies, places, sampled

of_both_forms = pytest.mark.parametrize("kind", [Line, Own], ids=["states", "vectors"])


@pytest.mark.parametrize("n", [1, 2, 8])
def test_chains_go_on_from_step_to_step(n):
    batch = sampled(envs.make(Line, num_envs=n), times=2)
    here, there, over = (copies(x, n) for x in (batch.observation, batch.next_observation, batch.terminated))
    assert here.shape == (n, 40 // n)
    np.testing.assert_array_equal(here[:, 1:], np.where(over, 0, there)[:, :-1])
    assert (there == 4)[over].all()
    assert not (there == 4)[~over].any()


@of_both_forms
def test_a_terminated_step_leads_to_the_restart_state_in_the_average_setting(kind):
    sizes = Sampling(3, 8, 16, average=True, survival=None)
    batch = sampled(envs.make(kind, num_envs=2), sizes)
    assert batch.terminated is None
    ended = batch.reward[:, 0] == 1
    assert ended.any()
    assert (batch.next_observation[ended] == 0).all()


@of_both_forms
@pytest.mark.parametrize("average", [False, True], ids=["discounted", "average"])
def test_truncation_keeps_the_true_successor(kind, average):
    """The environment's own clock, Gymnasium's time limit, and both flags up in one step, alike in both settings."""
    sizes = Sampling(3, 8, 16, average, survival=None)
    for make in (lambda: kind(limit=3), lambda: TimeLimit(kind(), 3)):
        batch = sampled(envs.make(make, num_envs=1), sizes)
        assert batch.terminated is None if average else not batch.terminated.any()
        cut = np.flatnonzero((places(batch.observation)[1:] == 0) & (places(batch.next_observation)[:-1] != 0))
        assert (cut % 3 == 2).all()
        assert len(cut) >= 3
    both = sampled(envs.make(lambda: kind(limit=4), num_envs=1), sizes, theta=always_right(kind))
    assert both.terminated is None if average else not both.terminated.any()
    assert (places(both.next_observation)[3::4] == 4).all()


@of_both_forms
def test_a_real_end_on_the_last_step_of_the_clock_is_an_end(kind):
    environment = envs.make(lambda: TimeLimit(kind(), 4), num_envs=1)
    batch = sampled(environment, theta=always_right(kind))
    assert batch.terminated.sum() == 10
    assert (places(batch.next_observation)[batch.terminated] == 4).all()


@of_both_forms
def test_forced_restarts_and_ages(kind):
    sizes = Sampling(3, 8, 16, average=False, survival=0.7)
    batch = sampled(envs.make(kind, num_envs=2), sizes, times=3)
    age, here, there = (copies(x, 2) for x in (batch.age, places(batch.observation), places(batch.next_observation)))
    over = copies(batch.terminated, 2)
    goes_on = age[:, 1:] == age[:, :-1] + 1
    np.testing.assert_array_equal(here[:, 1:][goes_on], there[:, :-1][goes_on])
    assert (age[:, 1:][~goes_on] == 0).all()
    assert (here[:, 1:][~goes_on] == 0).all()
    assert not over[:, :-1][goes_on].any()
    assert (~goes_on & ~over[:, :-1]).sum() > 3


@of_both_forms
def test_ages_count_on_from_walk_to_walk(kind):
    """Hardly any forced restarts: an age is 0 after an end only, also where a walk begins."""
    environment = envs.make(kind, num_envs=2)
    run = result.prepare(environment, moac.Config(num_iterations=1, learner="paper"), 1, 0)
    theta, chain = run.parts.policy.init(None), environment.start(KEY)
    sizes, ages, ends = Sampling(1, 6, 8, average=False, survival=1 - 1e-12), [], []
    for k in range(20):
        chain, critic, actor = environment.sample(chain, run.parts.policy, theta, np.array([k, 5], np.uint32), sizes)
        ages.append(copies(np.concatenate([critic.age[0], actor.age]), 2))
        ends.append(copies(np.concatenate([critic.terminated[0], actor.terminated]), 2))
    age, over = np.concatenate(ages, axis=1), np.concatenate(ends, axis=1)
    np.testing.assert_array_equal(age[:, 1:], np.where(over, 0, age + 1)[:, :-1])
    assert (age[:, 0] == 0).all()
    assert over.sum() > 2
    assert (age[:, 7::7] > 0).sum() > 2  # walks that begin within an episode


@pytest.mark.parametrize("n", [1, 4])
def test_arrays_that_the_environment_keeps_are_copied(n):
    batch = sampled(envs.make(Own, num_envs=n))
    here, there, over = (copies(x, n) for x in (batch.observation, batch.next_observation, batch.terminated))
    np.testing.assert_allclose(here[:, 1:], np.where(over[..., None], 0, there)[:, :-1])
    assert len(np.unique(here)) == 4


def test_vectors_and_states_see_the_same_walk():
    """The same seeds and an untrained policy: only the form of what is seen differs."""
    states, vectors = sampled(envs.make(Line, num_envs=2)), sampled(envs.make(Own, num_envs=2))
    np.testing.assert_allclose(vectors.observation[:, 0] * 4, states.observation)
    np.testing.assert_allclose(vectors.next_observation[:, 0] * 4, states.next_observation)
    for field in ("action", "reward", "terminated"):
        np.testing.assert_array_equal(getattr(states, field), getattr(vectors, field))


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("raises", "step 7 of copy 0: step raised ZeroDivisionError: no road."),
        ("nan", "step 7 of copy 0: its reward must be finite and within ±1e+15, got [nan, -1.0]."),
        ("huge", "step 7 of copy 0: its reward must be finite and within ±1e+15, got [1.0000000150474662e+30, -1.0]."),
        ("short", "step 7 of copy 0: its reward must have length 2, got 1."),
        ("outside", "step 7 of copy 0: `observation` must lie in its space, got [9]."),
    ],
)
def test_what_goes_wrong_names_step_and_copy(fault, line):
    for make in (lambda: Line(fault), lambda: Own(fault=fault)):
        if fault == "outside" and make().__class__ is Own:
            continue
        with pytest.raises(SourceError) as error:
            sampled(envs.make(make, num_envs=2))
        assert str(error.value) == f"the environment failed at {line}"


@of_both_forms
def test_steps_are_counted_over_all_walks(kind):
    with pytest.raises(SourceError, match="at step 47 of copy 0: step raised ZeroDivisionError"):
        sampled(envs.make(lambda: kind(fault="raises", at=47), num_envs=1), times=2)


@pytest.mark.parametrize(
    ("bad", "line"), [([np.nan, 0.0], "be finite and within ±1e+15, got [nan, 0.0]"), ([0.0], "have length 2, got 1")]
)
def test_a_bad_reward_names_the_copy_that_gave_it(bad, line):
    two = [Copy(envs.make(Line).interface, number, seed=0) for number in (0, 1)]
    rows = [packed([0.0, 1.0])] * 4 + [packed(bad)] + [packed([0.0, 1.0])]
    with pytest.raises(SourceError) as error:
        rewards_of(two, rows, 3, 2)
    assert str(error.value) == f"the environment failed at step 2 of copy 1: its reward must {line}."


@pytest.mark.parametrize("kind", [list, np.float32, np.float64, np.int64])
def test_rewards_of_any_kind_are_packed_in_single_precision(kind):
    reward = [3, 0] if kind is list else np.array([3, 0], dtype=kind)
    assert packed(reward) == np.array([3, 0], dtype=np.float32).tobytes()


def test_an_observation_that_is_not_finite_is_refused():
    class Lost(Own):
        def shown(self):
            return np.array([np.nan if self.count == 5 else self.place])

    with pytest.raises(SourceError, match=r"step 5 of copy 0: its observation must be finite, got \[nan\]"):
        sampled(envs.make(Lost, num_envs=1))


@pytest.mark.parametrize("shape", [(2,), (1, 2)], ids=["plain", "nested"])
def test_an_observation_of_another_length_is_refused(shape):
    class Long(Own):
        def shown(self):
            return np.full(shape if self.count == 5 else (1,), float(self.place))

    with pytest.raises(SourceError, match=r"step 5 of copy 0: `observation` must have 1 numbers .*, got 2"):
        sampled(envs.make(Long, num_envs=1))


@pytest.mark.parametrize("env", ["minecart-v0", "four-room-v0"])
def test_what_an_environment_draws_globally_is_seeded_and_left_alone(env):
    """minecart's ore comes from NumPy's global generator, whatever seed it is given."""
    config = moac.Config(learner="paper", num_iterations=2, num_evaluations=1)
    environment = envs.make(env, num_envs=2, evaluation_episodes=2)
    np.random.seed(5)  # noqa: NPY002
    first = moac.train(environment, config, seed=1)
    left = np.random.random()  # noqa: NPY002
    np.random.seed(6)  # noqa: NPY002
    again = moac.train(environment, config, seed=1)
    np.testing.assert_array_equal(first.returns, again.returns)
    np.testing.assert_array_equal(np.asarray(first.policy), np.asarray(again.policy))
    np.random.seed(5)  # noqa: NPY002
    assert left == np.random.random()  # noqa: NPY002


def test_global_generators_are_put_back_as_they_were():
    """Also the second half of a pair of normal numbers, and however often they are kept within each other."""
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    np.random.standard_normal()  # noqa: NPY002 - the other half is due
    expected = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    environment = envs.make("minecart-v0", num_envs=2)
    with environment.undisturbed():
        sampled(environment, times=2)
    sampled(environment)
    found = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    np.testing.assert_equal(found, expected)


def test_draws_are_those_of_a_generator_with_that_key():
    for key in (KEY, np.array([7, 9], np.uint32)):
        generator = np.random.Generator(np.random.Philox(key=key.astype(np.uint64)))
        np.testing.assert_array_equal(draw(key, (2, 20), SIZES).uniform, generator.random((2, 20)))


def test_what_draws_globally_is_seeded_from_32_bits():
    seeds = [draw(np.array([7, k], np.uint32), (2, 20), SIZES).seed for k in range(200)]
    assert len(set(seeds)) == 200 and 2**31 < max(seeds) < 2**32


def test_random_ore_is_the_same_for_the_same_seeds():
    """Mines are visited only in long walks: the ore itself is compared."""
    sizes = Sampling(1, 3000, 3000, average=False, survival=None)
    batches = [sampled(envs.make("minecart-v0", num_envs=2), sizes) for _ in range(2)]
    np.testing.assert_array_equal(batches[0].reward, batches[1].reward)
    assert (batches[0].reward[:, :2] > 0).any()


def test_of_several_copies_the_one_that_is_lost_is_named():
    two = [Copy(envs.make(Line).interface, number, seed=0) for number in (0, 1)]
    with pytest.raises(SourceError, match=r"copy 1: its observation must be finite, got \[nan, 3.0\]"):
        rollout._check_finite(two, np.array([[1.0, 2.0], [np.nan, 3.0]]), 4)


@pytest.mark.filterwarnings("error:overflow")
def test_a_reward_beyond_single_precision_is_refused_without_a_warning():
    class Huge(Line):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, reward.astype(np.float64) * 1e39, *rest

    with pytest.raises(SourceError, match=r"its reward must be finite and within ±1e\+15, got \[0.0, -inf\]"):
        sampled(envs.make(Huge, num_envs=2))


def test_draws_of_some_copies_are_theirs():
    draws = rollout.Draws(np.arange(8.0).reshape(4, 2), np.eye(4, 2, dtype=bool), False)
    for first, last in ((0, 4), (1, 3), (3, 4)):
        part = draws.of(first, last)
        np.testing.assert_array_equal(part.uniform, draws.uniform[first:last])
        np.testing.assert_array_equal(part.forced, draws.forced[first:last])
        assert part.normal is None and part.average is False
