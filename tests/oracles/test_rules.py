"""Each rule against its definition: closed forms, independent solvers, recorded values of TorchJD."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from moac import simplex, weighting
from tests.helpers import reference

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "torchjd_rules.json").read_text())
GRADIENTS = [np.array(case["gradients"]) for case in RECORDED["one_batch"]]
THREE = [G for G in GRADIENTS if len(G) == 3]


@pytest.fixture(autouse=True)
def double(x64):
    """All in double precision."""


def compiled(function):
    """Compiled as a whole, and quickly."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


on_capped_simplex = compiled(simplex.on_capped_simplex)


def weights(rule, gradients, t=1):
    """λ of each of several matrices of gradients of one shape, by one program."""
    K = jnp.asarray(np.stack([G @ G.T for G in gradients]))
    state = rule.init(K.shape[1])
    return np.asarray(compiled(jax.vmap(lambda K: rule.update(state, K, t)[1]))(K))


def least_linear(slopes, cap):
    """min over Σλ = 1, 0 ≤ λ ≤ cap of λᵀslopes: the smallest first."""
    value, left = 0.0, 1.0
    for slope in np.sort(slopes):
        share = min(cap, left)
        value, left = value + share * slope, left - share
    return value


@pytest.mark.parametrize("cap", [0.34, 0.5, 1.0])
def test_the_capped_programme_satisfies_its_variational_inequality(cap):
    generator = np.random.default_rng(3)
    for rank in (1, 2, 3, 5):
        G, b = generator.normal(size=(3, rank)) * [[0.01], [1], [10]], generator.normal(size=3)
        for A, c in ((G @ G.T, b), (G @ G.T, 0 * b), (0 * G @ G.T, b)):
            lam = np.asarray(on_capped_simplex(jnp.asarray(A), jnp.asarray(c), cap))
            slopes = A @ lam - c
            assert lam.min() >= 0 and lam.max() <= cap + 1e-12 and abs(lam.sum() - 1) <= 1e-12
            assert lam @ slopes - least_linear(slopes, cap) <= 1e-12 * (np.abs(A).max() + np.abs(c).max())


def test_the_projection_is_that_of_a_solver():
    for x in np.random.default_rng(1).normal(size=(6, 3)):
        expected = on_capped_simplex(jnp.eye(3), jnp.asarray(x), 1.0)
        np.testing.assert_allclose(simplex.projection(jnp.asarray(x)), expected, atol=1e-12)


def test_capped_without_a_cap_is_min_norm_and_with_it_the_worst_rise_together():
    for G in THREE:
        uncapped = on_capped_simplex(jnp.asarray(G @ G.T), jnp.zeros(3), 1.0)
        np.testing.assert_allclose(uncapped, reference.min_norm(G), atol=1e-10)
    gradients = [*THREE, np.diag([1.0, 9, 9])]
    found = weights(weighting.capped(0.5), gradients)
    for G, lam in zip(gradients, found, strict=True):
        d = lam @ G
        assert np.sort(G @ d)[:2].mean() >= d @ d * (1 - 1e-10)
    np.testing.assert_allclose(found[-1], [0.5, 0.25, 0.25], atol=1e-12)


def test_cagrad_is_the_best_of_its_ball():
    for G, lam in zip(THREE, weights(weighting.cagrad(0.4), THREE), strict=True):
        d, mean = lam @ G, G.mean(axis=0)
        radius = 0.4 * np.linalg.norm(mean)
        ball = {"type": "ineq", "fun": lambda d, mean=mean, r=radius: r**2 - np.sum((d[1:] - mean) ** 2)}
        rising = {"type": "ineq", "fun": lambda d, G=G: G @ d[1:] - d[0]}
        best = minimize(
            lambda d: -d[0], np.r_[0, mean], constraints=[ball, rising], method="SLSQP", options={"ftol": 1e-12}
        )
        assert np.linalg.norm(d - mean) <= radius * (1 + 1e-9)
        assert (G @ d).min() >= -best.fun - 1e-6


def test_pcgrad_projects_in_some_order():
    def projected(K, orders):
        total = np.zeros(len(K))
        for i, order in enumerate(orders):
            v = np.eye(len(K))[i]
            for j in order:
                if j != i:
                    v[j] -= min(K[j] @ v, 0) / K[j, j]
            total += v
        return total

    G = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.7, -0.6]])
    orders = itertools.product(itertools.permutations(range(3)), repeat=3)
    possible = np.stack([projected(G @ G.T, each) for each in orders])
    update = compiled(jax.vmap(lambda t: weighting.pcgrad().update((), jnp.asarray(G @ G.T), t)[1]))
    found = np.asarray(update(jnp.arange(1, 9)))
    distance = np.abs(found[:, None] - possible).max(axis=2).min(axis=1)
    assert distance.max() <= 1e-12
    assert np.ptp(found, axis=0).max() > 1e-3  # the order is drawn anew


def test_imtl_g_has_equal_projections():
    for G, lam in zip(THREE, weights(weighting.imtl_g(), THREE), strict=True):
        slopes = G @ (lam @ G) / np.linalg.norm(G, axis=1)
        np.testing.assert_allclose(slopes, slopes[0], rtol=1e-8)


def test_upgrad_is_the_mean_of_projections_on_the_dual_cone():
    for G, lam in zip(THREE, weights(weighting.upgrad(), THREE), strict=True):
        projections = [g + nnls(G.T, -g)[0] @ G for g in G]
        np.testing.assert_allclose(lam @ G, np.mean(projections, axis=0), atol=1e-10)


