"""A log as a source of training: what is drawn, on the device, from arguments."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moac
from moac.logs import About, LoggedDataset, Rows, arrays, states
from moac.policies.observations import LogSpec
from moac.types import Sampling

SIZES = Sampling(num_critic_steps=3, critic_batch_size=8, actor_batch_size=16, average=False, survival=None)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    n = 500
    rows = Rows(
        user=rng.integers(0, 60, n) * 7,
        action=rng.integers(10, 15, n),
        reward=rng.random((n, 3)),
        time=rng.permutation(n),
        context=rng.integers(0, 4, (n, 2)),
        propensity=np.full(n, 0.2),
        terminated=rng.random(n) < 0.05,
    )
    about = About("small", ("click", "share", "hate"), (1, 1, -1), users=rng.random((60, 4)))
    return LoggedDataset.from_numpy(rows, about)


def draw(dataset, key, sizes=SIZES):
    return jax.tree.map(np.asarray, states.draw(sizes, dataset.data, jax.random.key(key)))


def test_arrays_that_a_traced_function_asks_for_first_outlive_it(dataset):
    fresh = replace(dataset)
    jax.eval_shape(lambda: fresh.data.reward)
    np.testing.assert_array_equal(fresh.data.reward, dataset.reward)


def test_the_spec_says_what_it_is(dataset):
    spec = dataset.spec
    assert (spec.name, spec.num_states, spec.num_actions) == ("small", None, 5)
    assert isinstance(spec.observations, LogSpec)
    assert spec.objective_names == ("click", "share", "hate")
    assert spec.reward_bound == np.abs(dataset.reward[dataset.rows("train")]).max()
    assert spec.fingerprint == dataset.fingerprint
    assert dataset.compiled
    assert dataset.start(jax.random.key(0)) == ()


def test_numbers_of_a_state_without_names_are_numbered(dataset):
    names = dataset.feature_names
    assert dataset.table_names is None and len(set(names)) == len(names) == dataset.num_features


def test_responses_above_one_are_scaled_by_three_root_mean_squares_of_train_rows():
    reward = np.array([[0.5, 4.0], [1.0, -8.0], [0.0, 2.0]])
    assert arrays._scale(reward) == (1.0, float(f"{3 * np.sqrt((16 + 64 + 4) / 3):.2g}"))


def test_batches_are_rows_of_train_users(dataset):
    critic, actor = draw(dataset, 0)
    assert critic.reward.shape == (3, 8, 3)
    assert actor.reward.shape == (16, 3)
    for batch in (critic, actor):
        assert set(dataset.split[np.asarray(batch.observation.user)].ravel()) == {0}
    rows = {int(end): k for k, end in enumerate(dataset.end)}
    for k in range(16):
        row = rows[int(actor.observation.end[k])]
        assert dataset.action[row] == actor.action[k]
        np.testing.assert_array_equal(dataset.reward[row], actor.reward[k])
        assert dataset.terminated[row] == actor.terminated[k]
        np.testing.assert_allclose(actor.behaviour_log_prob[k], np.log(0.2), rtol=1e-6)


def test_every_train_row_is_drawn_about_equally_often(dataset):
    sizes = Sampling(1, 4, 40_000, False, None)
    _, actor = draw(dataset, 1, sizes)
    train = dataset.rows("train")
    counts = np.bincount(np.asarray(actor.observation.end), minlength=dataset.num_rows)[dataset.end[train]]
    expected = 40_000 / len(train)
    assert counts.sum() == 40_000
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - len(train)) < 6 * np.sqrt(2 * len(train))


def test_drawing_depends_on_the_key_alone(dataset):
    jax.tree.map(np.testing.assert_array_equal, draw(dataset, 3), draw(dataset, 3))
    assert np.any(draw(dataset, 3)[1].action != draw(dataset, 4)[1].action)


def test_a_program_takes_the_arrays_as_arguments_not_as_constants(dataset):
    def program(data, key):
        log = dataset.bound(data)
        _, critic, actor = log.sample(log.start(key), None, None, key, SIZES)
        return critic.observation, actor.next_observation

    traced = jax.make_jaxpr(program)(dataset.data, jax.random.key(0))
    assert sum(np.size(constant) for constant in traced.consts) < 100
    critic, actor = program(dataset.data, jax.random.key(2))
    drawn = draw(dataset, 2)
    np.testing.assert_array_equal(critic, dataset.features(drawn[0].observation))
    np.testing.assert_array_equal(actor, dataset.features(drawn[1].next_observation))


def test_trials_may_be_vmapped_over_the_same_arrays(dataset):
    keys = jax.random.split(jax.random.key(0), 4)
    vmapped = jax.jit(jax.vmap(lambda key: dataset.sample((), None, None, key, SIZES)[2]))
    actor = jax.tree.map(np.asarray, vmapped(keys))
    assert actor.reward.shape == (4, 16, 3)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.tree.map(lambda x: x[2], actor),
        dataset.sample((), None, None, keys[2], SIZES)[2],
    )


def test_in_the_average_setting_nothing_terminates(dataset):
    program = partial(states.draw, Sampling(1, 4, 4, True, None))
    assert jax.eval_shape(program, dataset.data, jax.random.key(0))[1].terminated is None


def test_a_log_cannot_be_restarted(dataset):
    with pytest.raises(ValueError, match="`visitation` must be stationary"):
        draw(dataset, 0, Sampling(1, 4, 4, False, 0.9))


def test_subsets_are_whole_users(dataset):
    test = dataset.subset("test")
    held = dataset.subset(["validation", "test"])
    assert set(test.split[test.user]) == {2}
    assert test.num_rows + len(dataset.rows("validation")) == held.num_rows
    assert test.fingerprint != dataset.fingerprint
    rows = np.arange(test.num_rows)
    whole = dataset.next_observation(dataset.rows("test"))
    jax.tree.map(np.testing.assert_array_equal, test.next_observation(rows), whole)
    with pytest.raises(ValueError, match=r"one of train, validation, test, got 'tests'\. Did you mean test\?"):
        dataset.rows("tests")


def test_a_cost_is_turned_once_and_rows_are_ordered_by_user_and_time():
    rows = Rows(user=[9, 3, 9, 3], action=[1, 2, 2, 1], reward=[[1, 4], [2, 5], [3, 6], [4, 0]], time=[5, 9, 1, 2])
    dataset = LoggedDataset.from_numpy(rows, About(signs=(1, -1), shares=(1.0, 0.0, 0.0)))
    assert dataset.user_ids[dataset.user].tolist() == [3, 3, 9, 9]
    assert dataset.time.tolist() == [2, 9, 1, 5]
    np.testing.assert_array_equal(dataset.reward, [[4, 0], [2, -5], [3, -6], [1, -4]])
    assert not np.signbit(dataset.reward[0, 1])
    assert dataset.truncated.tolist() == [False, True, False, True]


def test_a_code_that_no_train_user_has_is_unknown(dataset):
    del dataset
    seed = next(s for s in range(50) if _splits(s) == [0, 2])
    rows = Rows(user=[0, 0, 1], action=[0, 1, 0], reward=np.ones((3, 1)), context=[[0], [1], [7]])
    log = LoggedDataset.from_numpy(rows, About(split_seed=seed, shares=(0.5, 0.0, 0.5)))
    assert log.tables.context_sizes == (2,)
    x = log.features(log.observation(jnp.arange(3)))
    np.testing.assert_array_equal(x[:, :2], [[1, 0], [0, 1], [0, 0]])


def _splits(seed):
    from moac.logs.splits import split_users

    return split_users(np.array([0, 1]), seed, (0.5, 0.0, 0.5)).tolist()


GOOD = {"user": [1, 2], "action": [0, 1], "reward": [[1.0], [2.0]]}


@pytest.mark.parametrize(
    ("change", "about", "words"),
    [
        ({"user": []}, {}, "`user` must have shape"),
        ({"action": [0]}, {}, r"`action` must have shape \[N\] with N = 2"),
        ({"reward": [1.0, 2.0]}, {}, "`reward` must have shape"),
        ({"reward": [[1.0], [np.nan]]}, {}, "`reward` must be finite, got nan in row 1"),
        ({"reward": [[1.0], [-1e30]]}, {}, "`reward` must be within ±1e.15, got -1e.30 in row 1"),
        ({"user": [1.5, 2.0]}, {}, "`user` must hold whole numbers"),
        ({"propensity": [0.5, np.nan]}, {}, "`propensity` must be finite, got nan in row 1"),
        ({"propensity": [0.5, 1e-50]}, {}, r"`propensity` must be in \(0, 1\], got 0.0 in row 1"),
        ({"propensity": [0.5, 1e-40]}, {}, r"`propensity` must be at least 1e-37, got .*e-4. in row 1"),
        ({"context": [0, 1]}, {}, "`context` must have shape"),
        ({"reward": [["a"], ["b"]]}, {}, "`reward` must be an array of numbers: could not convert string"),
        ({"time": ["2022-05-01", "2022-05-02"]}, {}, "`time` must hold numbers, or dates of NumPy, got <U10"),
        ({}, {"window": -1}, "`window` must be at least 0, got -1"),
        ({"reward": [[1.0, 0.0], [2.0, 1.0]]}, {"signal_names": ("a", "a")}, "`signal_names` must differ, got a, a"),
        ({}, {"signs": (1, 1)}, "`signs` must hold one per signal"),
        ({}, {"signs": (2,)}, "`signs` must be 1 or -1"),
        ({}, {"signal_names": ("a", "b")}, "`signal_names` must hold one per signal"),
        ({}, {"users": np.zeros((3, 2))}, "`users` must be finite, with one row for each of 2 ids"),
        ({}, {"actions": [[np.inf], [0.0]]}, "`actions` must be finite"),
        ({}, {"shares": (0.9, 0.2, 0.1)}, "`shares`"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, about, words):
    with pytest.raises(ValueError, match=words):
        LoggedDataset.from_numpy(Rows(**(GOOD | change)), About(**about))


def test_training_on_a_log_says_what_is_missing(dataset):
    blind = replace(dataset, propensity=None)
    with pytest.raises(ValueError, match=r"small has no propensities: fit a model .*with_behaviour\("):
        moac.train(blind, moac.Config(num_iterations=2))
    for wrong, message in (
        ({"setting": moac.Average()}, "`setting` must be discounted on a log"),
        ({"gae": 0.5}, "`gae` must be 0 on a log"),
        ({"visitation": "discounted"}, "`visitation` must be stationary on a log"),
        ({"features": "raw"}, "`features` must be plain on a log"),
        ({"start": "behaviour"}, "`start` must be random on small, which has no behaviour model"),
    ):
        with pytest.raises(ValueError, match=message):
            moac.train(dataset, moac.Config(num_iterations=2, **wrong))


def test_ids_may_be_texts_and_codes_may_not():
    texts = LoggedDataset.from_numpy(Rows(**GOOD | {"user": ["b", "a"], "action": ["x", "y"]}))
    assert texts.user_ids.tolist() == ["a", "b"] and sorted(texts.action_ids) == ["x", "y"]
    objects = Rows(**GOOD | {"user": np.array(["b", "a"], object), "action": ["x", "y"]})
    more = LoggedDataset.from_numpy(objects, About(action_ids=("a longer one",), signs=np.array([-1])))
    assert more.action_ids.tolist() == ["a longer one", "x", "y"] and more.signs == (-1,)
    assert more.user_ids.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="`context` must hold whole numbers"):
        LoggedDataset.from_numpy(Rows(**GOOD | {"context": [["x"], ["y"]]}))


@pytest.mark.parametrize("unit", ["s", "ns", "D"])
def test_dates_are_times_in_microseconds(unit):
    days = np.array(["2022-05-02", "2022-05-01"], f"datetime64[{unit}]")
    about = About(split="time:2022-05-02", shares=(0.5, 0.5, 0.0))
    dataset = LoggedDataset.from_numpy(Rows(**GOOD | {"user": [1, 1], "time": days}), about)
    np.testing.assert_array_equal(dataset.time, np.array([1651363200, 1651449600]) * 10**6)
    np.testing.assert_array_equal(dataset.row_splits, [0, 1])
    np.testing.assert_array_equal(dataset.action, [1, 0])


@pytest.mark.parametrize(
    "change",
    [{"reward": [[1.0], [3.0]]}, {"action": [0, 0]}, {"user": [1, 1]}, {"time": [4, 7]}, {"context": [[0], [1]]},
     {"propensity": [0.5, 0.4]}],
)  # fmt: skip
def test_a_fingerprint_knows_every_column(change):
    same, again, other = (LoggedDataset.from_numpy(Rows(**GOOD | more)).fingerprint for more in ({}, {}, change))
    assert same == again != other
