"""The critic's errors as `moac reproduce critic-rate` measures them, against models worked out by hand."""

import math

import numpy as np
import pytest

from moac.momdp import FiniteMOMDP
from moac_studies import critic_error, critic_rate
from moac_studies.critic_error import DISCOUNTED, EXACT, VARIANTS, Plan, Problem
from moac_studies.framework import Workspace

RING = {"num_states": 3, "num_actions": 2, "num_objectives": 2, "model_key": 0, "policy_key": 1, "discount": 0.5}
REWARDS = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]]


@pytest.fixture(scope="module")
def ring():
    return critic_error.random_ergodic(RING)


def certain():
    """Two states in turn: nothing is random, so TD follows its mean exactly whenever D is even."""
    P = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    model = FiniteMOMDP.from_dense(P, np.array([[[1.0, 0.0]], [[0.0, 2.0]]]), start=[1.0, 0.0])
    return Problem("certain", model, np.zeros((2, 1)), 0.5)


def test_without_noise_the_error_is_that_of_the_mean_dynamics():
    problem, plan = certain(), Plan(0.5, 4, 40, 8, 2, 0, from_zero=True)
    found = critic_error.errors(problem, plan, (DISCOUNTED, EXACT))
    for variant in (DISCOUNTED, EXACT):
        expected = critic_error.mean_dynamics(problem, variant, plan)[0]
        assert found[variant].shape == (2, 20, 2)
        np.testing.assert_allclose(found[variant][0], expected, rtol=1e-3, atol=1e-9)


def test_the_rate_of_the_mean_dynamics_leaves_constants_out():
    """A = (γ11ᵀ/3 − I)/3 has eigenvalues −(1 − γ)/3 for constants and −1/3 twice."""
    problem = critic_error.well_mixed({"rewards": REWARDS, "discount": 0.5})
    plan = Plan(0.3, 4, 8, 4, 1, 0, from_zero=True)
    for variant, eigenvalue in ((DISCOUNTED, -1 / 6), (EXACT, -1 / 3)):
        rate = critic_error.mean_dynamics(problem, variant, plan)[1]
        np.testing.assert_allclose(rate, -2 * math.log(1 + 0.3 * eigenvalue), rtol=1e-9)


def test_errors_start_at_zero_from_w_star_and_at_its_square_from_zero(ring):
    """One step of a tiny β changes nothing."""
    for from_zero in (False, True):
        found = critic_error.errors(ring, Plan(1e-6, 4, 1, 4, 2, 0, from_zero))
        for variant in VARIANTS:
            square = (ring.target(variant) ** 2).sum(axis=0) if from_zero else np.zeros(2)
            np.testing.assert_allclose(found[variant][:, 0], np.broadcast_to(square, (2, 2)), rtol=1e-3, atol=1e-9)


def test_trials_have_samples_of_their_own_and_seeds_decide_them(ring):
    plan = Plan(0.5, 8, 8, 16, 4, 3, from_zero=True)
    first, again = (critic_error.errors(ring, plan, (DISCOUNTED,)) for _ in range(2))
    other = critic_error.errors(ring, Plan(0.5, 8, 8, 16, 4, 4, from_zero=True), (DISCOUNTED,))
    np.testing.assert_array_equal(first[DISCOUNTED], again[DISCOUNTED])
    assert len(np.unique(first[DISCOUNTED][:, -1, 0])) == 4
    assert not np.intersect1d(first[DISCOUNTED], other[DISCOUNTED]).size


def test_a_number_of_trials_that_does_not_fill_its_groups_is_refused(ring):
    with pytest.raises(ValueError, match="`trials` must be"):
        critic_error.errors(ring, Plan(0.5, 8, 8, 16, 5, 0, from_zero=True))


def test_a_geometric_decay_is_found_and_its_floor_left_out():
    plan, noise = Plan(0.5, 8, 30, 8, 40, 0, from_zero=True), np.random.default_rng(0).normal(0, 0.001, (40, 30, 1))
    expected = np.exp(-0.3 * plan.checkpoints)[:, None]
    measured = expected + 0.01 * (1 + noise - noise.mean(axis=0))
    fit = critic_error.Decay(plan, measured, np.array([0.01]), expected, np.array([0.3])).fits[0]
    assert fit.rate.low <= 0.3 <= fit.rate.high
    assert fit.rate.value == pytest.approx(0.3, rel=1e-3)
    assert fit.agreement.value == pytest.approx(1, rel=1e-3)
    assert fit.straight.low > 0.999
    assert fit.orders.value == pytest.approx(np.log10(measured[:, 0].mean() / measured[:, 14].mean()), rel=1e-6)
    few = critic_error.Decay(plan, measured, np.array([1.0]), expected, np.array([0.3])).fits[0]
    assert np.isnan([few.rate.value, few.straight.low, few.orders.high]).all()


def test_the_bound_is_run_at_the_step_and_batch_it_asks_for(tmp_path):
    problem = critic_error.well_mixed({"rewards": REWARDS, "discount": 0.5})
    table = {"derivations": ["printed", "derived"], "num_steps": 40, "batches_per_walk": 4, "trials": 10}
    said: list[str] = []
    tested = critic_rate.under_its_conditions(problem, table, 0, Workspace(tmp_path, said.append))
    for t, beta, batch in zip(tested, (1 / 6, 1 / 30), (912, 4368), strict=True):
        assert t.guarantee.step_size == pytest.approx(beta)
        assert t.guarantee.batch_size == pytest.approx(batch, abs=1)
        assert t.bound_rate == pytest.approx(-math.log1p(-beta / 24))
        assert t.transient[0] == pytest.approx(3.5 * (1 - beta / 24) ** 4, rel=1e-6)
        assert t.kept.verdict == "holds"
        assert t.guarantee.orders.low > 4
    assert critic_rate.bound_is_near(tested).verdict == "does not hold"
    assert len(said) == 4
    critic_rate.under_its_conditions(problem, table, 0, Workspace(tmp_path, said.append))
    assert len(said) == 4, "what was measured is kept"


def test_what_the_theorem_asks_on_resource_gathering():
    problem = critic_error.resource_gathering({"discount": 0.9})
    sizes, values = np.array([8.0]), {v: np.ones((2, 1, 3)) for v in VARIANTS}
    measured = critic_error.Measured(problem, 0.5, critic_error.Floors(sizes, values, {}), {})
    asked = critic_rate.elsewhere(measured)
    assert [(g.setting, g.derivation) for g in asked] == [
        (setting, derivation) for setting in ("discounted", "average") for derivation in ("printed", "derived")
    ]
    assert min(g.batch_size for g in asked) > 3e8
    assert critic_rate.bound_applies(asked).verdict == "does not hold"
