"""The adapter: what is stepped, what is kept of it, and what goes wrong."""

import math
import random

import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import moac
from moac import envs, training
from moac.envs import evaluation
from moac.envs.rollout import Copy, Rollout, draw, packed, rewards_of
from moac.momdp import library
from moac.policies import SoftmaxTable
from moac.training import result
from moac.training.trained import TrainedPolicy
from moac.types import Sampling, SourceError
from tests.helpers import compiling
from tests.helpers.environments import Line, Own, Unbounded

of_both_forms = pytest.mark.parametrize("kind", [Line, Own], ids=["states", "vectors"])
SIZES = Sampling(num_critic_steps=3, critic_batch_size=8, actor_batch_size=16, average=False, survival=None)
KEY = np.array([1, 2], np.uint32)


@pytest.fixture(autouse=True, scope="module")
def quick_to_compile():
    """Few iterations: compiling for speed would cost more than it saves."""
    with compiling.quickly():
        yield


def sampled(environment, sizes=SIZES, theta=None, times=1):
    """Batches of an untrained policy, all transitions in one row, of the last of several iterations."""
    run = result.prepare(environment, moac.Config(num_iterations=1), 1, 0)
    theta = run.parts.policy.init(None) if theta is None else theta
    chain = environment.start(KEY)
    for k in range(times):
        chain, critic, actor = environment.sample(chain, run.parts.policy, theta, np.array([k, 5], np.uint32), sizes)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), critic)
    return jax.tree.map(lambda a, b: np.concatenate([a, b]), flat, actor)


def places(observation):
    """Where on the line: a state, or a vector scaled to [0, 1]."""
    return observation if observation.ndim == 1 else observation[:, 0] * 4


def copies(array, n):
    """[n, T] of what stands side by side."""
    return np.asarray(array).reshape(-1, n, *np.shape(array)[1:]).swapaxes(0, 1)


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


def always_right(kind):
    """Logits of a table, or weights of the features of a vector: tiles, of which some are 1 everywhere."""
    rows = 5 if kind is Line else result.prepare(envs.make(kind), moac.Config(), 1, 0).parts.policy.init(None).shape[0]
    return np.array([[0.0, 50.0]] * rows, np.float32)


def test_the_time_limit_can_be_lifted():
    for lifted in (True, False):
        environment = envs.make(lambda: TimeLimit(Line(), 2), num_envs=1, time_limit=not lifted)
        assert (sampled(environment).observation.max() > 2) == lifted


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
    run = result.prepare(environment, moac.Config(num_iterations=1), 1, 0)
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


def test_running_moments_are_kept_per_chain_and_recalled():
    environment = envs.make(Unbounded, num_envs=2)
    run = result.prepare(environment, moac.Config(num_iterations=3, num_evaluations=3), 2, 0)
    assert run.config.observation_scale == "running"
    last = list(training.iterate(run))[-1]
    memory = last.trials.chain
    assert memory["count"].tolist() == [3 * 448] * 2
    assert memory["mean"][0] != memory["mean"][1]
    policy = result.Result.of(run, last).policy
    low = memory["mean"][1] - 3 * np.sqrt(memory["squares"][1] / memory["count"][1])
    np.testing.assert_allclose(policy.observations.scale(1).shift, low)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("raises", "step 7 of copy 0: step raised ZeroDivisionError: no road."),
        ("nan", "step 7 of copy 0: its reward must be finite, got [nan, -1.0]."),
        ("short", "step 7 of copy 0: its reward must have length 2, got 1."),
        ("outside", "step 7 of copy 0: an observation must lie in its space, got [9]."),
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
    ("bad", "line"), [([np.nan, 0.0], "be finite, got [nan, 0.0]"), ([0.0], "have length 2, got 1")]
)
def test_a_bad_reward_names_the_copy_that_gave_it(bad, line):
    two = [Copy(envs.make(Line).interface, number, seed=0) for number in (0, 1)]
    rows = [packed([0.0, 1.0])] * 4 + [packed(bad)] + [packed([0.0, 1.0])]
    with pytest.raises(SourceError) as error:
        rewards_of(two, rows, 3, 2)
    assert str(error.value) == f"the environment failed at step 2 of copy 1: its reward must {line}."


def test_an_observation_that_is_not_finite_is_refused():
    class Lost(Own):
        def shown(self):
            return np.array([np.nan if self.count == 5 else self.place])

    with pytest.raises(SourceError, match=r"step 5 of copy 0: its observation must be finite, got \[nan\]"):
        sampled(envs.make(Lost, num_envs=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "`num_envs` must be a whole number of at least 1, got 0."),
        ({"num_envs": 2, "workers": 3}, "`workers` must be at most `num_envs` (2), got 3."),
        ({"step_timeout": 1.0}, "`step_timeout` needs `workers`"),
        ({"workers": 1, "step_timeout": 0}, "`step_timeout` must be a positive number of seconds, got 0."),
        ({"workers": 1, "step_timeout": math.inf}, "`step_timeout` must be a positive number of seconds, got inf."),
        ({"workers": 1, "step_timeout": True}, "`step_timeout` must be a positive number of seconds, got True."),
        ({"evaluation_episodes": 1.5}, "`evaluation_episodes` must be a whole number of at least 1, got 1.5."),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError) as error:
        envs.make(Line, **options)
    assert str(error.value).startswith(message)


