import numpy as np
import pytest

from moac.config import Discounted
from moac.momdp import hypervolume, igd_plus, non_dominated, support_of


def test_hypervolume_of_two_boxes():
    assert hypervolume([[2, 1], [1, 3]], [0, 0]) == pytest.approx(4.0)
    assert hypervolume([[2, 1], [1, 3], [1, 1], [5, -1]], [0, 0]) == pytest.approx(4.0)


def test_hypervolume_in_one_and_in_seven_dimensions():
    assert hypervolume([[2.0], [3.0]], [1.0]) == pytest.approx(2.0)
    assert hypervolume(np.full((1, 7), 2.0), np.zeros(7)) == pytest.approx(128.0)


@pytest.mark.parametrize("empty", [[], np.empty((0, 2))])
def test_hypervolume_of_nothing(empty):
    assert hypervolume(empty, [0, 0]) == 0.0


def test_inputs_are_left_alone():
    points, reference = np.array([[2.0, 1.0]]), np.zeros(2)
    hypervolume(points, reference)
    assert points.tolist() == [[2.0, 1.0]] and reference.tolist() == [0.0, 0.0]


def test_igd_plus_counts_shortfalls_only():
    assert igd_plus([[1, 1]], [[4, 5], [0, 1]]) == pytest.approx(2.5)
    assert igd_plus([[4, 5]], [[4, 5], [0, 1]]) == 0.0
    assert igd_plus([[1.0]], [[4.0]]) == pytest.approx(3.0)


def test_non_dominated_keeps_equal_points():
    assert non_dominated([[1, 1], [0, 1], [2, 0], [1, 1]]).tolist() == [True, False, True, True]
    assert non_dominated([[1.0], [2.0]]).tolist() == [False, True]
    assert non_dominated(np.empty((0, 3))).tolist() == []


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hypervolume([[1, 2]], [0, 0, 0]), r"`reference` must hold one number per objective \(2\), got 3"),
        (lambda: hypervolume([1, 2], [0, 0]), r"`points` must have shape \[N, M\], got \(2,\)"),
        (lambda: hypervolume([[1, np.nan]], [0, 0]), r"`points` must be finite, got nan at index \(0, 1\)"),
        (lambda: hypervolume([[1, 2]], [0, np.nan]), "`reference` must be a vector of M finite numbers"),
        (lambda: hypervolume([[1, 2]], 0), "`reference` must be a vector"),
        (lambda: igd_plus([[1, 2, 3]], [[1, 2]]), r"`points` must have shape \[N, 2\], got \(1, 3\)"),
        (lambda: igd_plus(np.empty((0, 2)), [[1, 2]]), "`points` must hold at least one point"),
        (lambda: igd_plus([[1, 2]], np.empty((0, 2))), "`front` must hold at least one point"),
        (lambda: non_dominated([[1, np.inf]]), "`points` must be finite, got inf"),
        (lambda: non_dominated(np.empty((2, 0))), r"`points` must have shape \[N, M\], got \(2, 0\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_with_many_objectives_and_points_the_volume_is_close_to_exact():
    """Dominated points add nothing, yet there are so many that the volume is approximated."""
    rng = np.random.default_rng(0)
    few = rng.random((100, 5))
    many = np.concatenate([few, few * 0.9, few * 0.8])
    exact = hypervolume(few, np.zeros(5))
    assert hypervolume(many, np.zeros(5)) == pytest.approx(exact, rel=2e-3)
    assert hypervolume(many - 2, np.zeros(5)) == 0.0


def test_the_support_of_an_id_is_refused():
    with pytest.raises(ValueError, match=r"`model` must be a FiniteMOMDP .*, got 'fishwood-v0'"):
        support_of("fishwood-v0", Discounted(0.9))
