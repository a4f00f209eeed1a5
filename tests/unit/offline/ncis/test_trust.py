"""Each decision of an estimate's verdict, with a case on each side of it; diagnostics by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from moac.offline.ncis import limits, sums, trust
from moac.offline.ncis.checks import Balance, Checks, Controlled, Tails
from moac.offline.ncis.estimates import Estimate
from moac.offline.ncis.sensitivity import Sensitivity
from moac.offline.ncis.trust import Diagnostics

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


SIGNALS = ("Click", "Like")


def controlled(change=0.0, half=0.01, p=0.5, **about):
    """Earlier rewards, of which Click changed."""
    changes = np.array([change, 0.0])
    interval = np.stack([changes - half, changes + half], axis=1)
    about = {"columns": SIGNALS, "users": 900, "no_power": None, "soft": False, "relative": True} | about
    return Controlled("earlier rewards", change=changes, interval=interval, p=np.array([p, 1.0]), **about)


def checks_with(*controls, balance=None, pareto_k=(0.1, 0.1)):
    tails = Tails(np.array(pareto_k), *[np.zeros(2)] * 4, np.zeros((2, 2)))
    one = Sensitivity(np.ones(2), np.ones(2))
    return Checks(controls or (controlled(),), balance, one, tails, np.full(2, 0.02), 10_000, 1000)


def verdict_with(*changes, opinions=None, checks="sound"):
    """The verdict on sound evidence but for these changes, one seed's diagnostics each."""
    seeds = tuple(replace(SOUND, **change) for change in changes) or (SOUND,)
    checks = checks_with() if checks == "sound" else checks
    found = trust.verdict(SIGNALS, seeds, VALUE, opinions or {"SNIPS": VALUE}, checks)
    assert (found.level == "trusted") == (not found.reasons)
    return found


def level_with(*changes, **evidence):
    return verdict_with(*changes, **evidence).level


def test_sound_evidence_is_trusted():
    assert level_with() == "trusted"


@pytest.mark.parametrize("limit", limits.WEIGHT_LIMITS, ids=lambda limit: limit.measure)
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
        (reason,) = verdict_with({name: np.array([49.0, 500.0])}, {name: np.array([30.0, 500.0])}).reasons
        assert (reason.number, reason.signal) == (30.0, "Click") and "30.0" in reason.text  # of the worst seed


def test_a_second_opinion_does_not_disagree_by_rounding():
    """On a signal that is always the same the interval has no width."""
    value = Estimate(np.full(2, 0.1), np.full((2, 2), 0.1))
    for off, reasons in ((1e-8, 0), (1e-5, 2)):
        other = Estimate(value.value * (1 + off), value.interval)
        assert len(trust.verdict(SIGNALS, (SOUND,), value, {"doubly robust": other}, checks_with()).reasons) == reasons


@pytest.mark.parametrize(
    ("other", "level"), [(0.41, "trusted"), (0.59, "trusted"), (0.39, "with care"), (0.61, "with care")]
)
def test_a_second_opinion_disagrees_outside_the_interval(other, level):
    opinion = Estimate(np.array([0.5, other]), VALUE.interval)
    assert level_with(opinions={"doubly robust": opinion}) == level


@pytest.mark.parametrize(
    ("change", "p", "level"),
    [
        (0.0101, 0.049, "not trusted"),  # half of 0.02, the half-width of Click's own interval
        (-0.0101, 0.049, "not trusted"),
        (0.0099, 0.049, "with care"),
        (0.0101, 0.05, "trusted"),  # by chance
    ],
)
def test_a_control_may_not_change(change, p, level):
    assert level_with(checks=checks_with(controlled(change, p=p))) == level
    soft = level_with(checks=checks_with(controlled(), controlled(change, p=p, soft=True)))
    assert soft == ("trusted" if level == "trusted" else "with care")  # later rows ask for care at most


def test_a_control_that_is_no_reward_is_held_to_the_limits_of_balance():
    for change, level in ((0.09, "trusted"), (0.1, "with care"), (0.24, "with care"), (0.25, "not trusted")):
        named = controlled(change, p=0.01, relative=False, columns=("age", "day"))
        assert level_with(checks=checks_with(controlled(), named)) == level


@pytest.mark.parametrize(
    ("control", "level"),
    [
        (controlled(), "trusted"),
        (controlled(no_power="it is an input"), "with care"),
        (controlled(0.1, p=0.001, no_power="it is an input"), "with care"),  # what it shows does not count
        (controlled(half=0.0599), "trusted"),
        (controlled(half=0.0601), "with care"),  # three times 0.02
        (controlled(soft=True), "with care"),  # later rows alone refute nothing
    ],
)
def test_without_a_control_that_has_power_nothing_is_simply_trusted(control, level):
    found = verdict_with(checks=checks_with(control))
    assert found.level == level
    assert {reason.measure for reason in found.reasons} <= {"control"}
    assert verdict_with(checks=None).level == "with care"
    later = replace(controlled(soft=True, no_power="too few"), name="later rewards")
    (why,) = verdict_with(checks=checks_with(controlled(no_power="it is an input"), later)).reasons
    assert why.text.startswith("no control has power (earlier rewards: it is an input): ")  # later ones could not


def test_the_policy_that_made_the_log_needs_no_control():
    assert level_with({"row_effective_share": 1.0}, checks=None) == "trusted"
    assert level_with({"row_effective_share": 1.0, "mean_weight": 1.001}, checks=None) == "with care"


@pytest.mark.parametrize(
    ("difference", "half", "level"),
    [
        (0.1, 0.09, "with care"),
        (-0.1, 0.09, "with care"),
        (0.0999, 0.09, "trusted"),
        (0.25, 0.2, "not trusted"),
        (0.2499, 0.2, "with care"),
        (0.3, 0.31, "trusted"),  # by chance
    ],
)
def test_covariates_must_be_balanced(difference, half, level):
    interval = np.array([[difference - half, difference + half], [-1.0, 1.0]])
    found = Balance(("tab=1", "hour=3"), np.array([difference, 0.5]), interval, 2)  # the second varies too much
    assert level_with(checks=checks_with(balance=found)) == level


def test_a_heavy_tail_is_about_its_signal_and_about_all_where_every_signal_has_one():
    care, stop = limits.PARETO_K.care, limits.PARETO_K.stop
    for k, level in ((care - 1e-6, "trusted"), (care, "with care"), (stop - 1e-6, "with care"), (stop, "not trusted")):
        found = verdict_with(checks=checks_with(pareto_k=(0.1, k)))
        assert (found.of("Click"), found.of("Like")) == ("trusted", level)
        assert found.level == ("trusted" if level == "trusted" else "with care")
        assert level_with(checks=checks_with(pareto_k=(k, k))) == level


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
