"""Logs in the forms that other libraries read."""

import numpy as np
import pytest

from moac.logs import About, LoggedDataset, Rows, arrays

WEIGHTS = (1.0, 0.5)


@pytest.fixture(scope="module")
def dataset():
    """Three users; the second one's episode terminates in the middle."""
    rows = Rows(
        user=[3, 3, 1, 1, 1, 2],
        action=[7, 9, 9, 7, 8, 8],
        reward=[[1, 0], [0, 1], [1, 1], [2, 0], [0, 0], [3, 4]],
        time=[1, 2, 1, 2, 3, 1],
        context=[[0], [1], [0], [0], [1], [1]],
        terminated=[False, False, False, True, False, False],
    )
    about = About(signal_names=("Gain", "Cost"), signs=(1, -1), shares=(1.0, 0.0, 0.0), window=2)
    return LoggedDataset.from_numpy(rows, about)


def test_rows_become_aligned_arrays_with_one_reward(dataset):
    exported = arrays.mdp_arrays(dataset, WEIGHTS)
    np.testing.assert_array_equal(dataset.user_ids[dataset.user], [1, 1, 1, 2, 3, 3])
    np.testing.assert_array_equal(exported["actions"], [2, 0, 1, 1, 0, 2])
    np.testing.assert_allclose(exported["rewards"], [1 - 0.5, 2, 0, 3 - 2, 1, -0.5])
    np.testing.assert_array_equal(exported["terminals"], [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(exported["timeouts"], [0, 0, 1, 1, 0, 1])
    assert exported["action_size"] == 3
    expected = np.asarray(dataset.features(dataset.observation(np.arange(6))))
    np.testing.assert_allclose(exported["observations"], expected)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, 3.0), (1.0, np.nan)])
def test_weights_that_do_not_fit_are_said(dataset, weights):
    with pytest.raises(ValueError, match="`weights` must be 2 numbers, one for each of Gain, Cost"):
        arrays.mdp_arrays(dataset, weights)
