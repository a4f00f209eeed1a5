"""Each decision of an estimate's verdict, with a case on each side of it; diagnostics by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from moac.offline import ncis
from moac.offline.ncis import sums, trust
from moac.offline.ncis.estimates import Drawn, Estimate, Flip
from moac.offline.ncis.trust import Agreement, Diagnostics

SOUND = Diagnostics(
    rows=10_000,
    users=1000,
    row_effective_size=9000.0,
    row_effective_share=0.9,
    user_effective_size=900.0,
    user_effective_share=0.9,
    largest_row_share=0.001,
    largest_user_share=0.01,
    capped_share=0.01,
    retained_mass=0.99,
    mean_weight=1.0,
    mean_weight_interval=np.array([0.9, 1.1]),
    events=np.full(2, 500.0),
    weighted_positives=np.full(2, 500.0),
    effective_positives=np.full(2, 400.0),
    row_standard_error=np.zeros(2),
)
VALUE = Estimate(np.array([0.5, 0.5]), np.array([[0.4, 0.6], [0.4, 0.6]]))


def level_with(*changes, opinions=None, **evidence):
    """The verdict on sound evidence but for these changes, one seed's diagnostics each."""
    seeds = tuple(replace(SOUND, **change) for change in changes) or (SOUND,)
    found = trust.verdict(("Click", "Like"), seeds, VALUE, opinions or {"SNIPS": VALUE}, **evidence)
    assert (found.level == "trusted") == (not found.reasons)
    return found.level


def test_sound_evidence_is_trusted():
    assert level_with() == "trusted"


@pytest.mark.parametrize("limit", trust.LIMITS, ids=lambda limit: limit.measure)
def test_a_limit_is_passed_where_it_is_reached(limit):
    better = 1 + 1e-6 if limit.stop < limit.care else 1 - 1e-6
    for number, level in (
        (limit.care * better, "trusted"),
        (limit.care, "with care"),
        (limit.stop * better, "with care"),
        (limit.stop, "not trusted"),
    ):
        assert level_with({limit.measure: number}) == level
        assert level_with({}, {limit.measure: number}, {}) == level  # the worst seed counts


@pytest.mark.parametrize(
    ("mean", "interval", "level"),
    [
        (1.1, (1.01, 1.2), "with care"),
        (0.9, (0.8, 0.99), "with care"),
        (1.3, (1.2, 1.4), "not trusted"),
        (0.7, (0.6, 0.8), "not trusted"),
        (1.3, (0.9, 1.7), "trusted"),  # by chance
        (1.3, (1.0, 1.6), "trusted"),  # 1 is its end
        (1.04, (1.01, 1.07), "trusted"),  # too little to matter
    ],
)
def test_a_mean_weight_is_off_where_its_interval_leaves_one_out(mean, interval, level):
    own = {"mean_weight": mean, "mean_weight_interval": np.array(interval)}
    assert level_with(own) == level_with({}, own, {}) == level  # the worst seed counts


def test_the_worst_of_several_mean_weights_counts():
    seeds = [(1.1, (1.05, 1.15)), (0.7, (0.6, 0.8)), (0.9, (0.85, 0.95))]
    off = [{"mean_weight": mean, "mean_weight_interval": np.array(interval)} for mean, interval in seeds]
    assert level_with(*off) == "not trusted"
    assert level_with(off[0], off[2]) == "with care"


def test_positives_are_the_fewer_of_both_counts_and_fifty_are_enough():
    fifty = np.array([50.0, 500.0])
    assert level_with({"weighted_positives": fifty, "effective_positives": fifty}) == "trusted"
    for name in ("weighted_positives", "effective_positives"):
        assert level_with({name: np.array([49.9, 500.0])}) == "with care"
        assert level_with({name: np.array([49.9, 49.9])}) == "not trusted"


@pytest.mark.parametrize(
    ("other", "level"), [(0.41, "trusted"), (0.59, "trusted"), (0.39, "with care"), (0.61, "with care")]
)
def test_a_second_opinion_disagrees_outside_the_interval(other, level):
    opinion = Estimate(np.array([0.5, other]), VALUE.interval)
    assert level_with(opinions={"doubly robust": opinion}) == level


@pytest.mark.parametrize(("separated", "level"), [(True, "with care"), (False, "trusted")])
def test_a_flip_counts_where_some_cap_tells_the_two_apart(separated, level):
    assert level_with(flips=(Flip("Click", "a", "b", 1.0, 2.0, separated),)) == level