def test_unknown_spaces_end_with_one_line():
    with pytest.raises(ValueError, match=r"Line.* cannot be trained on: `observation_space` must be .*, got Text"):
        envs.make(Line, observation_space=spaces.Text(3))


def test_a_scalar_reward_is_refused():
    with pytest.raises(ValueError, match="its reward must be a vector, got a number"):
        envs.make("CartPole-v1")


def test_batches_must_hold_whole_rows_of_copies():
    with pytest.raises(ValueError, match=r"`critic_batch_size` must be a multiple of `num_envs` \(3\), got 64"):
        result.prepare(envs.make(Line, num_envs=3), moac.Config(critic_batch_size=64), 1, 0)
    assert moac.defaults(envs.make(Line, num_envs=3)).critic_batch_size == 66


def test_a_trial_depends_on_seed_and_number_alone():
    environment, config = envs.make(Line, num_envs=4), moac.Config(num_iterations=4, num_evaluations=2)
    one, three = moac.train(environment, config, seed=3), moac.train(environment, config, trials=3, seed=3)
    for name in ("returns", "weights", "gradient_norm_squared"):
        np.testing.assert_array_equal(getattr(one.history, name)[0], getattr(three.history, name)[0])
    np.testing.assert_array_equal(np.asarray(one.policy)[0], np.asarray(three.policy)[0])
    assert np.abs(np.asarray(three.policy)[0] - np.asarray(three.policy)[1]).max() > 0
    assert three.returns.shape == (3, 2)


@pytest.mark.parametrize("env", ["minecart-v0", "four-room-v0"])
def test_what_an_environment_draws_globally_is_seeded_and_left_alone(env):
    """minecart's ore comes from NumPy's global generator, whatever seed it is given."""
    config = moac.Config(num_iterations=2, num_evaluations=1)
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


@of_both_forms
@pytest.mark.parametrize(
    ("make", "length", "truncated"),
    [
        (lambda kind: kind(), 4, False),
        (lambda kind: kind(limit=4), 4, True),  # both flags: the clock has run out
        (lambda kind: TimeLimit(kind(), 4), 4, False),
        (lambda kind: kind(limit=3), 3, True),
        (lambda kind: TimeLimit(kind(), 3), 3, True),
    ],
    ids=["end", "end and clock", "end and limit", "clock", "limit"],
)
def test_an_episode_is_discounted_from_its_first_reward_on_and_says_how_it_ended(kind, make, length, truncated):
    """r = (0, −1) in every step but the fourth, which ends at (1, −1)."""
    environment, gamma = envs.make(lambda: make(kind)), (0.5, 0.9)
    run = result.prepare(environment, moac.Config(), 1, 0)
    trained = TrainedPolicy.of(run.parts.policy, always_right(kind)[None], environment.spec, None, None)
    found = evaluation.play(environment, trained, [3, 4], gamma)
    arrives = float(length == 4)
    np.testing.assert_allclose(found.returns, [[arrives, -length]] * 2)
    np.testing.assert_allclose(found.discounted, [[arrives * 0.5**3, -sum(0.9**t for t in range(length))]] * 2)
    assert found.lengths.tolist() == [length] * 2
    assert found.truncated.tolist() == [truncated] * 2
    cut = evaluation.play(environment, trained, [3], gamma, longest=2)
    assert (cut.lengths.tolist(), cut.truncated.tolist()) == ([2], [True])


def test_random_ore_is_the_same_for_the_same_seeds():
    """Mines are visited only in long walks: the ore itself is compared."""
    sizes = Sampling(1, 3000, 3000, average=False, survival=None)
    batches = [sampled(envs.make("minecart-v0", num_envs=2), sizes) for _ in range(2)]
    np.testing.assert_array_equal(batches[0].reward, batches[1].reward)
    assert (batches[0].reward[:, :2] > 0).any()


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


def test_joined_rollouts_keep_the_order_of_copies():
    first, second = (Rollout(*(np.full((2, 3), 10 * part + k) for k in range(6))) for part in (0, 1))
    assert Rollout.joined([first]) is first
    joined = Rollout.joined([first, second])
    assert joined.observation[:, 0].tolist() == [0, 0, 10, 10]
    assert joined.age[:, 0].tolist() == [5, 5, 15, 15]


def test_what_fails_to_render_says_so_in_one_line():
    class Dark(Line):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's way

        def __init__(self, render_mode=None, **options):
            super().__init__(**options)
            self.render_mode = render_mode

        def render(self):
            raise RuntimeError("no driver\nof that name")

    environment = envs.make(Dark, num_envs=1)
    trained = TrainedPolicy.of(SoftmaxTable(5, 2), np.zeros((1, 5, 2)), environment.spec, None, None)
    with pytest.raises(ValueError) as error:
        evaluation.record(environment, trained, 1, 0, 10)
    assert str(error.value) == "Dark cannot be watched: RuntimeError: no driver of that name."
