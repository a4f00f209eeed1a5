"""One rule for all claims, with a case on each side of it, and what a claim in several parts comes to."""

import itertools

import numpy as np
import pytest
from scipy.stats import ttest_ind

from moac.report.page import verdict_of
from moac.statistics import Mean, mean
from moac_studies import compare
from moac_studies.compare import Part

YES, NO, OPEN = "holds", "does not hold", "not decided"
UNKNOWN = Mean(1.0, np.nan, np.nan, 1)


def interval(low, high, trials=10):
    return Mean((low + high) / 2, low, high, trials)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.9, YES), (1.1, 2, NO), (-2, -0.1, NO), (0.5, 1.5, OPEN), (-0.5, 0.5, OPEN), (-1, 2, OPEN), (0, 0, NO)],
)
def test_an_interval_lies_inside_or_outside_or_neither(low, high, verdict):
    assert compare.inside(interval(low, high), 0.0, 1.0).verdict == verdict


@pytest.mark.parametrize(("shift", "over", "under"), [(1, YES, NO), (-1, NO, YES), (0.1, OPEN, OPEN)])
def test_above_and_below_are_opposites(shift, over, under):
    around = interval(2 + shift - 0.5, 2 + shift + 0.5)
    assert compare.above(around, 2.0).verdict == over
    assert compare.below(around, 2.0).verdict == under


def test_nothing_is_above_itself():
    same = compare.paired(np.arange(3.0), np.arange(3.0))
    assert compare.above(same).verdict == compare.below(same).verdict == NO
    assert compare.near(same, 0.0, 0.1).verdict == YES


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-1.09, -0.91, YES), (-1.2, -0.95, OPEN), (-1.05, -0.8, OPEN), (-0.8, -0.7, NO)]
)
def test_a_slope_must_lie_within_the_tolerance_with_its_whole_interval(low, high, verdict):
    assert compare.near(interval(low, high), -1.0, 0.1).verdict == verdict


@pytest.mark.parametrize(("low", "high", "verdict"), [(-0.04, 0.04, YES), (0.02, 0.06, OPEN), (-0.3, -0.2, NO)])
def test_steady_is_a_band_around_nothing(low, high, verdict):
    assert compare.near(interval(low, high), 0.0, 0.05).verdict == verdict


def test_seeds_that_pair_tell_apart_what_overlapping_intervals_do_not():
    seeds = np.random.default_rng(0).normal(0, 10, 20)
    a, b = seeds + 1 + 0.01 * np.arange(20), seeds
    assert mean(a).low < mean(b).high
    assert compare.above(compare.paired(a, b)).verdict == YES
    assert compare.above(compare.paired(b, a)).verdict == NO
    assert compare.above(compare.apart(a, b)).verdict == OPEN


def test_samples_that_share_nothing_have_the_interval_of_welch():
    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 1, 9), rng.normal(0, 4, 30)
    expected = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    found = compare.apart(a, b)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.value == pytest.approx(a.mean() - b.mean())
    assert found.trials == 9


def test_samples_without_spread_differ_by_what_they_differ():
    assert compare.apart([1.0, 1.0], [0.0, 0.0, 0.0]) == Mean(1.0, 1.0, 1.0, 2)
    assert np.isnan(compare.apart([1.0], [0.0, 0.5]).low)


@pytest.mark.parametrize(
    ("last", "times", "verdict"), [(1, 1, YES), (1, 10, NO), (0.1, 10, YES), (3, 1, NO), (2, 1, OPEN), (0.2, 10, OPEN)]
)
def test_what_falls_ends_below_its_beginning_trial_by_trial(last, times, verdict):
    noise = np.tile([-0.1, 0.1], 20)
    assert compare.falls(np.full(40, 2.0), last + noise / times, times).verdict == verdict


def test_one_dominates_where_it_is_above_in_every_objective():
    base = np.random.default_rng(2).normal(size=(20, 3))
    shift = np.array([1.0, -1.0, 0.0]) + 0.1 * np.tile([[1.0], [-1.0]], (10, 1))
    assert [part.verdict for part in compare.dominates(base + shift, base)] == [YES, NO, OPEN]