@pytest.mark.parametrize("alpha", [pytest.param(0.5, marks=pytest.mark.slow), 3.0])
def test_fairgrad_solves_its_equation(alpha):
    for G, lam in zip(THREE, weights(weighting.fairgrad(alpha), THREE), strict=True):
        np.testing.assert_allclose(G @ G.T @ lam, lam ** (-1 / alpha), rtol=1e-9)


def test_nash_mtl_solves_its_equation_and_cuts_its_direction():
    """K λ = 1/λ has ‖d‖ = √M: 5 leaves it as it is; cut to 0.7, λᵢ(Kλ)ᵢ are still equal."""
    found = (weights(weighting.nash_mtl(longest), THREE) for longest in (5.0, 0.7))
    for G, lam, cut in zip(THREE, *found, strict=True):
        np.testing.assert_allclose(G @ G.T @ lam, 1 / lam, rtol=1e-9)
        np.testing.assert_allclose(cut * (G @ G.T @ cut), 0.7**2 / 3, rtol=1e-9)


def test_chebyshev_takes_the_best_proximal_step():
    """(2/u) Σ pᵢλᵢgⁱ maximises min_i (pᵢgⁱᵀd − cᵢ) − (u/4)‖d‖²."""
    p, u, z, J = np.array([0.2, 0.3, 0.5]), 0.8, np.array([1.0, 2.0, 0.5]), np.array([0.1, 0.2, 0.3])
    rule = weighting.chebyshev(p, u, z)
    state, rewards = rule.init(3), jnp.zeros((2, 3))
    update = compiled(lambda K: rule.update(state, weighting.Seen(K, level=jnp.asarray(J), rewards=rewards), 1)[1])
    for G in THREE:
        lam = np.asarray(update(jnp.asarray(G @ G.T))) / p
        d = 2 / u * (p * lam / lam.sum()) @ G

        def negative(d, G=G):
            return u / 4 * d[1:] @ d[1:] - d[0]

        above = {"type": "ineq", "fun": lambda d, G=G: p * (G @ d[1:]) - p * (z - J) - d[0]}
        best = minimize(negative, np.zeros(1 + G.shape[1]), constraints=[above], options={"ftol": 1e-14})
        assert (p * (G @ d) - p * (z - J)).min() - u / 4 * d @ d >= -best.fun - 1e-6


def test_chebyshev_learns_the_ideal_from_rewards_and_takes_a_trials_preference():
    rule = weighting.chebyshev()
    state = rule.init(2, jnp.array([0.25, 0.75]))
    for rewards in ([[-3.0, 1.0], [-2.0, 0.0]], [[-5.0, 4.0], [-9.0, 0.0]]):
        seen = weighting.Seen(1e-9 * jnp.eye(2), level=jnp.array([-4.0, 1.0]), rewards=jnp.array(rewards))
        state, lam = compiled(rule.update)(state, seen, 1)
    np.testing.assert_allclose(state[0], [0.25, 0.75])
    np.testing.assert_allclose(state[2], [-2.0, 4.0])
    np.testing.assert_allclose(lam, [0, 1], atol=1e-6)  # gaps 0.25·2 and 0.75·3


TOLERANCES = {
    "cagrad": (weighting.cagrad(0.4), 1e-3),  # an interior-point method
    "pcgrad": (weighting.pcgrad(), 1e-12),
    "imtl_g": (weighting.imtl_g(), 1e-10),
    "upgrad": (weighting.upgrad(), 2e-2),  # regularised by 1e-4
    "upgrad, without a ridge": (weighting.upgrad(), 1e-9),
    "fairgrad": (weighting.fairgrad(1.0), 1e-3),  # least squares
    "fairgrad:2": (weighting.fairgrad(2.0), 1e-3),
    "nash_mtl": (weighting.nash_mtl(), 1e-6),
    "nash_mtl, uncut": (weighting.nash_mtl(0), 1e-6),
}


def is_solved(case):
    """Whether TorchJD's Nash weights solve Kλ = 1/λ: in one case of ten its solver fails and gives its first guess."""
    G, lam = np.array(case["gradients"]), np.array(case["weights"]["nash_mtl, uncut"])
    return np.abs(lam * (G @ G.T @ lam) - 1).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("M", [2, 3, 5])
@pytest.mark.parametrize("name", TOLERANCES)
def test_agrees_with_torchjd(name, M):
    rule, tolerance = TOLERANCES[name]
    cases = [case for case, G in zip(RECORDED["one_batch"], GRADIENTS, strict=True) if len(G) == M]
    cases = [case for case in cases if not name.startswith("nash") or is_solved(case)]
    expected = [case["weights"][name] for case in cases]
    found = weights(rule, [np.array(case["gradients"]) for case in cases])
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_torchjd_fails_in_one_case():
    assert sum(not is_solved(case) for case in RECORDED["one_batch"]) == 1


@pytest.mark.parametrize(("name", "rule"), [("modo", weighting.modo()), ("sdmgrad", weighting.sdmgrad())])
def test_two_batches_agree_with_torchjd(name, rule):
    update = compiled(rule.update)
    for case in RECORDED["two_batches"][1:2]:
        state = rule.init(len(case["products"][0]))
        for t, (K, expected) in enumerate(zip(case["products"], case["weights"][name], strict=True), start=1):
            state, lam = update(state, weighting.Seen(jnp.asarray(K), jnp.asarray(K)), t)
            np.testing.assert_allclose(lam, expected, atol=1e-6)
