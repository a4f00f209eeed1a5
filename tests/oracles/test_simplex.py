"""The min-norm solver against independent solutions, on the families where solvers differ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import simplex
from tests.helpers import asserts, samplers

SIZES = (1, 2, 3, 7, 20, 100)
D = 1000
"""One number of columns for most tests: a new shape is a new compilation, of seconds."""


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("family", samplers.FAMILIES)
def test_is_exact_on_the_nine_families(family, M):
    for seed in range(1 if M == 100 else 3):
        G = samplers.sample(family, M, seed, D)
        largest = np.linalg.norm(G, axis=1).max()
        best = asserts.squared_norm(asserts.reference_weights(G), G)
        for solution in (simplex.min_norm(G), simplex.min_norm_from_gram(G @ G.T)):
            asserts.assert_on_simplex(solution.weights)
            value = asserts.squared_norm(solution.weights, G)
            if np.sqrt(float(value)) <= 1e-14 * largest:
                continue  # Pareto-stationary: f* = 0, and no angle to measure
            assert float(value - best) <= 1e-12 * float(best)
            assert asserts.scaled_kkt(solution.weights, G) <= 1e-12
            assert solution.kkt_residual <= 1e-12


@pytest.mark.parametrize("M", (2, 3, 7, 20, 100))
def test_vanishes_where_stationary_by_construction(M):
    for seed in range(3):
        G = samplers.strongly_stationary(M, np.random.default_rng(seed), D)
        solution = simplex.min_norm(G)
        assert np.linalg.norm(solution.direction) <= 1e-14 * np.linalg.norm(G, axis=1).max()
        assert solution.kkt_residual <= 1e-12


@pytest.mark.parametrize("M", (2, 3, 7, 20))
def test_improves_every_objective_where_not_stationary(M):
    for seed in range(5):
        G = samplers.not_stationary(M, np.random.default_rng(seed), D)
        solution = simplex.min_norm(G)
        assert np.min(G @ solution.direction) >= solution.squared_norm * (1 - 1e-12) > 0


def test_two_rows_equal_the_closed_form():
    for seed in range(50):
        G = samplers.biased(2, np.random.default_rng(seed), D)
        a, b, c = G[0] @ G[0], G[0] @ G[1], G[1] @ G[1]
        first = np.clip((c - b) / (a + c - 2 * b), 0, 1)
        np.testing.assert_allclose(simplex.min_norm(G).weights, [first, 1 - first], atol=1e-13)


@pytest.mark.parametrize("M", (1, 2, 3, 7, 20))
def test_vertices_are_exact(M):
    G = np.arange(1.0, M + 1)[:, None] * np.ones(D)
    np.testing.assert_array_equal(simplex.min_norm(G).weights, np.eye(M)[0])
    np.testing.assert_array_equal(simplex.min_norm_from_gram(G @ G.T).weights, np.eye(M)[0])


@pytest.mark.parametrize("factor", (1e-100, 1e100))
def test_global_scaling_leaves_the_weights(factor):
    G = samplers.sample("biased", 7, 0, D)
    np.testing.assert_allclose(simplex.min_norm(G * factor).weights, simplex.min_norm(G).weights, rtol=0, atol=1e-14)


def test_a_large_batch_of_dependent_rows_equals_the_loop(x64):
    """In a batch of this size XLA's min drops the NaN of a Cholesky factor that failed."""
    G = jnp.asarray(np.random.default_rng(7).normal(size=(1024, 9, 4)))
    batch, loop = simplex.min_norm(G), jax.jit(lambda G: jax.lax.map(simplex.min_norm, G))(G)
    np.testing.assert_allclose(batch.squared_norm, loop.squared_norm, rtol=0, atol=1e-13)
    assert asserts.violation(batch.weights, G).max() <= 1e-13


@pytest.mark.parametrize("M", (7, 12))
def test_is_exact_where_many_indices_leave_again(M):
    """Rows of few dimensions and unlike lengths: several indices block at once, each after another part of the step."""
    generator = np.random.default_rng(M)
    G = (generator.normal(size=(1024, 1, 4)) + generator.normal(size=(1024, M, 4))) * generator.uniform(
        0.1, 10, (1024, M, 1)
    )
    assert asserts.violation(simplex.min_norm(G).weights, G).max() <= 1e-13


def test_batch_equals_loop():
    G = np.stack([samplers.sample("gauss" if k % 2 else "biased", 5, k, d=30) for k in range(12)]).reshape(3, 4, 5, 30)
    batch = simplex.min_norm(G)
    assert batch.direction.shape == (3, 4, 30)
    for index in np.ndindex(3, 4):
        np.testing.assert_allclose(batch.weights[index], simplex.min_norm(G[index]).weights, rtol=0, atol=1e-15)