@pytest.mark.parametrize("decide", [compare.above, compare.below, lambda x: compare.near(x, 0.0, 9.0)])
def test_without_an_interval_nothing_is_decided(decide):
    part = decide(UNKNOWN)
    assert part.verdict == OPEN
    assert "too few trials" in compare.would_take(part.needed)


def test_what_was_counted_is_true_or_false():
    assert compare.known(np.bool_(True)) == Part(YES)
    assert compare.known(np.bool_(False)) == Part(NO)


@pytest.mark.parametrize(("verdict", "opposite"), [(YES, NO), (NO, YES), (OPEN, OPEN)])
def test_the_opposite_claim_has_the_opposite_verdict(verdict, opposite):
    assert Part(verdict, 7.0).negated == Part(opposite, 7.0)


@pytest.mark.parametrize(
    ("low", "high", "needed"),
    [
        (-1.0, 3.0, 10 * (2 / 1) ** 2),  # 1 above the lower bound, with a half of 2
        (-3.0, 1.0, 10 * (2 / 1) ** 2),  # 1 below it
        (2.0, 12.0, 10 * (5 / 1) ** 2),  # 1 below the upper bound, 8 being that
        (-2.0, 8.0 + 2.0 / 3, 10 * ((16 / 3) / (10 / 3)) ** 2),  # both bounds: the nearer decides
    ],
)
def test_intervals_shrink_with_the_root_of_the_trials(low, high, needed):
    assert compare.inside(interval(low, high), 0.0, 8.0).needed == pytest.approx(needed)


@pytest.mark.parametrize(("value", "bound", "needed"), [(1.0, 0.0, 10 * 1.5**2), (4.0, 5.0, 10 * 2.0**2)])
def test_the_half_that_counts_is_the_one_on_the_side_of_the_bound(value, bound, needed):
    """Bootstrap intervals need not be symmetric."""
    assert compare.above(Mean(value, -0.5, 6.0, 10), bound).needed == pytest.approx(needed)


def test_as_many_trials_as_are_said_to_be_needed_do_decide():
    part = compare.above(interval(-0.5, 1.5, trials=50))
    half = 1.0 * np.sqrt(50 / np.ceil(part.needed + 1))
    assert compare.above(Mean(0.5, 0.5 - half, 0.5 + half, 500)).verdict == YES
    assert "200 trials" in compare.claim("c", "m.", [part]).measured


def test_an_estimate_on_the_bound_is_never_decided():
    part = compare.above(interval(-1.0, 1.0))
    assert "no number of trials" in compare.claim("c", "m.", [part, Part(OPEN, 30.0)]).measured


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([YES, YES], YES),
        ([NO, NO], NO),
        ([YES, NO], "holds in part"),
        ([OPEN, OPEN], OPEN),
        ([YES, OPEN], OPEN),
        ([NO, OPEN], NO),
        ([YES, NO, OPEN], "holds in part"),
        ([], "not measured"),
    ],
)
def test_parts_come_to_one_verdict(parts, verdict):
    for order in itertools.permutations(parts):
        assert verdict_of(order) == verdict
    claim = compare.claim("c", "m.", [Part(part, 3.0) for part in parts], "e")
    assert (claim.verdict, claim.evidence) == (verdict, "e")
    assert ("about 3 trials" in claim.measured) == (verdict == OPEN)


def test_what_is_known_counts_as_a_verdict():
    assert [verdict_of(x) for x in ([True], [False], [True, False], [True, OPEN])] == [YES, NO, "holds in part", OPEN]


@pytest.mark.parametrize(
    ("parts", "verdict"), [([YES, YES], YES), ([YES, NO, OPEN], NO), ([YES, OPEN], OPEN), ([NO], NO)]
)
def test_parts_that_mean_nothing_alone_stand_or_fall_together(parts, verdict):
    together = compare.all_of(Part(part, float(k)) for k, part in enumerate(parts))
    assert together.verdict == verdict
    assert together.needed == (1.0 if verdict == OPEN else 0.0)


def test_an_estimate_can_be_mapped_by_a_falling_function():
    found = Mean(2.0, 1.0, 4.0, 7).mapped(lambda x: 1 / x)
    assert found == Mean(0.5, 0.25, 1.0, 7)
