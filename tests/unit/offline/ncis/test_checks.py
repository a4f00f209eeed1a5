"""Controls, balance and tails: by enumeration, by hand, on known distributions, on logs with and without a secret."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from moac.offline import ncis
from moac.offline.ncis import checks
from moac_studies import trust

OPTIONS = ncis.Options(cap=2.0, draws=100)


def enumerated(pi, b, z):
    """A log in which each action is shown exactly as often as b says: what a check gives on it is its expectation.

    States s with b [S, A] in twentieths, π [S, A], and what happened before, z [S].
    """
    state, action = (np.repeat(each.ravel(), np.rint(20 * b).astype(int).ravel()) for each in np.indices(b.shape))
    log = ncis.Logged.of(np.arange(len(state)) // 2, np.ones(len(state)), b[state, action], action)
    control = ncis.Control("earlier", z[state][:, None], ("signal 0",))
    return log, {"p": pi[state]}, control, b[state]


PI = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.2, 0.5, 0.3]])
B = np.array([[0.25, 0.5, 0.25], [0.5, 0.4, 0.1], [0.25, 0.5, 0.25]])
Z = np.array([1.0, 5.0, 2.0])


def test_a_control_under_a_cap_is_centred_by_what_the_cap_leaves():
    log, policies, control, b = enumerated(PI, B, Z)
    evidence = ncis.evidence_of(log, policies, [control], behaviour=b, options=OPTIONS)
    mass = np.minimum(PI, 2 * B).sum(axis=1)
    np.testing.assert_allclose(np.unique(evidence.weights["p"].mass), np.unique(mass))
    found = evidence.check("p", OPTIONS).controls[0]
    assert found.change[0] == pytest.approx(0, abs=1e-12)
    w = np.minimum(2, policies["p"][np.arange(len(b)), log.action] / log.propensity)
    assert abs(w @ control.values[:, 0] / w.sum() / control.values.mean() - 1) > 0.1  # what it is without that


def test_the_error_of_a_fitted_b_widens_a_control():
    log, policies, control, b = enumerated(PI, B, Z)
    moved = replace(control, influence={"p": np.full((4, 1), 0.1)})  # four users, together a deviation of 0.2
    evidence = ncis.evidence_of(log, policies, [control, moved], behaviour=b, options=OPTIONS)
    first, second = (np.diff(one.interval)[0, 0] / 2 for one in evidence.check("p", OPTIONS).controls)
    mean = np.minimum(PI, 2 * B).sum(axis=1)
    assert second == pytest.approx(np.hypot(first, 1.959964 * 0.2 / (mean @ Z / mean.sum())))


def test_the_error_of_a_fitted_b_widens_what_controls_are_held_to():
    log, policies, control, b = enumerated(PI, B, Z)
    evidence = ncis.evidence_of(log, policies, [control], behaviour=b, options=OPTIONS)
    moved = replace(evidence, influence={"p": np.full((4, log.reward.shape[1]), 0.1)})
    first, second = (each.check("p", OPTIONS).half_width for each in (evidence, moved))
    np.testing.assert_allclose(second, np.hypot(first, 1.959964 * 0.2 / np.abs(log.reward.mean(axis=0))), rtol=1e-6)


def test_without_b_of_all_actions_a_control_uses_no_cap():
    log, policies, control, _ = enumerated(PI, B, Z)
    assert ncis.evidence_of(log, policies, [control]).check("p", OPTIONS).controls[0].change[0] == pytest.approx(0)


def test_rows_without_a_value_are_left_out_and_few_users_have_no_power():
    log, policies, control, b = enumerated(PI, B, Z)
    values = np.where(np.arange(len(log.user))[:, None] < 40, control.values, np.nan)
    few = ncis.Control("few", values, ("signal 0",))
    none = ncis.Control("none", np.full_like(values, np.nan), ("signal 0",))
    evidence = ncis.evidence_of(log, policies, [few, none], behaviour=b, options=OPTIONS)
    first, second = evidence.check("p", OPTIONS).controls
    assert (first.users, first.no_power) == (20, "only 20 users have a value")
    assert second.users == 0 and np.isnan(second.change).all()


def test_a_reward_that_is_always_the_same_is_no_control():
    """Its weighted mean differs from the other by rounding: that refutes nothing, and shows no power either."""
    rng, N = np.random.default_rng(3), 2000
    past = np.stack([np.full(N, 0.1) + rng.uniform(-1, 1, N) * 1e-14, rng.integers(2, size=N)], axis=1)
    log = ncis.Logged.of(np.arange(N) // 2, np.ones((N, 2)) * [0.1, 1], np.full(N, 0.5), rng.integers(2, size=N))
    policies = {"p": np.tile([0.4, 0.6], (N, 1))}
    controls = [
        ncis.Control("earlier", past, log.signal_names),
        ncis.Control("hour", past[:, :1], ("hour",), relative=False),
    ]
    report = ncis.analyse(
        ncis.accumulate(log, policies, None, OPTIONS),
        evidence=ncis.evidence_of(log, policies, controls),
        options=OPTIONS,
    ).policies["p"]
    earlier, hour = report.checks.controls
    assert earlier.p[0] == hour.p[0] == 1
    assert np.isnan(earlier.interval).all(axis=1).tolist() == [True, False] and np.isnan(hour.interval).all()
    assert not [reason for reason in report.verdict.reasons if "signal 0" in reason.text]


@pytest.mark.parametrize(("family", "kappa", "refuted"), [("clean", 0.0, False), ("hidden taste", 0.3, True)])
def test_earlier_rewards_change_only_where_something_hidden_decided(family, kappa, refuted):
    one = trust.pair(family, kappa, 1500, seed=70_002)
    report = trust.estimated(one, ncis.Options(draws=200))
    assert bool(report.checks.controls[0].p.min() < 0.05) is refuted
    low, high = report.change.relative_interval[0]
    assert bool(low <= one.truth[0] <= high) is not refuted
    assert report.verdict.level == ("not trusted" if refuted else "trusted")
    # over users, the interval to first order is that of the bootstrap
    np.testing.assert_allclose(report.checks.half_width, np.diff(report.change.relative_interval)[:, 0] / 2, rtol=0.2)


def test_p_values_of_a_control_are_adjusted_over_the_columns_that_fire_often_enough():
    rng, N = np.random.default_rng(9), 600
    log = ncis.Logged.of(np.arange(N), np.ones((N, 3)), np.full(N, 0.5))
    policy, rare = rng.uniform(0, 1, N), np.arange(N) < 50
    columns = np.stack([policy + rng.standard_normal(N), rng.standard_normal(N) + 1, 1.0 * rare], axis=1)

    def p_values(*which):
        named = tuple(f"signal {k}" for k in range(len(which)))
        control = ncis.Control("earlier", columns[:, which], named)
        evidence = ncis.evidence_of(log.signals(log.signal_names[: len(which)]), {"p": policy}, [control])
        return evidence.check("p", ncis.Options(draws=100)).controls[0].p

    alone = [p_values(k)[0] for k in range(3)]
    assert max(alone) < 0.5  # so that an adjustment shows
    np.testing.assert_allclose(p_values(0, 1, 2), ncis.holm(np.array(alone)))
    columns[49, 2] = 0.0  # one row too few: it neither speaks nor costs the others
    np.testing.assert_allclose(p_values(0, 1, 2), [*ncis.holm(np.array(alone[:2])), 1.0])


def test_a_controls_interval_is_that_of_drawing_users():
    one = trust.pair("clean", 0.0, 300, seed=70_003)
    policies, options = {"p": one.policy}, ncis.Options(cap=1.5)
    evidence = ncis.evidence_of(one.log, policies, one.controls, behaviour=one.behaviour, options=options)
    found, weights = evidence.check("p", options).controls[0], evidence.weights["p"]
    rows = np.flatnonzero(np.isfinite(one.controls[0].values[:, 0]))
    z, w, m = one.controls[0].values[rows, 0], np.minimum(1.5, weights.ratio[0, rows]), weights.mass[0, rows]
    sums = np.stack([np.bincount(one.log.user[rows], x, 300) for x in (w * z, w, m * z, m)])
    n = np.random.default_rng(0).multinomial(300, np.full(300, 1 / 300), 2000)
    wz, w, mz, m = sums @ n.T
    np.testing.assert_allclose(np.diff(found.interval)[0, 0] / 2, 1.96 * np.std((wz / w) / (mz / m)), rtol=0.08)


@pytest.mark.parametrize("relative", [True, False])
def test_a_control_by_hand(relative):
    """Three users; in units of the mean, or of the spread over rows."""
    user, z = np.array([0, 0, 1, 2, 2]), np.array([[1.0], [2.0], [4.0], [0.0], [3.0]])
    w = np.array([0.5, 1.5, 1.0, 2.0, 0.5])
    log = ncis.Logged.of(user, np.ones(5), np.full(5, 0.5))
    control = ncis.Control("z", z, ("z",), relative=relative)
    found = ncis.evidence_of(log, {"p": w / 2}, [control]).check("p", ncis.Options(cap=np.inf, draws=100)).controls[0]
    after, before = w @ z[:, 0] / w.sum(), z.mean()
    unit = before if relative else z.std()
    parts = w / w.sum() * (z[:, 0] - after) - (z[:, 0] - before) / 5
    half = 1.959964 * np.sqrt((np.bincount(user, parts) ** 2).sum() * 3 / 2) / unit
    change = (after - before) / unit
    np.testing.assert_allclose([found.change[0], *found.interval[0]], [change, change - half, change + half], rtol=1e-6)


def test_balance_by_hand():
    """Two users; weights 1, 3, 1, 3 on a covariate 0, 1, 0, 1: ¾ in place of ½, half a standard deviation more."""
    log = ncis.Logged.of([1, 1, 2, 2], [1.0, 0, 1, 0], np.full(4, 0.25))
    evidence = ncis.evidence_of(
        log, {"p": np.array([0.25, 0.75, 0.25, 0.75])}, (), {"x": [0, 1, 0, 1], "same": [1] * 4}
    )
    found = evidence.check("p", ncis.Options(draws=100)).balance
    assert (found.names, found.covariates) == (("x",), 1)
    assert found.difference[0] == pytest.approx(0.5)
    assert found.interval[0] == pytest.approx((0.5, 0.5))  # both users say the same
    constant = replace(evidence, covariates={"same": [1] * 4}).check("p", ncis.Options(draws=100))
    assert constant.balance is None  # nothing to compare


def test_ten_covariates_are_listed_worst_first():
    rng = np.random.default_rng(0)
    log = ncis.Logged.of(np.arange(500), rng.random(500), np.full(500, 0.5))
    policy = rng.uniform(0, 1, 500)
    covariates = {str(k): policy * k + rng.standard_normal(500) for k in range(30)}
    found = ncis.evidence_of(log, {"p": policy}, (), covariates).check("p", ncis.Options(draws=100)).balance
    assert len(found.names) == 10 and found.covariates == 30
    assert (np.diff(np.abs(found.difference)) <= 0).all()
    assert found.off.sum() >= 5
    alone = {found.names[0]: covariates[found.names[0]]}
    single = ncis.evidence_of(log, {"p": policy}, (), alone).check("p", ncis.Options(draws=100)).balance
    adjusted = np.diff(found.interval[0]) / np.diff(single.interval[0])
    assert adjusted == pytest.approx(NormalDist().inv_cdf(1 - 0.05 / 60) / NormalDist().inv_cdf(0.975))


@pytest.mark.parametrize(
    ("draw", "k", "tolerance"),
    [
        (lambda rng: rng.pareto(1.3, 40_000) + 1, 1 / 1.3, 0.15),
        (lambda rng: rng.pareto(3.0, 40_000) + 1, 1 / 3, 0.12),
        (lambda rng: rng.standard_exponential(40_000), 0.0, 0.12),
        (lambda rng: rng.random(40_000), -1.0, 0.15),
    ],
)
def test_pareto_k_of_known_distributions(draw, k, tolerance):
    found = [checks.pareto_k(draw(np.random.default_rng(seed))) for seed in range(5)]
    assert np.mean(found) == pytest.approx(k, abs=tolerance)


def test_pareto_k_is_the_estimate_of_zhang_and_stephens():
    """Their equations, one after the other, on the 40 largest of 200 values."""
    values = np.random.default_rng(3).pareto(2.0, 200)
    x = sorted(values)[-40:]
    x = np.array(x) - sorted(values)[-41]
    x = x - checks._NEAR_TIE * x.mean()
    x = x[x > 0]
    n, m = len(x), 30 + int(np.sqrt(len(x)))
    b = [1 / x[-1] + (1 - np.sqrt(m / (j - 0.5))) / (3 * x[int(n / 4 + 0.5) - 1]) for j in range(1, m + 1)]
    k = [-np.mean(np.log(1 - each * x)) for each in b]
    likelihood = [n * (np.log(own / of_b) + of_b - 1) for own, of_b in zip(b, k, strict=True)]
    weight = [1 / sum(np.exp(np.array(likelihood) - own)) for own in likelihood]
    mean = sum(w * own for w, own in zip(weight, b, strict=True))
    assert checks.pareto_k(values) == pytest.approx(np.mean(np.log(1 - mean * x)), rel=1e-9)


def test_pareto_k_looks_at_the_largest_values_alone():
    values = np.sort(np.random.default_rng(0).pareto(2.0, 10_000))
    tail = np.where(np.arange(10_000) < 10_000 - 301, 0.0, values)  # 3√n of them, above the next
    assert checks.pareto_k(tail) == checks.pareto_k(values)
    assert checks.pareto_k(np.where(tail == tail[-300], 0.0, tail)) != checks.pareto_k(values)


@pytest.mark.parametrize("users", [250, 2500])
def test_counts_under_weights_of_nearly_1_have_no_heavy_tail(users):
    """A policy close to the log's own: excesses over a near-tie are no tail."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        counts = rng.binomial(rng.geometric(0.4, users), 0.4)
        assert checks.pareto_k(counts * np.exp(0.01 * rng.normal(size=users))) < 0.2


