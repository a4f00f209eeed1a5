"""Each decision of an estimate's verdict, with a case on each side of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from moac.offline.ncis import diagnostics, estimates, evaluation, exposure, sums, sweep, trust
from moac.offline.ncis.diagnostics import Diagnostics
from moac.offline.ncis.estimates import Drawn, Estimate
from moac.offline.ncis.exposure import Agreement
from moac.offline.ncis.options import Options
from moac.offline.ncis.shards import Shard

DRAWS = 999
"""So that k draws on the wrong side of 0 have the p-value (k + 1)/500."""
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
EVIDENCE = trust.Evidence(("Click", "Like"), (SOUND,), VALUE, {"SNIPS": VALUE}, (), None)


def level_with(*changes, **evidence):
    """The verdict on sound evidence but for these changes, one seed's diagnostics each."""
    seeds = tuple(replace(SOUND, **change) for change in changes) or (SOUND,)
    found = trust.verdict(replace(EVIDENCE, diagnostics=seeds, **evidence))
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
        (1.04, (1.01, 1.07), "trusted"),  # too little to matter
    ],
)
def test_a_mean_weight_is_off_where_its_interval_leaves_one_out(mean, interval, level):
    assert level_with({"mean_weight": mean, "mean_weight_interval": np.array(interval)}) == level


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
    assert level_with(flips=(sweep.Flip("Click", "a", "b", 1.0, 2.0, separated),)) == level


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


def drawn(values, wrong):
    """Estimates [C, M] of one seed; of each one's draws the first `wrong` [C, M] are on the other side of 0."""
    table = np.array(values, float)
    sign = np.where(np.arange(DRAWS)[:, None, None] < np.array(wrong), -1.0, 1.0)
    return Drawn(table[None], sign * table, None, None, np.ones((1, DRAWS)))


NOTHING = drawn([[0.0, 0.0], [0.0, 0.0]], [[0, 0], [0, 0]])


def test_a_change_is_significant_after_holms_correction():
    """With two signals the smaller p counts twice: 0.026 is too large then, 0.024 is not."""
    for wrong, significant in ((12, False), (11, True)):
        policy = drawn([[0.1, 0.1], [0.1, 0.1]], [[wrong, 400]] * 2)
        found = estimates.change(policy, NOTHING, 0, 0.95)
        assert found.p[0] == pytest.approx((wrong + 1) / 500)
        assert found.significant.tolist() == [significant, False]


@pytest.mark.parametrize("few", [None, "policy", "base"])
def test_a_change_is_significant_where_both_are_estimable(few):
    policies = {"policy": drawn([[0.1, 0.1]] * 2, [[0, 0]] * 2), "base": NOTHING}
    scarce = replace(EVIDENCE, diagnostics=(replace(SOUND, weighted_positives=np.array([10.0, 500.0])),))
    evidence = {name: scarce if name == few else EVIDENCE for name in policies}
    found = evaluation._changes(policies, evidence, "base", (0, 0.95))
    assert found["policy"].significant.tolist() == [few is None, True]


@pytest.mark.parametrize(
    ("values", "wrong", "flip"),
    [
        ([[0.1, 0.1], [-0.2, 0.2]], [[0, 0], [400, 0]], (1.0, math.inf, True)),  # one cap tells them apart
        ([[0.1, 0.1], [-0.2, 0.2]], [[400, 0], [400, 0]], (1.0, math.inf, False)),  # none does
        ([[-0.1, 0.1], [0.2, 0.2]], [[0, 0], [0, 0]], (math.inf, 1.0, True)),
        ([[0.1, 0.1], [0.2, 0.2]], [[0, 0], [0, 0]], None),
        ([[-0.1, 0.1], [-0.2, 0.2]], [[0, 0], [0, 0]], None),
    ],
)
def test_an_order_flips_where_the_difference_changes_its_sign(values, wrong, flip):
    found = sweep.sweep({"a": drawn(values, wrong), "b": NOTHING}, (1.0, math.inf), ("Click", "Like"), 0.95).flips
    expected = [] if flip is None else [sweep.Flip("Click", "a", "b", *flip)]
    assert list(found) == expected


