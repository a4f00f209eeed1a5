"""Bounds of squared norms and of the gap, where the truth is known: NumPy draws alone."""

import numpy as np
import pytest
from scipy import stats

from moac.theory import intervals

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
    bounds = np.array([intervals.upper(K, 0.025) for K in kernels(g, 600)])
    missed = int((bounds < length**2).sum())
    assert stats.binom.sf(missed - 1, 600, 0.025) > 0.01
    if length >= 1 and place == -1:  # and no wider than twice a normal bound that knows the variance
        sd = np.sqrt(4 * length**2 * SCALES[place] ** 2 / GROUPS + 2 * (SCALES**4).sum() / GROUPS**2)
        assert np.median(bounds) < length**2 + 2 * 1.96 * sd


@pytest.mark.parametrize(("f", "noncentrality"), [(1, 4.0), (1, 9.0), (4, 6.0), (30, 20.0)])
def test_scores_are_those_of_a_noncentral_chi_square(f, noncentrality):
    law = stats.ncx2(f, noncentrality)
    for level in (0.025, 0.1, 0.5):
        found = stats.norm.cdf(intervals._score(law.ppf(level), noncentrality, (f, 1.0, f)))
        assert found == pytest.approx(level, rel=0.25)


def test_the_upper_end_is_where_the_test_turns():
    K = kernels(np.full(P, 0.5), 1)[0]
    y, q, G = np.linalg.cholesky(K + 1e-9 * np.eye(GROUPS)), stats.t.ppf(0.975, GROUPS - 1), GROUPS
    mean, S = y.mean(axis=0), np.cov(y.T) / G
    tau = (G - 1) ** 2 / ((G - 2) * (G + 1)) * (np.trace(S @ S) - np.trace(S) ** 2 / (G - 1))
    theta, u = intervals.upper(K, 0.025), (K.sum() - np.trace(K)) / (G * (G - 1))
    rho, largest = mean @ S @ mean / (mean @ mean), min(np.linalg.eigvalsh(S)[-1], np.sqrt(tau))
    noise = np.trace(S), rho + 0.5 * (largest - rho) * min(1, np.sqrt(2 * tau) / u), tau
    assert intervals._score(u + noise[0], theta, noise) == pytest.approx(-q, abs=1e-4)
    assert intervals.upper(9 * K, 0.025) == pytest.approx(9 * theta)
    assert intervals.upper(K, 0.025, margin=0.5) == pytest.approx((np.sqrt(theta) + 0.5) ** 2)


def test_the_upper_end_is_positive_also_where_the_statistic_is_not():
    bounds = [intervals.upper(K, 0.025) for K in kernels(np.zeros(P), 50)]
    statistics = [(K.sum() - np.trace(K)) / (GROUPS * (GROUPS - 1)) for K in kernels(np.zeros(P), 50)]
    assert min(statistics) < 0 < min(bounds)
    assert intervals.upper(np.zeros((GROUPS, GROUPS)), 0.025, margin=0.1) == pytest.approx(0.01)


@pytest.mark.parametrize("M", [1, 2, 7])
def test_lower_ends_cover_and_are_not_zero(M):
    slopes = 0.5 + np.random.default_rng(M).normal(size=(1000, 100, M))
    bounds = np.array([intervals.lower(each, 0.025) for each in slopes])
    missed = int((bounds > 0.25).sum())
    assert stats.binom.sf(missed - 1, 1000, 0.025) > 0.01
    assert np.median(bounds) > 0.005
    assert intervals.lower(-slopes[0], 0.025) == 0.0


def test_rare_events_that_were_not_seen_count_as_in_a_poisson_limit():
    n, sizes = 200, np.zeros((200, 4))
    sizes[:1, 1], sizes[:3, 2], sizes[:, 3] = 5.0, 5.0, 1.0
    margin = intervals.unseen(sizes, 0.025, largest=2.0) * n
    for i, (k, R) in enumerate(((0, 2.0), (1, 5.0), (3, 5.0))):
        assert margin[i] == pytest.approx(
            R * (stats.chi2.ppf(0.975, 2 * k + 2) / 2 - k - 1.959964 * np.sqrt(k)), rel=1e-5
        )
    assert margin[0] == pytest.approx(2 * 3.6889, rel=1e-4)
    assert margin[3] < 0.25  # where all are alike, normal bounds are right
