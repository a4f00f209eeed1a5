import numpy as np
import pytest

from moac.training.run import History
from moac.types import Evaluation, Metrics

K, M = 3, 2
GRAM = np.array([[[4.0, 0.0], [0.0, 1.0]], [[1.0, -1.0], [-1.0, 1.0]], [[4.0, 2.0], [2.0, 1.0]]], np.float32)
WEIGHTS = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]], np.float32)


def evaluation(value):
    return Evaluation(np.full((K, M), value), *(np.full(K, value + k) for k in (1, 2, 3)), kind="exact", steps=7)


def test_what_follows_from_a_gram_matrix():
    history = History.empty().extended(1, Metrics(GRAM, WEIGHTS), evaluation(0.0))
    np.testing.assert_allclose(history.gradient_norm_squared[:, 0], [1.25, 0, 4], atol=1e-12)
    np.testing.assert_allclose(history.smallest_alignment[:, 0], [0.5, 0, 2], atol=1e-12)
    np.testing.assert_allclose(history.min_norm_weights[:, 0], [[0.2, 0.8], [0.5, 0.5], [0, 1]], atol=1e-12)
    np.testing.assert_array_equal(history.weights[:, 0], WEIGHTS)


def test_columns_grow():
    history = History.empty()
    for iteration in (1, 5, 9):
        history = history.extended(iteration, Metrics(GRAM, WEIGHTS), evaluation(float(iteration)))
    assert history.iteration.tolist() == [1, 5, 9]
    for name, array in history.arrays_per_trial().items():
        assert array.shape == ((K, 3, M) if name in ("returns", "weights", "min_norm_weights") else (K, 3))
    np.testing.assert_array_equal(history.returns[0, :, 0], [1, 5, 9])
    np.testing.assert_array_equal(history.gap[0], [2, 6, 10])
    np.testing.assert_array_equal(history.direction_gap[0], [3, 7, 11])
    np.testing.assert_array_equal(history.regret[0], [4, 8, 12])
    assert history.evaluation_steps.tolist() == [7, 14, 21]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_a_trial_that_is_not_finite_leaves_the_others_alone(bad):
    gram, weights = GRAM.copy(), WEIGHTS.copy()
    gram[1] = bad
    weights[1] = np.nan
    history = History.empty().extended(1, Metrics(gram, weights), evaluation(0.0))
    healthy = History.empty().extended(1, Metrics(GRAM, WEIGHTS), evaluation(0.0))
    for name in ("gradient_norm_squared", "smallest_alignment", "min_norm_weights", "weights"):
        np.testing.assert_array_equal(getattr(history, name)[[0, 2]], getattr(healthy, name)[[0, 2]])
    assert not np.isfinite(history.gradient_norm_squared[1, 0])


def test_arrays_round_trip():
    history = History.empty().extended(1, Metrics(GRAM, WEIGHTS), evaluation(0.0))
    again = History.of_arrays(history.arrays(), "exact")
    assert again.arrays().keys() == history.arrays().keys()
    assert all(again.arrays()[name] is array for name, array in history.arrays().items())
    with pytest.raises(KeyError, match=r"regret"):
        History.of_arrays({name: array for name, array in history.arrays().items() if name != "regret"}, "exact")
