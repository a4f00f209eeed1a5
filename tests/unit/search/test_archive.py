"""Which points make an archive, with answers known by hand."""

import numpy as np
import pytest

from moac.search.archive import joined, select, surely_dominated
from tests.helpers.archives import archive


def test_exact_points_are_kept_where_none_dominates_and_each_place_once():
    found = archive([[0, 1], [1, 0], [0.4, 0.4], [-1, 1], [1e-5, 1 - 1e-5], [0.4, 0.3], [np.nan, 2]])
    assert select(found).tolist() == [1, 2, 0]


def test_a_gain_that_is_next_to_nothing_keeps_no_point():
    found = archive([[0, 1], [1, 0], [0.0005, 0.9], [0.9, 0.0005], [0.01, 0.9]])
    assert select(found).tolist() == [1, 4, 0]


def test_estimated_points_are_dropped_only_where_intervals_say_so():
    points = [[0.0, 0.0], [1.0, 1.0], [0.95, 0.9], [0.0, 3.0]]
    assert sorted(select(archive(points, 0.3, "episodes"))) == [1, 3]  # 0 is surely worse, 2 is like 1
    assert sorted(select(archive(points, 0.6, "episodes"))) == [1, 3]  # 0 cannot be told from 2, nor 2 from 1
    assert sorted(select(archive(points, 0.01, "episodes"))) == [1, 3]  # 2 is surely worse
    wide = archive([[1.0, 1.0], [1.1, 1.1]], [[0.05, 0.05], [1.0, 1.0]], "episodes")
    assert select(wide).tolist() == [0]  # the one that the data support best


def test_an_equal_objective_does_not_hide_dominance():
    low = np.array([[0.0, 1.0], [0.0, 3.0]])
    assert surely_dominated(low, low + np.array([0.0, 0.5])).tolist() == [True, False]


def test_no_finite_value_is_a_clear_error():
    with pytest.raises(ValueError, match="nothing to archive"):
        select(archive([[np.nan, 1.0]]))


def test_an_archive_knows_its_best_and_asks_for_its_policies():
    own = archive([[0.0, 1.0], [0.7, 0.7], [1.0, 0.0]])
    assert [own.best_for(p) for p in ([1, 0], [0.5, 0.5], [0, 1])] == [2, 1, 0]
    assert own.hypervolume([0, 0]) == pytest.approx(0.49)
    assert joined([own, own.picked([2])]).trials.tolist() == [0, 1, 2, 2]
    with pytest.raises(ValueError, match="holds only values"):
        own.policy(0)
    with pytest.raises(ValueError, match="one number per objective"):
        own.best_for([1.0])
