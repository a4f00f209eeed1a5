"""NCIS against what is known: logged means, closed forms, row-by-row resampling, and the truth of generated logs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.offline import ncis
from moac.offline.ncis import estimates
from tests.helpers import logs

NO_CAP = ncis.Options(cap=math.inf, caps=(math.inf,), draws=300)
MODEL = generate.UserModel.of(3, 60)
FLATTER = logs.tilted(MODEL, 0.8)
"""Weights stay below 5, so that an estimate without a cap has a variance to speak of: capped ones are biased."""


@pytest.fixture(scope="module")
def generated():
    return generate.log(30_000, 5, model=MODEL, num_users=3_000)


def row_by_row(log, weight):
    return (weight[:, None] * log.reward).sum(axis=0) / weight.sum()


def value(log, policy, **options):
    return ncis.values(ncis.accumulate(log, {"p": policy}, options=ncis.Options(**options)))["p"]


def test_the_logging_policy_has_the_logged_mean(generated):
    dataset = generated.dataset()
    log = ncis.Logged.from_dataset(dataset)
    own = ncis.evaluate(log, {"Behavior-Clone": dataset.propensity}).policies["Behavior-Clone"]
    np.testing.assert_allclose(own.ncis.value, dataset.reward.mean(axis=0, dtype=np.float64), atol=1e-12, rtol=0)
    (found,) = own.diagnostics
    counted = [found.row_effective_share, found.user_effective_share, found.retained_mass, found.mean_weight]
    np.testing.assert_allclose(counted, 1, atol=1e-12)
    assert found.capped_share == 0
    np.testing.assert_array_equal(found.events, (dataset.reward != 0).sum(axis=0))
    np.testing.assert_allclose(found.weighted_positives, found.events)
    np.testing.assert_allclose(found.effective_positives, found.events)


def test_four_rows_by_hand():
    log = ncis.Logged.of([7, 7, 8, 9], [[1.0, 0], [0, 2], [1, 0], [0, 0]], [0.5, 0.1, 0.5, 0.2])
    shard = ncis.accumulate(log, {"p": [0.5, 0.8, 0.25, 0.2]}, options=ncis.Options(cap=2))  # weights 1, 8 -> 2, ½, 1
    np.testing.assert_allclose(ncis.values(shard)["p"], [1.5 / 4.5, 4 / 4.5])
    (found,) = ncis.analyse(shard, options=ncis.Options(cap=2)).policies["p"].diagnostics
    assert (found.rows, found.users) == (4, 3)
    assert found.row_effective_size == pytest.approx(4.5**2 / 6.25)
    assert found.user_effective_size == pytest.approx(4.5**2 / (9 + 0.25 + 1))
    assert found.user_effective_share == pytest.approx(4.5**2 / (9 + 0.25 + 1) / (16 / 6))
    assert found.largest_row_share == pytest.approx(2 / 4.5)
    assert found.largest_user_share == pytest.approx(3 / 4.5)
    assert found.capped_share == 0.25
    assert found.retained_mass == pytest.approx(4.5 / 10.5)
    assert found.mean_weight == pytest.approx(10.5 / 4)
    np.testing.assert_allclose(found.weighted_positives, [1.5, 2])
    np.testing.assert_allclose(found.effective_positives, [1.5**2 / 1.25, 1])
    w, r = np.array([1, 2, 0.5, 1]), log.reward
    error = np.sqrt((w[:, None] ** 2 * (r - [1.5 / 4.5, 4 / 4.5]) ** 2).sum(axis=0)) / 4.5
    np.testing.assert_allclose(found.row_standard_error, error)


def test_an_infinite_cap_is_snips():
    log, policy = logs.small()
    weight = policy[np.arange(60), log.action] / log.propensity
    assert weight.max() > 3
    np.testing.assert_allclose(value(log, policy, cap=math.inf), row_by_row(log, weight), rtol=1e-12)
    capped = ncis.evaluate(log, {"p": policy}, options=ncis.Options(cap=3.0))
    np.testing.assert_allclose(capped.policies["p"].snips.value, row_by_row(log, weight), rtol=1e-12)
    np.testing.assert_allclose(capped.policies["p"].ncis.value, row_by_row(log, np.minimum(3, weight)), rtol=1e-12)
    at_infinity = ncis.evaluate(log, {"p": policy}, options=ncis.Options(cap=math.inf)).policies["p"]
    np.testing.assert_array_equal(at_infinity.ncis.interval, at_infinity.snips.interval)
    np.testing.assert_array_equal(at_infinity.ncis.interval, capped.policies["p"].snips.interval)


@pytest.mark.parametrize("cap", [1.0, 5.0, math.inf])
def test_a_one_hot_policy_has_the_filtered_mean(cap):
    """Where the matching rows weigh the same: under uniform exposure, and with a cap of 1 under any."""
    log, _ = logs.small(rows=200)
    if cap > 1:
        log = replace(log, propensity=np.full(200, 0.25))
    expected = log.reward[log.action == 2].mean(axis=0)
    np.testing.assert_allclose(value(log, np.eye(4)[np.full(200, 2)], cap=cap), expected, rtol=1e-12)


def test_a_draw_is_ncis_of_the_rows_of_the_drawn_users():
    """Numerator and denominator anew, row by row, from the same stream of users."""
    log, policy = logs.small(rows=150, users=12)
    options = ncis.Options(cap=2.0, draws=200, seed=4)
    found = ncis.evaluate(log, {"p": policy}, options=options).policies["p"].ncis.interval
    weight = np.minimum(2, policy[np.arange(150), log.action] / log.propensity)
    rng, users = np.random.default_rng([4, 0]), np.unique(log.user)
    draws = []
    for _ in range(200):
        drawn = users[rng.integers(12, size=12)]
        rows = np.concatenate([np.flatnonzero(log.user == one) for one in drawn])
        draws.append((weight[rows, None] * log.reward[rows]).sum(axis=0) / weight[rows].sum())
    np.testing.assert_allclose(found.T, np.quantile(draws, [0.025, 0.975], axis=0), rtol=1e-10)


def test_intervals_have_the_width_of_the_delta_method(generated):
    rows, policy = logs.rows_of(generated), logs.chosen(FLATTER, generated)
    own = ncis.evaluate(rows, {"p": policy}).policies["p"].ncis
    _, user = np.unique(rows.user, return_inverse=True)
    weight = policy / rows.propensity
    sums = np.zeros((user.max() + 1, 3))
    np.add.at(sums, user, weight[:, None] * (rows.reward - own.value))
    error = np.sqrt((sums**2).sum(axis=0)) / weight.sum()
    np.testing.assert_allclose(np.diff(own.interval)[:, 0] / (2 * 1.96 * error), 1, atol=0.08)


def test_a_change_is_paired(generated):
    """Users drawn alike: narrower than independent intervals by far, and nothing at all against itself."""
    rows, policy = logs.rows_of(generated), logs.chosen(logs.tilted(MODEL, 1.1), generated)
    found = ncis.evaluate(rows, {"b": generated.propensity, "same": generated.propensity, "p": policy}, baseline="b")
    base, own = found.policies["b"], found.policies["p"]
    assert base.change is None and own.change is not None
    np.testing.assert_allclose(own.change.difference, own.ncis.value - base.ncis.value)
    np.testing.assert_allclose(own.change.relative, own.ncis.value / base.ncis.value - 1)
    apart = np.hypot(np.diff(own.ncis.interval), np.diff(base.ncis.interval))
    assert (np.diff(own.change.difference_interval) < apart / 5).all()
    same = found.policies["same"].change
    assert not same.difference_interval.any()
    np.testing.assert_array_equal(same.holm, 1)
    gain = logs.truth(MODEL, logs.tilted(MODEL, 1.1)) - logs.truth(MODEL, logs.tilted(MODEL, 1.0))
    assert (abs(own.change.difference - gain) < np.diff(own.change.difference_interval)[:, 0]).all()  # four errors


def test_seeds_are_averaged_and_users_drawn_jointly():
    log, policy = logs.small(rows=300, users=40)
    _, other = logs.small(seed=1, rows=300)
    report = ncis.evaluate(log, {"one": policy, "twice": [policy, policy], "two": [policy, other], "other": other})
    one, twice, two, other_one = report.policies.values()
    np.testing.assert_allclose(twice.ncis.interval, one.ncis.interval, rtol=1e-12)
    np.testing.assert_allclose(two.by_seed, [one.ncis.value, other_one.ncis.value])
    np.testing.assert_allclose(two.ncis.value, two.by_seed.mean(axis=0))
    assert len(two.diagnostics) == 2
    redrawn = ncis.evaluate(log, {"two": [policy, other]}, options=ncis.Options(resample_seeds=True)).policies["two"]
    assert (np.diff(redrawn.ncis.interval) > np.diff(two.ncis.interval)).any()
    np.testing.assert_array_equal(redrawn.ncis.value, two.ncis.value)


def test_holm_by_hand():
    np.testing.assert_allclose(ncis.holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(ncis.holm(np.array([0.9, 0.8])), [1, 1])


def test_p_values_by_hand():
    """Of 99 draws of a difference, two are not above 0: p = 2·3/100, whichever way round it is taken."""
    draws = np.arange(99.0)[:, None] - 1
    np.testing.assert_allclose(estimates.p_value(draws), [0.06])
    np.testing.assert_allclose(estimates.p_value(-draws), [0.06])
    np.testing.assert_allclose(estimates.p_value(draws * np.nan), [1])


def test_doubly_robust_without_a_model_is_capped_ips():
    log, policy = logs.small()
    weight = np.minimum(3, policy[np.arange(60), log.action] / log.propensity)
    found = ncis.evaluate(log, {"p": policy}, q=np.zeros((60, 4, 2)), options=ncis.Options(cap=3.0))
    np.testing.assert_allclose(
        found.policies["p"].doubly_robust.value, (weight[:, None] * log.reward).mean(axis=0), rtol=1e-12
    )


def test_doubly_robust_with_the_right_model_needs_no_weights():
    """Rewards that are a function of state and action: the model's value comes out whatever the propensities are."""
    log, policy = logs.small()
    q = np.random.default_rng(0).random((60, 4, 2))
    log = replace(log, reward=q[np.arange(60), log.action], propensity=np.full(60, 0.9))
    exact = np.einsum("nk,nkm->m", policy, q) / 60
    for model in (q, lambda rows: q[rows]):
        found = ncis.evaluate(log, {"p": policy}, q=model).policies["p"].doubly_robust
        np.testing.assert_allclose(found.value, exact, rtol=1e-12)
    assert (found.interval[:, 0] < exact).all() and (exact < found.interval[:, 1]).all()