@pytest.mark.parametrize(
    ("checked", "agrees", "level"),
    [
        ([True, True], [True, True], "trusted"),
        ([True, False], [True, True], "trusted"),
        ([False, False], [True, True], "with care"),
        ([True, True], [True, False], "not trusted"),
    ],
)
def test_random_exposure_is_checked_where_it_can_be(checked, agrees, level):
    numbers = np.zeros(2)
    found = Agreement(VALUE, SOUND, numbers, VALUE.interval, numbers, np.array(checked), np.array(agrees))
    assert level_with(agreement=found) == level


def beside_random(below, level=0.95, at=1, fires=200):
    """Agreement of M signals, in `below` of whose 999 draws the log's value is under that of random exposure, 1."""
    user, count = np.arange(200), len(below)
    reward = np.where((user < fires)[:, None], 1.0, 0.0) * np.ones(count)
    log = ncis.Logged.of(user, reward, np.full(200, 0.5))
    options = ncis.Options(level=level, draws=999)
    random = ncis.accumulate(log, {"p": np.full(200, 0.5)}, options=ncis.uncapped(options))
    draws = np.full((999, 2, count), 1.0)
    draws[:, at] += np.where(np.arange(999)[:, None] < np.array(below), -0.1, 0.1)
    own = Drawn(np.ones((1, 2, count)), draws, None, None, np.ones((1, 999)))
    return trust.agreement({"p": own}, 1, random, options)["p"]


@pytest.mark.parametrize(
    ("below", "level", "agrees"),
    [
        ([23], 0.95, [False]),  # p = 0.048
        ([25], 0.95, [True]),  # 0.052
        ([999 - 23], 0.95, [False]),
        ([999 - 25], 0.95, [True]),
        ([48], 0.9, [False]),  # 0.098
        ([50], 0.9, [True]),  # 0.102
        ([10, 500, 500], 0.95, [True, True, True]),  # 0.022 of three signals is 0.066
        ([5, 500, 500], 0.95, [False, True, True]),  # 0.012 is 0.036
    ],
)
def test_random_exposure_contradicts_at_the_level_of_the_intervals(below, level, agrees):
    found = beside_random(below, level)
    assert found.agrees.tolist() == agrees
    assert found.checked.all()


def test_random_exposure_contradicts_the_cap_in_use_and_only_what_it_can_check():
    assert not beside_random([0]).agrees.any()
    assert beside_random([0]).difference_interval[0] == pytest.approx((0.1, 0.1))
    assert beside_random([0], at=0).agrees.all()  # another cap
    few = beside_random([0], fires=49)
    assert not few.checked.any() and few.agrees.all()
    assert beside_random([0], fires=50).checked.all()


def test_diagnostics_of_four_rows_by_hand():
    """Two users; weights 1, 4 | 2, 9 under a cap of 4: the second only reaches it, the last is beyond."""
    reward, users = np.array([[1.0], [0.0], [2.0], [1.0]]), (np.array([7, 8]), np.array([0, 0, 1, 1]))
    one = sums.of_rows(users, reward, np.array([1.0, 4.0, 2.0, 9.0]), (4.0, math.inf), 4.0)
    found = trust.diagnose(one, np.ones(3), 0, 0.95)
    V = (1 + 2 * 2 + 4) / 11
    assert found.capped_share == 1 / 4
    assert found.row_effective_size == pytest.approx(121 / 37)
    assert found.user_effective_size == pytest.approx(121 / 61)
    assert found.user_effective_share == pytest.approx(121 / 61 / 2)
    assert (found.largest_row_share, found.largest_user_share) == pytest.approx((4 / 11, 6 / 11))
    assert (found.retained_mass, found.mean_weight) == pytest.approx((11 / 16, 4.0))
    assert (found.events, found.weighted_positives, found.effective_positives) == pytest.approx((3, 7, 49 / 21))
    squares = (1 - V) ** 2 + 16 * V**2 + 4 * (2 - V) ** 2 + 16 * (1 - V) ** 2
    assert found.row_standard_error == pytest.approx(math.sqrt(squares) / 11)


def test_a_user_of_many_rows_counts_for_more_in_the_log_itself():
    users = (np.array([7, 8]), np.array([0, 0, 0, 1]))
    one = sums.of_rows(users, np.ones((4, 1)), np.ones(4), (math.inf,), math.inf)
    found = trust.diagnose(one, np.ones(3), 0, 0.95)
    assert found.user_effective_size == pytest.approx(16 / 10)
    assert found.user_effective_share == pytest.approx(1.0)
