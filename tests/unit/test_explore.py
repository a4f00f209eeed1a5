"""Preferences, which points make an archive, and what an exploration counts: all with answers known by hand."""

import math

import numpy as np
import pytest

from moac.search.archive import Archive
from moac.search.explore import measures, preferences, selection
from moac.search.explore.exact import Exact
from moac.weighting import SMALLEST


def archive(points, half=0.0, kind="exact", p=None):
    points = np.asarray(points, dtype=float)
    half = np.broadcast_to(half, points.shape)
    p = np.full(points.shape, np.nan) if p is None else np.asarray(p, dtype=float)
    return Archive(points, points - half, points + half, p, p, ("r",) * len(points), np.arange(len(points)), kind)


def test_random_preferences_begin_with_the_corners_and_the_centre():
    p = preferences.random(40, 3, seed=1)
    assert p.shape == (40, 3) and np.allclose(p.sum(axis=1), 1) and p.min() >= SMALLEST / (1 + 3 * SMALLEST)
    assert np.argmax(p[:3], axis=1).tolist() == [0, 1, 2] and p[:3].max(axis=1) == pytest.approx(1, abs=3e-3)
    assert p[3] == pytest.approx(np.full(3, 1 / 3))
    assert (preferences.random(40, 3, seed=1) == p).all() and (preferences.random(10, 3, seed=1) == p[:10]).all()
    assert (preferences.random(40, 3, seed=2)[4:] != p[4:]).any()


@pytest.mark.parametrize("count, M, k", [(100, 2, 99), (100, 3, 12), (3, 3, 1), (7, 1, 1)])
def test_a_grid_has_all_multiples_of_1_over_the_largest_k(count, M, k):
    p = preferences.grid(count, M)
    assert len(p) == math.comb(k + M - 1, M - 1) <= count
    assert len(np.unique(p.round(9), axis=0)) == len(p)
    assert np.abs(p * k - np.rint(p * k)).max() <= k * M * SMALLEST


def test_given_preferences_from_text_and_from_a_file(tmp_path):
    (tmp_path / "p.txt").write_text("0.2,0.8\n\n0.5,0.5\n")
    assert preferences.given("0.2,0.8; 0.5,0.5", 2) == pytest.approx(np.array([[0.2, 0.8], [0.5, 0.5]]))
    assert (preferences.given(str(tmp_path / "p.txt"), 2) == preferences.given("0.2,0.8;0.5,0.5", 2)).all()


@pytest.mark.parametrize("text", ["0.2,0.9", "1", "0.2,0.3,0.5", "-0.5,1.5", "nan,1", "missing.txt", "", " ; "])
def test_what_is_no_preference_is_refused(text):
    with pytest.raises(ValueError, match="`given`"):
        preferences.given(text, 2)


def test_a_grid_needs_one_point_per_objective():
    with pytest.raises(ValueError, match="`preferences` must be at least 3"):
        preferences.grid(2, 3)


def test_exact_points_are_kept_where_none_dominates_and_each_place_once():
    found = archive([[0, 1], [1, 0], [0.4, 0.4], [-1, 1], [1e-5, 1 - 1e-5], [0.4, 0.3], [np.nan, 2]])
    assert selection.select(found).tolist() == [1, 2, 0]


def test_a_gain_that_is_next_to_nothing_keeps_no_point():
    found = archive([[0, 1], [1, 0], [0.0005, 0.9], [0.9, 0.0005], [0.01, 0.9]])
    assert selection.select(found).tolist() == [1, 4, 0]


def test_estimated_points_are_dropped_only_where_intervals_say_so():
    points = [[0.0, 0.0], [1.0, 1.0], [0.95, 0.9], [0.0, 3.0]]
    assert sorted(selection.select(archive(points, 0.3, "episodes"))) == [1, 3]  # 0 is surely worse, 2 is like 1
    assert sorted(selection.select(archive(points, 0.6, "episodes"))) == [1, 3]  # 0 cannot be told from 2, nor 2 from 1
    assert sorted(selection.select(archive(points, 0.01, "episodes"))) == [1, 3]  # 2 is surely worse
    wide = archive([[1.0, 1.0], [1.1, 1.1]], [[0.05, 0.05], [1.0, 1.0]], "episodes")
    assert selection.select(wide).tolist() == [0]  # the one that the data support best


def test_an_equal_objective_does_not_hide_dominance():
    low = np.array([[0.0, 1.0], [0.0, 3.0]])
    assert selection.surely_dominated(low, low + np.array([0.0, 0.5])).tolist() == [True, False]


def test_no_finite_value_is_a_clear_error():
    with pytest.raises(ValueError, match="nothing to archive"):
        selection.select(archive([[np.nan, 1.0]]))


FRONT = np.array([[0.0, 1.0], [0.7, 0.7], [1.0, 0.0]])


def yardstick(points):
    return measures.Yardstick.of(archive(points), Exact(FRONT, FRONT, None))


def test_the_reference_lies_below_the_front_and_volumes_add_up():
    own = yardstick(FRONT)
    assert own.reference.tolist() == pytest.approx([-0.1, -0.1])
    assert own.volume(FRONT) == pytest.approx(0.1 * 1.1 + 0.7 * 0.8 + 0.3 * 0.1)
    assert own.distance(FRONT) == 0
    assert measures.Yardstick.of(archive(FRONT), None, [-1, -1]).volume([[0, 0]]) == pytest.approx(1)


def test_what_was_found_over_steps_never_gets_worse():
    returns = np.array([[[0.0, 0.0], [0.7, 0.7]], [[1.0, 0.0], [0.0, 0.0]]])
    curve = measures.over_steps(returns, yardstick(FRONT))
    assert curve["hypervolume"].tolist() == pytest.approx([1.1 * 0.1, 0.8 * 0.8 + 0.3 * 0.1])
    assert curve["igd_plus"][1] == pytest.approx(0.3 / 3) and curve["igd_plus"][0] > curve["igd_plus"][1]


def test_traps_earn_nothing_in_every_objective():
    points = np.array([[0.0, 0.0], [0.005, -0.3], [0.0, 1.0], [0.3, 0.0]])
    assert measures.trapped(points, yardstick(FRONT)).tolist() == [True, True, False, False]


def test_preferences_are_served_by_the_own_policy_or_by_the_archive():
    p = [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9], [0.1, 0.9]]
    found = archive([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]], p=p)
    served = measures.served(found, found, yardstick(found.points))
    assert served["own"] == served["archive"] == 2 / 3  # nobody has (0.7, 0.7); one of two own policies is enough
    assert np.isnan(measures.served(archive(FRONT), archive(FRONT), yardstick(FRONT))["own"])


def test_an_archive_knows_its_best_and_asks_for_its_policies():
    own = archive(FRONT)
    assert [own.best_for(p) for p in ([1, 0], [0.5, 0.5], [0, 1])] == [2, 1, 0]
    with pytest.raises(ValueError, match="values alone"):
        own.policy(0)
    with pytest.raises(ValueError, match="one number per objective"):
        own.best_for([1.0])