def test_doubly_robust_with_right_propensities_forgives_the_model(generated):
    rows, table = logs.rows_of(generated), FLATTER[generated.kind, generated.tab]
    biased = np.array([0.2, 0.01, 1.0])
    found = ncis.evaluate(rows, {"p": table}, q=lambda n: np.broadcast_to(biased, (len(n), 60, 3)), options=NO_CAP)
    low, high = found.policies["p"].doubly_robust.interval.T
    truth = logs.truth(MODEL, FLATTER)
    assert ((low <= truth) & (truth <= high)).all()


def test_a_cap_biases_towards_the_log_and_the_verdict_says_so():
    log, uniform = generate.log(60_000, 1, model=MODEL, num_users=6_000), logs.tilted(MODEL, 0.0)
    found = ncis.evaluate(logs.rows_of(log), {"p": logs.chosen(uniform, log)}, options=ncis.Options(cap=5.0))
    own = found.policies["p"]
    clicks, logged = logs.truth(MODEL, uniform)[0], log.reward[:, 0].mean()
    low, high = own.ncis.interval[0]
    assert clicks < low and high < logged  # the interval is of the capped estimate
    low, high = own.snips.interval[0]
    assert low <= clicks <= high
    assert own.verdict.level == "not trusted"  # more than half of the weight is cut off
    assert {"retained_mass", "SNIPS"} <= {reason.measure for reason in own.verdict.reasons}