def test_a_relative_change_under_each_cap_has_the_interval_of_its_level():
    """Draws from −0.5 to 0.5 around a baseline of 2, which does not vary: 90 % of them are within ±0.45."""
    spread, base = np.linspace(-0.5, 0.5, DRAWS)[:, None, None], drawn([[2.0], [2.0]], [[0], [0]])
    policy = Drawn(np.array([[[2.0], [3.0]]]), spread + np.array([[2.0], [3.0]]), None, None, np.ones((1, DRAWS)))
    found = sweep.sweep({"policy": policy, "base": base}, (1.0, math.inf), ("Click",), 0.9, "base")
    np.testing.assert_allclose(found.relative["policy"][:, 0], [0.0, 0.5])
    np.testing.assert_allclose(found.relative_interval["policy"][:, 0], [[-0.225, 0.225], [0.275, 0.725]])
    assert list(found.relative) == ["policy"]


@pytest.mark.parametrize(("wrong", "agrees"), [(23, False), (25, True)])
@pytest.mark.parametrize("fired", [60, 40])
def test_two_logs_disagree_below_one_less_the_level(wrong, agrees, fired):
    """p of 0.048 and 0.052 at a level of 95 %; with 40 positives random exposure says nothing."""
    rewards = (np.arange(100) < fired).astype(float)[:, None]
    there = sums.of_rows((np.arange(100), np.arange(100)), rewards, np.ones(100), (math.inf,), math.inf)
    ours, theirs = drawn([[0.1]], [[wrong]]), drawn([[0.0]], [[0]])
    found = exposure._compared((ours, 0), theirs, there, Options())
    assert found.difference == pytest.approx(0.1)
    assert found.checked.tolist() == [fired == 60]
    assert found.agrees.tolist() == [agrees or fired == 40]


def test_diagnostics_of_four_rows_by_hand():
    """Two users; weights 1, 4 | 2, 9 under a cap of 4: the second only reaches it, the last is beyond."""
    reward, people = np.array([[1.0], [0.0], [2.0], [1.0]]), (np.array([7, 8]), np.array([0, 0, 1, 1]))
    one = sums.of_rows(people, reward, np.array([1.0, 4.0, 2.0, 9.0]), (4.0, math.inf), 4.0)
    found = diagnostics.diagnose(one, 0, np.ones(3), 0.95)
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


@pytest.mark.parametrize(("largest", "distinct"), [(0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2), (3.0, 3), (7.0, 4)])
def test_caps_above_the_largest_weight_are_alike(largest, distinct):
    """Of caps 1, 2, 5 and infinity: as many as differ, and the last of them stands for the rest in every draw."""
    caps = (1.0, 2.0, 5.0, math.inf)
    reward, weight = np.array([[1.0], [0.0], [1.0], [0.0]]), np.array([0.1, 0.2, 0.3, largest])
    one = sums.of_rows((np.arange(4), np.arange(4)), reward, weight, caps, 5.0)
    assert one.distinct == distinct
    found = estimates.draw(Shard(("Click",), caps, 5.0, {"policy": (one,)}), Options(cap=5.0, caps=caps))["policy"]
    plain = replace(one, weight=one.weight[:, -1:], reward=one.reward[:, -1:])
    alone = estimates.draw(Shard(("Click",), caps[-1:], math.inf, {"policy": (plain,)}), Options())["policy"]
    np.testing.assert_allclose(found.draws[:, -1], alone.draws[:, 0], rtol=1e-12)


def test_a_user_of_many_rows_counts_for_more_in_the_log_itself():
    people = (np.array([7, 8]), np.array([0, 0, 0, 1]))
    one = sums.of_rows(people, np.ones((4, 1)), np.ones(4), (math.inf,), math.inf)
    found = diagnostics.diagnose(one, 0, np.ones(3), 0.95)
    assert found.user_effective_size == pytest.approx(16 / 10)
    assert found.user_effective_share == pytest.approx(1.0)