def test_pareto_k_of_what_has_no_tail():
    assert checks.pareto_k(np.ones(1000)) == checks.pareto_k(np.zeros(1000)) == checks.pareto_k(np.arange(3.0)) == -1.0


def test_tails_by_hand():
    """200 users with a row each, of which two, one in a hundred, have half of all."""
    reward = np.where(np.arange(200) < 2, 99.0, 1.0)
    log = ncis.Logged.of(np.arange(200), reward, np.full(200, 0.5))
    found = ncis.evidence_of(log, {"p": np.full(200, 0.5)}).check("p", ncis.Options(draws=100)).tails
    assert found.heaviest_rows[0] == found.heaviest_users[0] == pytest.approx(0.5)
    assert found.capped_at[0] < 99
    assert found.capped_change[0] == pytest.approx(0)


def test_a_column_varies_beyond_rounding_whatever_its_unit():
    steps = np.array([0.0, 1.0, 1.0])
    columns = np.column_stack([1e9 + steps, 1e12 + steps, 1e-12 * steps, np.full(3, 1 / 3), np.zeros(3)])
    assert checks.varies(columns).tolist() == [False, False, True, False, False]


def test_shares_of_weights_that_are_small_together_sum_to_one():
    w = np.array([[0.1, 0.3], [0.0, 0.0]])
    np.testing.assert_allclose(checks._mean_share(w), [0.25 / 2, 0.75 / 2])  # a seed without weight has no share
