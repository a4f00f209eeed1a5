"""Estimates over draws of users: paired changes, the cap sweep, and orders that flip with the cap."""

import math
from dataclasses import replace

import numpy as np
import pytest

from moac.offline import ncis
from moac.offline.ncis import estimates, sums
from moac.offline.ncis.estimates import Drawn

DRAWS = 999
"""So that k draws on the wrong side of 0 have the p-value (k + 1)/500."""


def one_sided(values, wrong):
    """Estimates [C, M] of one seed; of each one's draws the first `wrong` [C, M] are on the other side of 0."""
    table = np.array(values, float)
    sign = np.where(np.arange(DRAWS)[:, None, None] < np.array(wrong), -1.0, 1.0)
    return Drawn(table[None], sign * table, None, None, np.ones((1, DRAWS)))


NOTHING = one_sided([[0.0, 0.0], [0.0, 0.0]], [[0, 0], [0, 0]])


def test_a_change_is_significant_after_holms_correction():
    """With two signals the smaller p counts twice: 0.026 is too large then, 0.024 is not."""
    for wrong, significant in ((12, False), (11, True)):
        policy = one_sided([[0.1, 0.1], [0.1, 0.1]], [[wrong, 400]] * 2)
        found = estimates.change(policy, NOTHING, 0, 0.95)
        assert found.p[0] == pytest.approx((wrong + 1) / 500)
        assert found.significant.tolist() == [significant, False]


def test_rounding_is_no_change():
    """Of a signal that is always the same: two ways to sum it differ in the last digit, with one sign in all draws."""
    base, policy = (one_sided([[value, value]], [[0, 0]]) for value in (0.1, np.nextafter(0.1, 1)))
    found = estimates.change(policy, base, 0, 0.95)
    assert found.p.tolist() == [1, 1] and not found.significant.any()
    assert found.difference_interval.tolist() == [[0, 0]] * 2


@pytest.mark.parametrize("few", [None, "policy", "base"])
def test_a_change_is_significant_where_both_are_estimable(few):
    policies = {"policy": one_sided([[0.1, 0.1]] * 2, [[0, 0]] * 2), "base": NOTHING}
    estimable = {name: np.array([name != few, True]) for name in policies}
    found = ncis._changes(policies, estimable, "base", 0, 0.95)
    assert found["policy"].significant.tolist() == [few is None, True]


def test_a_relative_change_under_each_cap_has_the_interval_of_its_level():
    """Draws from −0.5 to 0.5 around a baseline of 2, which does not vary: 90 % of them are within ±0.45."""
    spread, base = np.linspace(-0.5, 0.5, DRAWS)[:, None, None], one_sided([[2.0], [2.0]], [[0], [0]])
    policy = Drawn(np.array([[[2.0], [3.0]]]), spread + np.array([[2.0], [3.0]]), None, None, np.ones((1, DRAWS)))
    found = estimates.sweep({"policy": policy, "base": base}, (1.0, math.inf), ("Click",), 0.9, "base")
    np.testing.assert_allclose(found.relative["policy"][:, 0], [0.0, 0.5])
    np.testing.assert_allclose(found.relative_interval["policy"][:, 0], [[-0.225, 0.225], [0.275, 0.725]])
    assert list(found.relative) == ["policy"]


def drawn(values, spreads):
    """A policy of one signal whose values under the caps vary by so much with the users, evenly on either side."""
    steps = np.linspace(-1, 1, 999)
    values, spreads = np.array(values)[:, None], np.array(spreads)[:, None]
    draws = values + steps[:, None, None] * spreads
    return Drawn(values[None], draws, None, None, np.ones((1, 999)))


STILL = drawn([0.0, 0.0, 0.0], [0, 0, 0])
CAPS3 = (1.0, 5.0, math.inf)


@pytest.mark.parametrize(
    ("values", "spreads", "flip"),
    [
        ([0.1, 0.2, -0.3], [0.01, 0.01, 0.01], (5.0, math.inf, True)),
        ([-0.3, 0.1, 0.2], [0.01, 0.01, 0.01], (math.inf, 1.0, True)),
        ([0.2, 0.1, -0.1], [0.01, 9.0, 9.0], (1.0, math.inf, True)),  # only above 0 is told apart
        ([0.2, 0.1, -0.1], [9.0, 9.0, 0.01], (1.0, math.inf, True)),  # only below 0
        ([0.2, 0.1, -0.1], [9.0, 9.0, 9.0], (1.0, math.inf, False)),
        ([0.1, 0.2, 0.3], [0.01, 0.01, 0.01], None),
        ([-0.1, -0.2, -0.3], [0.01, 0.01, 0.01], None),
        ([0.0, 0.2, 0.3], [0.01, 0.01, 0.01], None),  # tied is not the other way round
        ([0.0, -0.2, -0.3], [0.01, 0.01, 0.01], None),
    ],
)
def test_an_order_flips_where_both_signs_are_there(values, spreads, flip):
    found = estimates.sweep({"one": drawn(values, spreads), "other": STILL}, CAPS3, ("Click",), 0.95).flips
    assert [(own.cap, own.other_cap, own.separated) for own in found] == ([] if flip is None else [flip])
    assert all((own.signal, own.better, own.worse) == ("Click", "one", "other") for own in found)


def test_whether_a_cap_tells_policies_apart_depends_on_the_level():
    """The interval of ±0.1 of the level 0.95 reaches 0.095, that of 0.8 reaches 0.08."""
    for level, separated in ((0.95, False), (0.8, True)):
        (flip,) = estimates.sweep({"one": drawn([0.09, -0.09, 0.0], [0.1] * 3), "x": STILL}, CAPS3, ("a",), level).flips
        assert flip.separated == separated


@pytest.mark.parametrize(("largest", "distinct"), [(0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2), (3.0, 3), (7.0, 4)])
def test_caps_above_the_largest_weight_are_alike(largest, distinct):
    """Of caps 1, 2, 5 and infinity: as many as differ, and the last of them stands for the rest in every draw."""
    caps = (1.0, 2.0, 5.0, math.inf)
    reward, weight = np.array([[1.0], [0.0], [1.0], [0.0]]), np.array([0.1, 0.2, 0.3, largest])
    one = sums.of_rows((np.arange(4), np.arange(4)), reward, weight, caps, 5.0)
    assert one.distinct == distinct
    found = estimates.draw(sums.Shard(("Click",), caps, 5.0, {"policy": (one,)}), sums.Options(cap=5.0, caps=caps))[
        "policy"
    ]
    plain = replace(one, weight=one.weight[:, -1:], reward=one.reward[:, -1:])
    alone = estimates.draw(sums.Shard(("Click",), caps[-1:], math.inf, {"policy": (plain,)}), sums.Options())["policy"]
    np.testing.assert_allclose(found.draws[:, -1], alone.draws[:, 0], rtol=1e-12)


def test_the_error_of_b_is_drawn_around_none():
    """Users who all move a value alike move it alike in every draw; others by √(n Var) in the spread of draws."""
    options = ncis.Options(draws=4000)
    moved = np.random.default_rng(0).standard_normal((50, 1)) + 3
    found = estimates.model_noise({"alike": np.full((50, 2), 0.1), "p": moved}, options)
    np.testing.assert_allclose(found["alike"], 0, atol=1e-12)
    assert found["alike"].shape == (4000, 2) and estimates.model_noise({}, options) == {}
    assert found["p"].mean() == pytest.approx(0, abs=4 * np.sqrt(50 / 4000))
    assert found["p"].std() == pytest.approx(np.sqrt(50) * moved.std(), rel=0.05)
