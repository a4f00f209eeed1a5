"""Features fitted on train users, as numbers in [−1, 1]."""

import duckdb
import numpy as np

from moac.logs import features
from moac.logs.schema import Signal


def test_few_values_are_one_hot_and_what_train_users_do_not_have_is_unknown():
    fitted = features.category("c", ["b", "a", None, "", "b"], 4)
    assert fitted.values == ("a", "b")
    assert fitted.names == ("c=a", "c=b")
    np.testing.assert_array_equal(fitted.numbers(["a", "b", "z", None, ""]), [[1, 0], [0, 1]] + 3 * [[0, 0]])


def test_many_values_are_short_vectors_that_differ_and_do_not_depend_on_the_others():
    many = features.category("c", [str(k) for k in range(500)], 4)
    few = features.category("c", [str(k) for k in range(100)], 4)
    assert many.vectors.shape == (501, 4)
    assert len(np.unique(many.vectors, axis=0)) == 501
    assert np.abs(many.vectors).max() <= 1
    np.testing.assert_array_equal(few.numbers(["42"]), many.numbers(["42"]))


def test_numbers_are_scaled_by_train_users_and_a_missing_one_is_average():
    x = np.array([0.0, 10.0, 100.0, np.nan])
    fitted = features.number("n", x)
    logged = np.log1p(x[:3])
    expected = np.clip((logged - logged.mean()) / (3 * logged.std()), -1, 1)
    np.testing.assert_allclose(fitted.numbers(x)[:, 0], [*expected, 0])
    assert fitted.numbers(np.array([1e12]))[0, 0] == 1
    assert features.number("constant", np.full(3, 7.0)).numbers(np.array([7.0]))[0, 0] == 0


def test_an_infinite_number_spoils_no_other():
    column = np.array([1.0, 3.0, np.nan])
    fitted = features.number("x", np.append(column, [np.inf, -np.inf]))
    assert fitted == features.number("x", column)
    assert fitted.numbers(np.array([np.inf, 1e300])).tolist() == [[1.0], [1.0]]


def test_responses_are_in_steps_of_their_scale_and_clipped():
    found = features.response_numbers([[1.0, -2.0], [0.5, 30.0], [-9.0, 0.0]], [1.0, 4.0])
    np.testing.assert_array_equal(found, [[127, -64], [64, 127], [-127, 0]])
    assert found.dtype == np.int8


def test_a_signal_a_little_above_one_has_a_scale_of_its_own():
    signals = [Signal("stars", "stars"), Signal("click", "click")]
    with duckdb.connect() as connection:
        rows = "(VALUES (1.5, 1), (0.5, 0), (0.5, 1)) rows(stars, click)"
        scales = features.response_scales(connection, signals, rows, "true")
    assert scales == (float(f"{3 * np.sqrt((1.5**2 + 2 * 0.5**2) / 3):.2g}"), 1.0)
