"""Rows of a log: columns of a dataset, and one line for each mistake, by argument and value."""

from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.offline import ncis

USER, REWARD, HALF, TABLE = np.arange(6) // 2, np.ones((6, 2)), np.full(6, 0.5), np.full((6, 2), 0.5)


@pytest.fixture(scope="module")
def generated():
    return generate.log(2_000, 5, model=generate.UserModel.of(3, 60), num_users=200)


def test_the_rows_of_a_split(generated):
    dataset = generated.dataset()
    log = ncis.Logged.from_dataset(dataset, "test")
    rows = dataset.rows("test")
    np.testing.assert_array_equal(log.propensity, dataset.propensity[rows])
    np.testing.assert_array_equal(log.user, dataset.user_ids[dataset.user[rows]])
    assert log.signal_names == dataset.signal_names
    assert log.signals(["Like", "Click"]).reward.tolist() == log.reward[:, [1, 0]].tolist()
    mine = ncis.Logged.from_dataset(dataset, rows[3:5])
    np.testing.assert_array_equal(mine.reward, log.reward[3:5])


def test_rows_that_a_dataset_does_not_have(generated):
    with pytest.raises(ValueError, match="has no propensities"):
        ncis.Logged.from_dataset(generated.dataset(known=False))
    everyone = replace(generated.dataset(), split=np.zeros(generated.dataset().num_users, np.int8))
    with pytest.raises(ValueError, match="generated has no rows of test users"):
        ncis.Logged.from_dataset(everyone, "test")


def changed(values, row, value):
    """The same column but for one value."""
    copy = values.copy()
    copy[row] = value
    return copy


def log(**columns):
    """Six rows of three users, of which some columns are others."""
    given = {"user": USER, "reward": REWARD, "propensity": HALF, "action": USER % 2, "signal_names": None} | columns
    return ncis.Logged.of(*given.values())


@pytest.mark.parametrize(
    ("columns", "value"),
    [
        ({"propensity": changed(HALF, 3, 0)}, "0.0 in row 3"),
        ({"propensity": changed(HALF, 2, 1.5)}, "1.5 in row 2"),
        ({"propensity": changed(HALF, 1, np.nan)}, "nan in row 1"),
        ({"propensity": HALF[:5]}, "[5]"),
        ({"reward": REWARD[:5]}, "[5, 2]"),
        ({"reward": changed(REWARD, 4, np.inf)}, "inf in row 4"),
        ({"user": REWARD}, "[6, 2]"),
        ({"action": HALF}, "float64"),
        ({"action": USER - 1}, "-1 in row 0"),
        ({"signal_names": ["a"]}, "['a']"),
    ],
)
def test_a_wrong_column_is_named_with_its_value(columns, value):
    with pytest.raises(ValueError) as raised:
        log(**columns)
    (name,) = columns
    assert str(raised.value).startswith(f"`{name}` must") and str(raised.value).endswith(f", got {value}.")


@pytest.mark.parametrize(
    ("policy", "value"),
    [
        (changed(HALF, 5, -0.1), "-0.1 in row 5"),
        (changed(HALF, 5, 1.1), "1.1 in row 5"),
        (changed(HALF, 0, np.nan), "nan in row 0"),
        (HALF[:4], "[4]"),
        (changed(TABLE, (2, 1), 0.4), "0.9 in row 2"),
    ],
)
def test_wrong_probabilities_are_named_with_their_value(policy, value):
    with pytest.raises(ValueError) as raised:
        log().importance_ratio("policy 'p'", policy)
    assert str(raised.value).startswith("policy 'p' must") and str(raised.value).endswith(f", got {value}.")


def test_what_a_table_of_all_actions_and_a_log_need():
    with pytest.raises(ValueError, match="`action` must be below 1"):
        log().importance_ratio("p", np.ones((6, 1)))
    with pytest.raises(ValueError, match="needs `action`"):
        log(action=None).importance_ratio("p", TABLE)
    with pytest.raises(ValueError, match="no rows"):
        log(user=[])
    with pytest.raises(ValueError, match=r"signal 0, signal 1, got \[.Like.\]"):
        log().signals(["Like"])