def covered(replications):
    """How often intervals over users, and over rows, hold the truth: new users and rows each time."""
    truth, by_user, by_row = logs.truth(MODEL, FLATTER), [], []
    for seed in range(replications):
        log = generate.log(8_000, 1_000 + seed, model=MODEL, num_users=400)
        own = ncis.evaluate(logs.rows_of(log), {"p": logs.chosen(FLATTER, log)}, options=NO_CAP).policies["p"]
        low, high = own.ncis.interval.T
        by_user.append((low <= truth) & (truth <= high))
        by_row.append(abs(own.ncis.value - truth) <= 1.96 * own.diagnostics[0].row_standard_error)
    return np.mean(by_user, axis=0), np.mean(by_row, axis=0)


def test_intervals_over_users_cover_and_intervals_over_rows_do_not():
    by_user, by_row = covered(100)
    assert ((by_user >= 0.9) & (by_user <= 0.97)).all(), by_user
    assert (by_row[[0, 2]] < 0.75).all(), by_row  # Click and WatchTime, which depend on who is asked


@pytest.mark.slow
def test_coverage_over_many_logs():
    by_user, by_row = covered(1_000)
    assert ((by_user >= 0.92) & (by_user <= 0.97)).all(), by_user
    assert (by_row[[0, 2]] < 0.7).all(), by_row
