"""Bounds of squared norms and of the gap, where the truth is known: NumPy draws alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from moac.theory import gap

GROUPS, P = 40, 12
SCALES = np.linspace(0.2, 2.0, P)


def kernels(g, count, seed=0):
    """Products of the means of groups, y ~ N(g, diag(SCALES²))."""
    y = g + SCALES * np.random.default_rng(seed).normal(size=(count, GROUPS, P))
    return y @ y.swapaxes(1, 2)


@pytest.mark.parametrize("place", [0, -1])  # along the quietest direction, along the noisiest
@pytest.mark.parametrize("length", [0.05, 0.3, 0.5, 1.0, 10.0])
def test_upper_ends_cover_far_from_stationarity_and_near_it(length, place):
    g = np.zeros(P)
    g[place] = length
    bounds = np.array([gap.upper(K, 0.025) for K in kernels(g, 600)])
    missed = int((bounds < length**2).sum())
    assert stats.binom.sf(missed - 1, 600, 0.025) > 0.01
    if length >= 1 and place == -1:  # and no wider than twice a normal bound that knows the variance
        sd = np.sqrt(4 * length**2 * SCALES[place] ** 2 / GROUPS + 2 * (SCALES**4).sum() / GROUPS**2)
        assert np.median(bounds) < length**2 + 2 * 1.96 * sd


@pytest.mark.parametrize(("f", "noncentrality"), [(1, 4.0), (1, 9.0), (4, 6.0), (30, 20.0)])
def test_scores_are_those_of_a_noncentral_chi_square(f, noncentrality):
    law = stats.ncx2(f, noncentrality)
    for level in (0.025, 0.1, 0.5):
        found = stats.norm.cdf(gap._score(law.ppf(level), noncentrality, (f, 1.0, f)))
        assert found == pytest.approx(level, rel=0.25)


@pytest.mark.parametrize(("size", "noisy"), [(0.5, False), (0.05, True)])
def test_the_upper_end_is_where_the_test_turns(size, noisy):
    most = 0.1 if noisy else np.inf
    K = next(K for K in kernels(np.full(P, size), 50) if 0 < (K.sum() - np.trace(K)) / (GROUPS * (GROUPS - 1)) < most)
    y, q, G = np.linalg.cholesky(K + 1e-9 * np.eye(GROUPS)), stats.t.ppf(0.975, GROUPS - 1), GROUPS
    mean, S = y.mean(axis=0), np.cov(y.T) / G
    tau = (G - 1) ** 2 / ((G - 2) * (G + 1)) * (np.trace(S @ S) - np.trace(S) ** 2 / (G - 1))
    theta, u = gap.upper(K, 0.025), (K.sum() - np.trace(K)) / (G * (G - 1))
    rho, largest = mean @ S @ mean / (mean @ mean), min(np.linalg.eigvalsh(S)[-1], np.sqrt(tau))
    assert largest > rho and (np.sqrt(2 * tau) > u) == noisy
    noise = np.trace(S), rho + (largest - rho) * min(1, np.sqrt(2 * tau) / u), tau
    assert gap._score(u + noise[0], theta, noise) == pytest.approx(-q, abs=1e-4)
    assert gap.upper(9 * K, 0.025) == pytest.approx(9 * theta)
    assert gap.upper(K, 0.025, margin=0.5) == pytest.approx((np.sqrt(theta) + 0.5) ** 2)


def test_bounds_are_in_the_units_of_what_they_bound():
    y = np.random.default_rng(0).normal(0.3, 1.0, (12, 5))
    for level, margin in ((0.05, 0.0), (0.025, 0.2)):
        assert gap.upper(1e-8 * y @ y.T, level, 1e-4 * margin) == pytest.approx(
            1e-8 * gap.upper(y @ y.T, level, margin)
        )
        assert gap.lower(1e-4 * y, level, 1e-4 * margin) == pytest.approx(1e-8 * gap.lower(y, level, margin))


def test_the_upper_end_is_positive_also_where_the_statistic_is_not():
    bounds = [gap.upper(K, 0.025) for K in kernels(np.zeros(P), 50)]
    statistics = [(K.sum() - np.trace(K)) / (GROUPS * (GROUPS - 1)) for K in kernels(np.zeros(P), 50)]
    assert min(statistics) < 0 < min(bounds)
    assert gap.upper(np.zeros((GROUPS, GROUPS)), 0.025, margin=0.1) == pytest.approx(0.01)


@pytest.mark.parametrize("M", [1, 2, 7])
def test_lower_ends_cover_and_are_not_zero(M):
    slopes = 0.5 + np.random.default_rng(M).normal(size=(1000, 100, M))
    bounds = np.array([gap.lower(each, 0.025) for each in slopes])
    missed = int((bounds > 0.25).sum())
    assert stats.binom.sf(missed - 1, 1000, 0.025) > 0.01
    assert np.median(bounds) > 0.005
    assert gap.lower(-slopes[0], 0.025) == 0.0


def test_rare_events_count_as_in_a_poisson_limit_and_many_as_in_the_edgeworth_expansion():
    n, z = 200, stats.norm.ppf(0.975)
    for k, R in ((1, 5.0), (3, 2.0), (3, 0.5)):
        sizes = np.r_[np.full(2 * k, R), np.zeros(2 * n - 2 * k)]  # k of them among the n that give the bound
        margin = gap.beyond_normal(sizes, n, 0.025) * n
        assert margin == pytest.approx(R * (stats.chi2.ppf(0.975, 2 * k + 2) / 2 - k - z * np.sqrt(k)), rel=1e-5)
    assert gap.beyond_normal(np.zeros(n), n, 0.025) == 0.0
    many = np.random.default_rng(0).exponential(size=100_000)
    moments = [(np.abs(many - 1) ** p).mean() for p in (2, 3, 4)]
    margin = gap.beyond_normal(np.abs(many - 1), len(many), 0.025) * len(many)
    assert margin == pytest.approx((z**2 + 2) / 3 * np.sqrt(moments[2] / moments[0]), rel=0.01)
    assert margin > (2 * z**2 + 1) / 6 * moments[1] / moments[0]  # Johnson's term


def test_bounds_of_skewed_means_cover():
    """One event of two sizes in twenty samples, as deviations of a saturated policy are: a normal bound does not."""
    rng, n = np.random.default_rng(3), 400
    samples = rng.choice([0.0, -1.0, -4.0], (1000, n), p=[0.95, 0.04, 0.01])
    bounds = [samples[k : k + 1].T for k in range(1000)]
    normal, wider = (
        np.array([gap.lower(2 + x, 0.025, m * gap.beyond_normal(np.abs(x - x.mean())[:, 0], n, 0.025)) for x in bounds])
        for m in (0.0, 1.0)
    )
    missed, without = (int((each > (2 - 0.08) ** 2).sum()) for each in (wider, normal))
    assert stats.binom.sf(missed - 1, 1000, 0.025) > 0.01 and stats.binom.sf(without - 1, 1000, 0.025) < 1e-4


def test_the_direction_of_the_lower_end_gives_way_to_noise():
    gram = np.array([[1.0, 0.3], [0.3, 2.0]])
    noise = np.array([0.05, 0.6])
    values = [np.sqrt(lam @ gram @ lam) - lam @ noise for lam in ((p, 1 - p) for p in np.linspace(0, 1, 2001))]
    lam = gap.cautious(gram, noise)
    assert np.sqrt(lam @ gram @ lam) - lam @ noise == pytest.approx(min(values), abs=1e-5)
    np.testing.assert_allclose(gap.cautious(gram, np.zeros(2)), gap.min_norm(gram), atol=1e-3)


def test_both_ends_take_half_of_alpha_and_give_way_to_what_was_not_seen():
    rng = np.random.default_rng(1)
    K, lam, m = kernels(np.full(P, 0.5), 1)[0], np.array([0.25, 0.75]), 200
    slopes = 1 + 0.3 * rng.normal(size=(300, 2))
    slopes[:100] += 0.5  # those that chose d give no bound
    evidence = gap.Evidence(lam, K, slopes, np.zeros(300), 0.0, m)
    found, wider = evidence.interval(0.1), replace(evidence, silent=6.0).interval(0.1)

    def margin(samples):
        return gap.beyond_normal(np.abs(samples - samples.mean()), m, 0.05)

    assert found.high == pytest.approx(gap.upper(K, 0.05, margin(slopes @ lam)))
    low = gap.lower(slopes[100:], 0.05, np.array([margin(x) for x in slopes.T]))
    assert found.low == pytest.approx(low) and 0.5 < low < found.high
    more = -np.log(0.05) * 6.0 / 300  # the rule of three
    assert np.sqrt(wider.high) == pytest.approx(np.sqrt(found.high) + more) and found.weights is lam
    large = replace(evidence, sizes=np.r_[np.full(3, 1e3), np.zeros(297)]).interval(0.1)
    assert np.sqrt(large.high) == pytest.approx(
        np.sqrt(gap.upper(K, 0.05)) + gap.beyond_normal(np.r_[np.full(3, 1e3), np.zeros(297)], m, 0.05)
    )
