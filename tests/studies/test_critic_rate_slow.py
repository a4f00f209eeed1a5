"""Theorem 1 measured: geometric decay at the rate of the mean dynamics, and a floor that falls as 1/D."""

import numpy as np
import pytest

from moac_studies import critic_error, critic_rate, framework
from moac_studies.critic_error import DISCOUNTED, EXACT, OURS, PAPER
from moac_studies.framework import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    study = framework.load("critic-rate")
    work = Workspace(tmp_path_factory.mktemp("work"), print)
    table = {**study.parameters["random"], "batch_sizes": [8, 32, 128, 512]}
    return critic_error.measure(critic_error.random_ergodic(table), table, study.seed, work)


@pytest.mark.parametrize("variant", [DISCOUNTED, EXACT, OURS])
def test_the_floor_falls_as_one_over_d(measured, variant):
    assert critic_rate.floor_claim(measured, variant).verdict == "holds"


def test_the_papers_mu_leaves_an_error_that_no_batch_removes(measured):
    assert all(slope.low > -0.3 for slope in measured.floors.slopes[PAPER])
    assert measured.floors.of(PAPER, 512).max() > 10 * measured.floors.of(OURS, 512).max()


@pytest.mark.parametrize("variant", [DISCOUNTED, EXACT])
def test_the_error_follows_the_mean_dynamics_down_to_its_floor(measured, variant):
    decay = measured.decays[variant]
    for i in range(len(decay.floor)):
        fit = decay.fits[i]
        assert fit.straight.low > 0.98
        assert fit.orders.low > 1
        assert 0.9 < fit.agreement.low <= fit.agreement.high < 1.1
    expected = decay.expected + decay.floor
    far = decay.expected > decay.floor
    assert np.abs(decay.errors.mean(axis=0) / expected - 1)[far].max() < 0.15
