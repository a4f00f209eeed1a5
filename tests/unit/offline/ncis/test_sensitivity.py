"""Γ against linear programmes, and where it must be 1."""

import numpy as np
import pytest
from scipy.optimize import linprog

from moac.offline import ncis
from moac.offline.ncis import sensitivity


def rows(seed, count=14):
    rng = np.random.default_rng(seed)
    b, pi = rng.uniform(0.05, 0.9, count), rng.uniform(0.02, 0.9, count)
    reward = np.stack([rng.integers(0, 2, count), rng.standard_normal(count)], axis=1).astype(float)
    return pi, b, reward


def programme(pi, b, reward, gamma, cap, sign):
    """min Σ z r / Σ z over the box, as a linear programme (Charnes & Cooper): y = z / Σ z, t = 1 / Σ z."""
    low, high = (np.minimum(cap, pi * (1 + (1 / b - 1) * g)) for g in (1 / gamma, gamma))
    n = len(pi)
    above = np.concatenate([np.eye(n), -high[:, None]], axis=1)
    below = np.concatenate([-np.eye(n), low[:, None]], axis=1)
    found = linprog(
        np.append(sign * reward, 0),
        np.concatenate([above, below]),
        np.zeros(2 * n),
        np.append(np.ones(n), 0)[None],
        [1],
    )
    return sign * found.fun


@pytest.mark.parametrize(("gamma", "cap"), [(1.0, 10.0), (1.4, 10.0), (1.4, 1.5), (4.0, np.inf), (4.0, 0.8)])
def test_bounds_are_those_of_a_linear_programme(gamma, cap):
    for seed in range(4):
        pi, b, reward = rows(seed)
        found = sensitivity.bounds(pi / b, b, reward, gamma, cap)
        for k in range(2):
            expected = [programme(pi, b, reward[:, k], gamma, cap, sign) for sign in (1, -1)]
            np.testing.assert_allclose(found[k], expected, atol=1e-8)


@pytest.mark.parametrize("value", [-5.0, 0.0, 5.0])
def test_what_every_row_has_every_weighting_has(value):
    pi, b, _ = rows(0)
    found = sensitivity.bounds(pi / b, b, np.full((len(b), 1), value), 2.0, 10.0)
    np.testing.assert_allclose(found[0], [value, value], rtol=1e-12, atol=0)


def analysed(seed, count=400, level=0.95, tilt=2.0):
    rng = np.random.default_rng(seed)
    reward = np.stack([rng.integers(0, 2, count), 1.0 * rng.integers(0, 2, count)], axis=1)
    b = rng.uniform(0.2, 0.6, count)
    ratio = np.where(reward[:, 0] > 0, tilt, 1.0) * rng.uniform(0.7, 1.3, count)  # the first signal has an effect
    log = ncis.Logged.of(np.arange(count) // 2, reward, b)
    options = ncis.Options(cap=5.0, draws=300, level=level)
    return log, ratio, options, sensitivity.analyse(log, ratio[None], options)


@pytest.mark.parametrize("tilt", [1.5, 0.6])
def test_gamma_is_where_the_bounds_first_hold_the_logs_mean(tilt):
    log, ratio, options, found = analysed(1, tilt=tilt)
    mean = log.reward[:, 0].mean()
    assert 1.05 < found.point[0] < 5
    for factor, held in ((0.999, False), (1.001, True)):
        low, high = sensitivity.bounds(ratio, log.propensity, log.reward, found.point[0] * factor, options.cap)[0]
        assert bool(low <= mean <= high) is held


def test_an_interval_is_explained_before_its_estimate_and_by_nothing_where_it_holds_no_change():
    log, ratio, options, found = analysed(1, tilt=1.6)
    assert 1 < found.interval[0] < found.point[0]
    policies = {"b": log.propensity, "p": np.minimum(ratio * log.propensity, 1)}
    low, high = ncis.evaluate(log, policies, baseline="b", options=options).policies["p"].change.difference_interval[1]
    assert low < 0 < high and found.interval[1] == 1.0
    wider = analysed(1, level=0.999, tilt=1.6)[3]
    assert wider.interval[0] < found.interval[0]


def test_the_interval_at_its_gamma_just_holds_no_change():
    """The draws of users, each with its own worst case by a linear programme's sort."""
    log, ratio, options, found = analysed(2, count=120)
    rng, lower = np.random.default_rng([options.seed, 0]), []
    for _ in range(options.draws):
        n = np.bincount(rng.integers(60, size=60), minlength=60)[np.arange(120) // 2]
        at = np.repeat(np.arange(120), n)
        low = sensitivity.bounds(ratio[at], log.propensity[at], log.reward[at], found.interval[0], options.cap)[0, 0]
        lower.append(low - log.reward[at, 0].mean())
    assert np.quantile(lower, 0.025) == pytest.approx(0, abs=0.0008)  # the next quantile, 0.05, is at 0.002


def test_seeds_that_are_alike_are_one_and_noise_of_b_lowers_gamma():
    log, ratio, options, found = analysed(3, tilt=1.6)
    twice = sensitivity.analyse(log, np.stack([ratio, ratio]), options)
    np.testing.assert_allclose(twice.interval, found.interval)
    noise = 0.05 * np.random.default_rng(0).standard_normal((options.draws, 2))
    assert sensitivity.analyse(log, ratio[None], options, noise).interval[0] < found.interval[0]


def test_what_nothing_explains_is_said_to_be_beyond():
    log = ncis.Logged.of(np.arange(400), np.arange(400.0)[:, None] % 2, np.full(400, 0.9999))
    found = sensitivity.analyse(log, np.where(np.arange(400) % 2, 1.0, 0.5)[None], ncis.Options(draws=100))
    assert found.point[0] == found.interval[0] == sensitivity.LARGEST
