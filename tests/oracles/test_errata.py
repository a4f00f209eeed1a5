"""The numbers of docs/errata.md, computed again."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.linalg import hadamard

import moac
from moac import momdp, theory
from moac.theory.bounds import actor_terms
from tests.helpers import reference


def _uniform_three_states():
    P = np.full((3, 2, 3), 1 / 3)
    return momdp.FiniteMOMDP.from_dense(P, np.random.default_rng(0).random((3, 2, 2)))


@cache
def _gathering():
    """The constants of the uniform policy of resource gathering."""
    return theory.constants(momdp.library.resource_gathering(), np.zeros((93, 4)), moac.Discounted(0.9))


def test_a_sum_from_one_changes_the_weights_of_unequal_discounts():
    gammas = np.array([0.5, 0.95])
    model = momdp.library.random_ergodic(3, 5, 3, 2)
    logits = np.random.default_rng(0).standard_normal((5, 3))
    G = momdp.evaluate(model, logits, moac.Discounted(tuple(gammas))).gradient.reshape(2, -1)
    from_zero, from_one = reference.min_norm(G), reference.min_norm(G * gammas[:, None])
    assert from_zero[1] == pytest.approx(0.0172, abs=1e-4)
    assert from_one[1] == pytest.approx(0.0032, abs=1e-4)


def test_the_transposed_matrix_is_not_the_fixed_point_of_td():
    model = momdp.library.random_ergodic(3, 5, 3, 2)
    logits = np.random.default_rng(0).standard_normal((5, 3))
    Phi = np.random.default_rng(1).standard_normal((5, 3))
    ground = theory.ground(model, logits, moac.Discounted(0.9), Phi / np.linalg.norm(Phi, axis=1).max())
    printed = np.stack([-np.linalg.solve(A.T, b) for A, b in zip(ground.A, ground.b, strict=True)])
    drift = np.einsum("mde,me->md", ground.A, printed) + ground.b
    assert np.linalg.norm(printed - ground.w_star) / np.linalg.norm(ground.w_star) == pytest.approx(0.49, abs=0.01)
    assert np.linalg.norm(drift, axis=1).max() == pytest.approx(0.0388, abs=1e-3)
    assert np.abs(np.einsum("mde,me->md", ground.A, ground.w_star) + ground.b).max() < 1e-14


def test_constants_of_a_sample_and_of_its_mean():
    three = theory.constants(_uniform_three_states(), np.zeros((3, 2)), moac.Discounted(0.5))
    printed, derived = (theory.critic_terms(three, kind) for kind in theory.DERIVATIONS)
    assert three.lambda_A == pytest.approx(1 / 3)
    assert (printed.largest_beta, derived.largest_beta) == pytest.approx((1 / 6, 1 / 30))
    assert math.ceil(printed.smallest_batch(printed.largest_beta) - 1e-6) == 912
    assert math.ceil(derived.smallest_batch(derived.largest_beta) - 1e-6) == 4368
    assert (_gathering().C_A_mean, _gathering().C_A) == pytest.approx((0.137, 1.345), abs=1e-3)


def test_the_dropped_factor_is_five():
    alpha, L_J = 1 / 3, 1.0
    assert (alpha + 2 * alpha**2 * L_J) / (alpha - 2 * alpha**2 * L_J) == pytest.approx(5)
    c = theory.constants(_uniform_three_states(), np.zeros((3, 2)), moac.Discounted(0.5))
    ratio = actor_terms(c, "derived").critic / actor_terms(c, "printed").critic
    assert ratio == pytest.approx(5 * c.num_objectives * c.C_psi_bound**2)


def test_the_score_of_a_table_is_longer_than_one():
    c = theory.constants(_uniform_three_states(), np.tile([0.0, 8.0], (3, 1)), moac.Discounted(0.5))
    assert c.C_psi == pytest.approx(math.sqrt(2), abs=1e-3)
    assert c.C_psi <= c.C_psi_bound


def test_samples_are_correlated_where_states_are_independent():
    """ρ = 0: the printed factor 1 − ρ + 4κρ would be that of independent samples."""
    rng = np.random.default_rng(52)
    tilt = rng.uniform(-1, 1, (3, 3))
    tilt -= tilt.mean(axis=1, keepdims=True)
    tilt *= 0.333 / np.abs(tilt).max(axis=1, keepdims=True)
    model = momdp.FiniteMOMDP.from_dense(np.stack([1 / 3 + tilt, 1 / 3 - tilt], axis=1), rng.random((3, 2, 1)))
    ground = theory.ground(model, np.zeros((3, 2)), moac.Discounted(0.9))
    assert theory.mixing.certified(ground.P, ground.stationary).rho < 1e-10
    variance, covariance = _of_neighbours(ground)
    assert 2 * covariance / variance == pytest.approx(0.30, abs=0.01)


def _of_neighbours(ground):
    """Variance of δψ and covariance of two consecutive ones, by enumeration."""
    model, V = ground.model, ground.Phi @ ground.w_star[0]
    S, A = ground.policy.shape
    x, p, where = [], [], []
    for s, a, o in np.ndindex(model.probability.shape):
        chance = ground.stationary[s] * ground.policy[s, a] * model.probability[s, a, o]
        successor = model.next_state[s, a, o]
        psi = np.zeros((S, A))
        psi[s] = -ground.policy[s]
        psi[s, a] += 1
        x.append((model.reward[s, a, o, 0] + ground.gammas[0] * V[successor] - V[s]) * psi.ravel())
        p.append(chance)
        where.append((s, successor))
    x, p = np.array(x), np.array(p)
    x -= p @ x
    ahead = np.zeros((S, S * A))
    for k, (s, _) in enumerate(where):
        ahead[s] += p[k] / ground.stationary[s] * x[k]
    covariance = sum(p[k] * x[k] @ ahead[successor] for k, (_, successor) in enumerate(where))
    return p @ (x**2).sum(axis=1), covariance


def test_the_corollaries_do_not_sum_to_epsilon():
    c = _gathering()
    assert theory.corollaries(c, 0.01).bound / 0.01 == pytest.approx(3.56, abs=0.01)
    assert theory.plan(c, 0.01).bound <= 0.01


def test_the_largest_error_grows_with_the_number_of_objectives():
    """E maxᵢ‖gⁱ − ∇Jⁱ‖² against maxᵢ E‖gⁱ − ∇Jⁱ‖² on the bandit of the actor study, B = 8."""
    signs, rng = hadamard(64)[1:33].astype(float), np.random.default_rng(0)
    action, outcome = rng.integers(0, 2, (20_000, 8)), rng.integers(0, 64, (20_000, 8))
    psi = np.where(action[..., None] == np.arange(2), 0.5, -0.5)
    delta = np.array([0.1, -0.1])[action] + 0.4 * signs[:, outcome]
    error = ((np.einsum("ikb,kbj->kij", delta, psi) / 8 - np.array([0.05, -0.05])) ** 2).sum(axis=2)
    ratio = [error[:, :M].max(axis=1).mean() / error[:, :M].mean(axis=0).max() for M in (2, 4, 8, 16, 32)]
    assert ratio == pytest.approx([1.6, 2.35, 3.18, 4.05, 4.9], abs=0.05)