@pytest.mark.parametrize("family", [f for f in samplers.FAMILIES if f != "scales"])
def test_single_precision_and_a_noisy_gram_matrix(family):
    for M, seed in np.ndindex(21, 5):
        if M not in (1, 2, 3, 7, 20):
            continue
        G = samplers.sample(family, M, seed, D)
        noise = np.random.default_rng(seed).standard_normal((M, M))
        norm = np.linalg.norm(G, axis=1)
        K = (G @ G.T + 1e-6 * (noise + noise.T) / 2 * np.outer(norm, norm)).astype(np.float32)
        solution = simplex.min_norm_from_gram(jnp.asarray(K))
        assert solution.weights.dtype == jnp.float32
        lam = np.asarray(solution.weights, np.float64)
        asserts.assert_on_simplex(lam, 1e-6)
        excess = asserts.squared_norm(lam / lam.sum(), G) - asserts.squared_norm(simplex.min_norm(G).weights, G)
        assert float(excess) <= 1e-5 * max(norm.max() ** 2, 1e-300)


def test_runs_under_jit_vmap_and_scan():
    G = jnp.asarray(samplers.sample("gauss", 3, 0, d=10), jnp.float32)
    direct = simplex.min_norm(G).weights
    np.testing.assert_allclose(jax.jit(simplex.min_norm)(G).weights, direct, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(simplex.min_norm)(G[None]).weights[0], direct, rtol=1e-6)
    _, scanned = jax.lax.scan(lambda carry, g: (carry, simplex.min_norm(g).weights), 0, G[None])
    np.testing.assert_allclose(scanned[0], direct, rtol=1e-6)


@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_reports_what_is_not_finite(bad):
    G = np.ones((3, 4))
    G[1, 2] = bad
    with pytest.raises(ValueError, match=r"`G` must be finite, got -?(nan|inf) at index \(1, 2\)"):
        simplex.min_norm(G)
    with pytest.raises(ValueError, match="`K` must be finite"):
        simplex.min_norm_from_gram(np.diag([1.0, bad]))
    assert np.isnan(simplex.min_norm(jnp.asarray(G)).weights).all()
    batch = simplex.min_norm(jnp.stack([jnp.asarray(G), jnp.ones((3, 4))])).weights
    assert np.isnan(batch[0]).all()
    assert np.isfinite(batch[1]).all()


@pytest.mark.parametrize("where", (0, 4, 8))
def test_what_is_not_finite_is_reported_in_a_large_batch_too(where):
    G = np.ones((1024, 9, 4), np.float32)
    G[::3, where, 1] = np.nan
    bad = np.arange(1024) % 3 == 0
    for weights in (simplex.min_norm(jnp.asarray(G)).weights, jax.vmap(simplex.projection)(jnp.asarray(G[..., 1]))):
        np.testing.assert_array_equal(np.isnan(weights), bad[:, None] & np.ones(9, bool))


def test_no_failure_looks_like_a_vertex():
    C, norm = jnp.eye(3), jnp.ones(3)
    assert np.isfinite(simplex._weights(C, norm, lambda x: C @ x)).all()
    assert np.isnan(simplex._weights(C, norm, lambda x: jnp.nan * x)).all()


@pytest.mark.parametrize("factor", (1e-25, 1e25))
def test_squares_that_leave_the_dtypes_range_do_no_harm(factor):
    G = np.stack([samplers.strongly_stationary(3, np.random.default_rng(seed), 4) for seed in range(32)])
    weights = simplex.min_norm(jnp.asarray(factor * G, jnp.float32)).weights
    assert asserts.violation(np.asarray(weights, np.float64), G).max() <= 1e-6


def test_never_raises_on_zero():
    solution = simplex.min_norm(np.zeros((3, 4)))
    asserts.assert_on_simplex(solution.weights)
    assert solution.squared_norm == solution.kkt_residual == 0


def test_the_kkt_residual_of_weights_that_are_not_optimal_is_their_steepest_descent(x64):
    G = samplers.sample("biased", 5, 0, d=8)
    norm = np.linalg.norm(G, axis=1)
    for lam in np.random.default_rng(0).dirichlet(np.ones(5), 4):
        d = lam @ G
        given = (jnp.asarray(x) for x in (lam, d, np.linalg.norm(d), norm, G @ d / norm))
        residual = asserts.scaled_kkt(lam, G)
        assert residual > 0.01
        assert simplex._solution(*given).kkt_residual == pytest.approx(residual, rel=1e-12)


def test_the_kkt_residual_of_a_direction_too_short_for_an_angle_is_its_share_of_the_rows():
    solution = simplex.min_norm([[2.0, 1e-15], [-2.0, 1e-15]])
    np.testing.assert_array_equal(solution.weights, [0.5, 0.5])
    assert solution.kkt_residual == pytest.approx(0.25e-30)


@pytest.mark.parametrize("bad", (np.ones(3), np.ones((0, 3))))
def test_refuses_a_wrong_shape(bad):
    with pytest.raises(ValueError, match="`G` must have two axes"):
        simplex.min_norm(bad)


def test_refuses_a_gram_matrix_that_is_not_square():
    with pytest.raises(ValueError, match="`K` must be square"):
        simplex.min_norm_from_gram(np.ones((2, 3)))
