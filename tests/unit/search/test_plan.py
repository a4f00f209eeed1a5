"""Preference vectors: drawn, on a grid, and given."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

from moac import Config
from moac.momdp import FiniteMOMDP
from moac.search import plan as preferences
from moac.weighting import SMALLEST


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


@pytest.mark.parametrize("M", [1, 2])
def test_one_objective_is_nothing_to_explore(M):
    model = FiniteMOMDP.from_dense(np.full((2, 2, 2), 0.5), np.ones((2, 2, M)))
    told = r"^`problem` must have at least two objectives to explore, got 1"
    with pytest.raises(ValueError, match=told) if M == 1 else nullcontext():
        preferences.Plan.of(preferences.Options(Config()), model)


@pytest.mark.parametrize("draw", ["random", "grid"])
def test_the_number_of_preferences_is_counted(draw):
    model = FiniteMOMDP.from_dense(np.full((2, 2, 2), 0.5), np.ones((2, 2, 2)))
    planned = [
        preferences.Plan.of(preferences.Options(Config(), count, draw), model).preferences for count in (5, np.int64(5))
    ]
    assert len(planned[0]) == 5 and (planned[0] == planned[1]).all()
    for count in (0, -3):
        with pytest.raises(ValueError, match=rf"^`preferences` must be a whole number of at least 1, got {count}"):
            preferences.Plan.of(preferences.Options(Config(), count, draw), model)


def test_given_preferences_from_text_and_from_a_file(tmp_path):
    (tmp_path / "p.txt").write_text("0.2,0.8\n\n0.5,0.5\n")
    assert preferences.given("0.2,0.8; 0.5,0.5", 2) == pytest.approx(np.array([[0.2, 0.8], [0.5, 0.5]]))
    assert (preferences.given(str(tmp_path / "p.txt"), 2) == preferences.given("0.2,0.8;0.5,0.5", 2)).all()


@pytest.mark.parametrize("text", ["0.2,0.9", "1", "0.2,0.3,0.5", "-0.5,1.5", "nan,1", "missing.txt", "", " ; "])
def test_what_is_no_preference_is_refused(text):
    with pytest.raises(ValueError, match="`preferences`"):
        preferences.given(text, 2)


def test_a_grid_needs_one_point_per_objective():
    with pytest.raises(ValueError, match="`preferences` must be at least 3"):
        preferences.grid(2, 3)
