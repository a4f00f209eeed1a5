"""What an argument says is done or refused: nothing is ignored, counted twice, or taken for something else."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import moac
from moac import momdp, weighting
from moac.logs import About, LoggedDataset, Rows
from moac.offline import ncis
from moac.policies import SoftmaxTable
from tests.helpers.archives import archive
from tests.helpers.run_folders import CONFIG, model


@pytest.fixture(scope="module")
def trained():
    return moac.train(model(), CONFIG, trials=2, seed=7)


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    rows = Rows(np.repeat(np.arange(20), 3), rng.integers(0, 3, 60), rng.integers(0, 2, (60, 2)))
    return LoggedDataset.from_numpy(rows, About(shares=(0.6, 0.2, 0.2)))


@pytest.mark.parametrize(
    ("trials", "got"),
    [([0, 0], "0 twice"), ([0, 2], "2"), (-1, "-1"), (True, "True"), ([0.5], ".*0.5"), ([False], ".*False")],
)
def test_evaluate_counts_each_trial_once(trained, trials, got):
    with pytest.raises(ValueError, match=rf"^`trials` must .*, got \[?{got}"):
        moac.evaluate(trained, "fishwood-v0", trials=trials, episodes=2)


@pytest.mark.parametrize("trial", [0.5, True, -1, 2, 2**63, None, "0"])
def test_a_trial_is_the_index_of_one(trained, trial):
    with pytest.raises(ValueError, match=r"^`trial` must be a whole number.*, got "):
        trained.policy.of_trial(trial)


@pytest.mark.parametrize("index", [10**6, -1, True, 0.5])
def test_an_archive_has_no_policy_beyond_its_points(trained, index):
    kept = archive([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"^`index` must be a whole number.*, got "):
        replace(kept, policies=trained.policy).policy(index)


@pytest.mark.parametrize(
    "preference", [[np.nan, np.nan], [np.inf, 0], [-1.0, 2.0], [0.0, 0.0], "0.5,0.5", [0.5], [1j, 0]]
)
def test_no_point_is_best_for_what_is_no_preference(preference):
    with pytest.raises(ValueError, match=r"^`preference` must .*, got "):
        archive([[1.0, 0.0], [0.0, 1.0]]).best_for(preference)


def test_a_result_goes_on_with_what_it_has(trained):
    own = {
        "problem": "fishwood-v0", "policy": SoftmaxTable(2, 2), "rule": weighting.uniform(), "sinks": ("tensorboard",)
    }  # fmt: skip
    for name, value in own.items():
        with pytest.raises(ValueError, match=rf"^`{name}` (must be left out|needs a folder)"):
            moac.resume(trained, **{name: value})


def test_preferences_are_given_or_drawn():
    with pytest.raises(ValueError, match=r"^`draw` must be left out where `preferences` are vectors, got 'grid'"):
        moac.explore("fishwood-v0", preferences=[[0.5, 0.5]], draw="grid")


def test_there_is_one_place_to_evaluate_in(trained, log):
    with pytest.raises(ValueError, match=r"^`data` must be left out beside `problem`"):
        moac.evaluate(trained, "fishwood-v0", data=log)
    with pytest.raises(
        ValueError, match=r"^`problem` must be an environment, which the policy was trained on, got log"
    ):
        moac.evaluate(trained, log)


def test_an_action_is_the_index_of_one(trained):
    assert trained.policy.log_prob(0, np.int32(1)) == trained.policy.log_prob(0, 1)
    for action in (True, 1.0, 2, -1):
        with pytest.raises(ValueError, match=r"^`action` must be a whole number in \[0, 2\), got "):
            trained.policy.log_prob(0, action)


def test_a_rule_takes_what_it_is_given():
    for name in ("x", "min-norm:3", "cagrad:x", "cagrad:", "capped:0.5:1"):
        with pytest.raises(ValueError, match=r"^`name` must be one of min-norm, .*, got "):
            weighting.by_name(name)
    for name in ("uniform", "first-batch"):
        with pytest.raises(ValueError, match=r"^`weights` must be None for a rule that takes none, got "):
            weighting.by_name(name, weights=[0.2, 0.8])
    assert weighting.by_name("cagrad:0.2").simplex is False


@pytest.mark.parametrize("rows", [[-1], [60], [0.5], [True], "nobody", [[0]]])
def test_rows_of_a_log_are_indices_or_a_mask(log, rows):
    known = ncis.Logged.of(np.arange(60), np.ones(60), np.full(60, 0.5))
    with pytest.raises(ValueError, match=r"^`(chosen|rows|split)` must be .*, got "):
        known.rows(rows)
    with pytest.raises(ValueError, match=r"^`(chosen|rows|split)` must be .*, got "):
        ncis.Logged.from_dataset(log, rows)
    assert len(known.rows(np.arange(60) < 7).user) == len(known.rows([3, 1, 4, 1, 5, 9, 2]).user) == 7


def test_an_observation_of_a_log_is_of_one_of_its_rows(log):
    for rows in ([-1], 60, [0.5]):
        with pytest.raises(ValueError, match=r"^`rows` must be indices in \[0, 60\), got "):
            log.observation(rows)
    assert jax.tree.leaves(jax.jit(log.observation)(np.arange(2)))[0].shape[0] == 2


def test_numbers_of_a_count_fit_in_what_counts_them():
    for trials in (2**63, 10**400):
        with pytest.raises(ValueError, match=r"^`trials` must be a whole number below 2\^32, got "):
            moac.train("fishwood-v0", trials=trials)


def test_a_file_is_no_folder(trained, tmp_path):
    with pytest.raises(ValueError, match=r"^`path` must be the place of a file, got the folder "):
        moac.export(trained, tmp_path)


def test_arrays_of_one_call_fit_to_each_other():
    with pytest.raises(ValueError, match=r"^`d` must have shape \[S\] with S = 2, got \(3,\)"):
        moac.theory.mixing.distance(np.eye(2), np.ones(3))
    with pytest.raises(ValueError, match=r"^`A` must have shape \[M, M\] with M = 2, got \(2, 3\)"):
        moac.simplex.non_negative(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match=r"^`x` must have shape \[M\] with M = 1, got \(0,\)"):
        moac.simplex.projection(np.zeros(0))
    with pytest.raises(ValueError, match=r"^`returns` must have shape \[..., 2\], got \(3,\)"):
        momdp.support_of(model(), CONFIG.setting).regret(np.ones(3))


def test_one_key_is_one_key():
    with pytest.raises(ValueError, match=r"^`key` must be a whole number or a key such as jax.random.key\(0\), got "):
        momdp.library.random_ergodic(jax.random.split(jax.random.key(0)))
