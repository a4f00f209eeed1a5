"""Certificates from samples against the exact oracle: unbiased gradients, intervals that cover, widths that fall."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import binom

from moac import Discounted, momdp
from moac.policies import SoftmaxMLP
from moac.policies.networks import States
from tests.helpers.certificates import Case, noisy_model

UNEQUAL = Discounted((0.5, 0.8, 0.9))


def network(model):
    policy = SoftmaxMLP(States(6), (8,), 3)
    theta = policy.init(jax.random.key(1))
    return Case(model, Discounted(0.8), policy=policy, theta=(*theta[:-1], 50 * theta[-1]))


CASES = {
    "unequal discounts": lambda: Case(noisy_model(3), UNEQUAL),
    "saturated": lambda: Case(noisy_model(3), UNEQUAL, scale=8.0),
    "stationary": lambda: Case(noisy_model(3, opposed=0.0), Discounted(0.8)),
    "nearly stationary": lambda: Case(noisy_model(7, opposed=0.1), Discounted(0.8)),
    "network": lambda: network(noisy_model(2)),
}


@cache
def case_of(name):
    return CASES[name]()


@pytest.mark.parametrize("name", ["unequal discounts", "saturated", "network"])
def test_gradients_are_those_of_the_oracle_whatever_the_baseline(name):
    case, episodes = case_of(name), case_of(name).episodes(3000)
    rng = np.random.default_rng(0)
    V = rng.normal(size=(6, case.model.num_objectives))  # any baseline will do
    A = episodes.advantages(lambda x: V[x], case.gamma)
    edges, exact = np.searchsorted(episodes.number, np.linspace(0, 3000, 41).astype(int)), case.gradient
    for i, g in enumerate(exact):
        means = case.scores.sums(episodes.x, A[:, i : i + 1], edges)[:, 0] / 75
        error = means.std(axis=0, ddof=1) / np.sqrt(40)
        wrong = np.abs(means.mean(axis=0) - g) / np.maximum(error, 1e-9)
        assert wrong.max() < 5.5
        assert np.mean(wrong**2) < 2.5
    returns = episodes.per_episode(episodes.weight * episodes.reward)
    error = returns.std(axis=0) / np.sqrt(len(returns))
    assert np.all(np.abs(returns.mean(axis=0) - case.exact.returns) < 5 * error)


@pytest.mark.parametrize("name", CASES)
def test_intervals_cover(name):
    hits = case_of(name).covered(160, 40)
    assert binom.cdf(hits, 40, 0.95) > 1e-3


def test_the_metric_covers_its_own_gap():
    assert binom.cdf(case_of("unequal discounts").covered(160, 20, natural=True), 20, 0.95) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [250, 1000])
@pytest.mark.parametrize("name", [*CASES, "fishwood", "resource-gathering", "deep-sea-treasure"])
def test_coverage_is_not_below_nominal(name, episodes):
    if name in CASES:
        case = case_of(name)
    else:
        case = Case(getattr(momdp.library, name.replace("-", "_"))(), Discounted(0.9), scale=0.5)
    assert binom.cdf(case.covered(episodes, 300), 300, 0.95) > 0.01


def test_the_recorded_study_is_not_below_nominal_and_is_what_the_page_shows():
    root = Path(__file__).parents[2]
    rows = [json.loads(line) for line in (root / "tests" / "data" / "certificates.jsonl").read_text().splitlines()]
    page = {line.split(" | ")[0]: line for line in (root / "docs" / "certificates.md").read_text().splitlines()}
    for row in rows:
        assert binom.cdf(row["covered"], row["repetitions"], 0.95) > 0.01 and row["repetitions"] == 500
        assert f"{row['covered'] / 500:.3f}" in page[f"| {row['case']}"]
    assert len({(row["case"], row["episodes"]) for row in rows}) == len(rows)


def test_far_from_stationarity_the_interval_is_on_both_sides():
    case = Case(noisy_model(2), Discounted(0.8))
    interval = case.look(4000).theta.interval(0.05)
    assert 0.4 * case.gap < interval.low < case.gap < interval.high < 1.6 * case.gap
    wide, narrow = (case.look(1000).theta.interval(alpha) for alpha in (0.001, 0.2))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_near_stationarity_the_upper_end_falls_with_the_number_of_episodes():
    case = Case(momdp.library.fishwood(), Discounted(0.9))
    few, many = (np.median([case.look(n, seed).theta.interval(0.05).high for seed in range(9)]) for n in (250, 4000))
    assert case.gap < 1e-20
    assert few / many > 8  # 16 times the episodes


def test_units_and_order_of_objectives():
    case, scaled = Case(noisy_model(3), UNEQUAL), Case(noisy_model(3, scale=10.0), UNEQUAL)
    look = case.look(400)
    for metric in ("theta", "natural"):
        one, ten = (getattr(each, metric).interval(0.05) for each in (look, scaled.look(400)))
        ends = 100 * one.low, 100 * one.high  # λ and d are found to about 1e-4
        assert (ten.low, ten.high) == pytest.approx(ends, rel=0.02, abs=0.001 * ends[1])
    np.testing.assert_allclose(scaled.look(400).norms, 10 * look.norms, rtol=1e-3)
    order, e = [2, 0, 1], look.episodes
    permuted = replace(e, reward=e.reward[:, order], weight=e.weight[:, order])
    other = replace(look, episodes=permuted, gamma=tuple(case.gamma[i] for i in order)).theta
    np.testing.assert_allclose(other.weights, look.theta.weights[order], atol=1e-3)
    assert other.interval(0.05).high == pytest.approx(look.theta.interval(0.05).high, rel=1e-3)


def test_an_objective_that_was_never_rewarded_is_not_taken_for_stationary():
    model = momdp.library.resource_gathering()
    case = Case(model, Discounted(0.9), scale=0.0)
    look = case.look(160, seed=1)
    assert not look.episodes.reward[:, 1].any()  # no gold came home
    assert look.theta.interval(0.05).high > case.gap > 0
