"""The min-norm solver against independent solutions, on the families where solvers differ."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import simplex
from tests.helpers import asserts, reference, samplers

SIZES = (2, 3, 9, pytest.param(20, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.slow))
"""Two of the unrolled solver and one of LAPACK's; one objective: `test_vertices_are_exact`."""
D = 1000
"""One number of columns, and batches of 32, for most tests: a new shape is a new compilation, of seconds."""


def filled(matrices):
    """32 matrices, so that few programs serve all tests; they are solved together and answered apart."""
    matrices = [np.asarray(G) for G in matrices]
    return np.stack(matrices + matrices[:1] * (32 - len(matrices)))


def solved(matrices):
    found = simplex.min_norm(filled(matrices))
    return [jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(matrices))]


def solved_from_gram(matrices):
    found = simplex.min_norm_from_gram(filled([G @ G.T for G in matrices]))
    return [jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(matrices))]


def assert_exact(G, solution):
    asserts.assert_on_simplex(solution.weights)
    value, best = (asserts.squared_norm(lam, G) for lam in (solution.weights, asserts.reference_weights(G)))
    if np.sqrt(float(value)) <= 1e-14 * np.linalg.norm(G, axis=1).max():
        return  # Pareto-stationary: f* = 0, and no angle to measure
    assert float(value - best) <= 1e-12 * float(best)
    assert asserts.scaled_kkt(solution.weights, G) <= 1e-12
    assert solution.kkt_residual <= 1e-12


@pytest.mark.parametrize("M", SIZES)
def test_is_exact_on_the_nine_families(M):
    seeds = range(1 if M == 100 else 3)
    rows = [samplers.sample(family, M, seed, D) for family in samplers.FAMILIES for seed in seeds]
    for solve in (solved, solved_from_gram) if M in (3, 100) else (solved,):
        for G, solution in zip(rows, solve(rows), strict=True):
            assert_exact(G, solution)


@pytest.mark.parametrize("M", SIZES)
def test_vanishes_where_stationary_by_construction(M):
    rows = [samplers.strongly_stationary(M, np.random.default_rng(seed), D) for seed in range(3)]
    for G, solution in zip(rows, solved(rows), strict=True):
        assert np.linalg.norm(solution.direction) <= 1e-14 * np.linalg.norm(G, axis=1).max()
        assert solution.kkt_residual <= 1e-12


@pytest.mark.parametrize("M", SIZES)
def test_improves_every_objective_where_not_stationary(M):
    rows = [samplers.not_stationary(M, np.random.default_rng(seed), D) for seed in range(5)]
    for G, solution in zip(rows, solved(rows), strict=True):
        assert np.min(G @ solution.direction) >= solution.squared_norm * (1 - 1e-12) > 0


def test_two_rows_equal_the_closed_form():
    rows = [samplers.biased(2, np.random.default_rng(seed), D) for seed in range(32)]
    for G, solution in zip(rows, solved(rows), strict=True):
        a, b, c = G[0] @ G[0], G[0] @ G[1], G[1] @ G[1]
        first = np.clip((c - b) / (a + c - 2 * b), 0, 1)
        np.testing.assert_allclose(solution.weights, [first, 1 - first], atol=1e-13)


@pytest.mark.parametrize("M", (1, 2, 3, 9))
def test_vertices_are_exact(M):
    G = np.arange(1.0, M + 1)[:, None] * np.ones(D)
    solve = solved_from_gram if M == 1 else solved
    np.testing.assert_array_equal(solve([G])[0].weights, np.eye(M)[0])


def test_global_scaling_leaves_the_weights():
    G = samplers.sample("biased", 9, 0, D)
    one, *scaled = solved([G, 1e-100 * G, 1e100 * G])
    for solution in scaled:
        np.testing.assert_allclose(solution.weights, one.weights, rtol=0, atol=1e-14)


def test_leading_axes_are_kept():
    """That a batch is the loop over it: tests/oracles/test_batches.py."""
    G = np.stack([samplers.sample("gauss" if k % 2 else "biased", 2, k, D) for k in range(32)])
    flat, shaped = simplex.min_norm(G), simplex.min_norm(G.reshape(4, 8, 2, D))
    np.testing.assert_array_equal(shaped.weights, flat.weights.reshape(4, 8, 2))
    np.testing.assert_array_equal(shaped.direction, flat.direction.reshape(4, 8, D))
    assert shaped.kkt_residual.shape == (4, 8)


def test_a_large_batch_of_dependent_rows_is_exact():
    """In a batch of this size XLA's min drops the NaN of a Cholesky factor that failed."""
    G = np.random.default_rng(7).normal(size=(1024, 9, 4))
    batch = simplex.min_norm(G)
    assert asserts.violation(batch.weights, G).max() <= 1e-13
    lengths = np.sum(np.einsum("km,kmp->kp", batch.weights, G) ** 2, axis=1)
    np.testing.assert_allclose(batch.squared_norm, lengths, rtol=0, atol=1e-13)


@pytest.mark.slow  # which runs programs as users have them: the rounding of others hides it
def test_a_support_that_is_singular_but_for_rounding_is_not_refined_away():
    """32 rows of 16 dimensions with 0 inside their hull, in single precision: 18 of them make up the solution."""
    G = np.pad(samplers.sample("gauss", 32, 6894, 16), ((0, 0), (0, 48))).astype(np.float32)
    weights = np.asarray(jax.jit(lambda G: simplex.min_norm(G).weights)(jnp.asarray(G)), np.float64)
    terms = float(weights @ np.linalg.norm(G, axis=1))
    assert simplex.min_norm(G.astype(np.float64)).squared_norm <= 1e-28
    assert np.linalg.norm(weights @ G.astype(np.float64)) <= np.sqrt(np.finfo(np.float32).eps) * terms


@pytest.mark.parametrize("M", (pytest.param(7, marks=pytest.mark.slow), 9))
def test_is_exact_where_many_indices_leave_again(M):
    """Rows of few dimensions and unlike lengths: several indices block at once, each after another part of the step."""
    generator = np.random.default_rng(M)
    G = (generator.normal(size=(1024, 1, 4)) + generator.normal(size=(1024, M, 4))) * generator.uniform(
        0.1, 10, (1024, M, 1)
    )
    assert asserts.violation(simplex.min_norm(G).weights, G).max() <= 1e-13


@pytest.mark.parametrize("M", (3, 9))
def test_single_precision_and_a_noisy_gram_matrix(M):
    cases = [(family, seed) for family in samplers.FAMILIES if family != "scales" for seed in range(4)]
    rows = [samplers.sample(family, M, seed, D) for family, seed in cases]
    norms = np.linalg.norm(rows, axis=2)
    noise = np.random.default_rng(M).standard_normal((len(rows), M, M))
    error = 1e-6 * (noise + noise.transpose(0, 2, 1)) / 2 * norms[:, :, None] * norms[:, None]
    K = np.stack([G @ G.T for G in rows]) + error
    solution = simplex.min_norm_from_gram(jnp.asarray(K, jnp.float32))
    assert solution.weights.dtype == jnp.float32
    for G, lam, norm, exact in zip(rows, np.asarray(solution.weights, np.float64), norms, solved(rows), strict=True):
        asserts.assert_on_simplex(lam, 1e-6)
        excess = asserts.squared_norm(lam / lam.sum(), G) - asserts.squared_norm(exact.weights, G)
        assert float(excess) <= 1e-5 * max(norm.max() ** 2, 1e-300)


def test_runs_under_jit_vmap_and_scan():
    G = jnp.asarray(samplers.sample("gauss", 2, 0, d=10), jnp.float32)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def together(G):
        _, scanned = jax.lax.scan(lambda carry, g: (carry, simplex.min_norm(g).weights), 0, G[None])
        return jax.vmap(simplex.min_norm)(G[None]).weights[0], scanned[0]

    for weights in together(G):
        np.testing.assert_allclose(weights, reference.min_norm(np.asarray(G, np.float64)), rtol=1e-5)


def test_reports_what_is_not_finite():
    G = np.ones((32, 3, 4))
    for k, bad in enumerate((np.nan, np.inf, -np.inf)):
        G[k, 1, 2] = bad
        with pytest.raises(
            ValueError, match=r"`G` must be finite and within ±1e\+150, got -?(nan|inf) at index \(1, 2\)"
        ):
            simplex.min_norm(G[k])
        with pytest.raises(ValueError, match="`K` must be finite"):
            simplex.min_norm_from_gram(np.diag([1.0, bad]))
    weights = simplex.min_norm(jnp.asarray(G, jnp.float32)).weights
    assert np.isnan(weights[:3]).all()
    assert np.isfinite(weights[3:]).all()


@pytest.mark.parametrize("where", (0, 4, 8))
def test_what_is_not_finite_is_reported_in_a_large_batch_too(where, x64):
    G = np.ones((1024, 9, 4))
    G[::3, where, 1] = np.nan
    bad = np.arange(1024) % 3 == 0
    single = jnp.asarray(G[..., 1], jnp.float32)
    for weights in (simplex.min_norm(jnp.asarray(G)).weights, jax.vmap(simplex.projection)(single)):
        np.testing.assert_array_equal(np.isnan(weights), bad[:, None] & np.ones(9, bool))


def test_no_failure_looks_like_a_vertex():
    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def weights(C, factor):
        return simplex._weights(C, jnp.ones(2), lambda x: factor * (C @ x))

    assert np.isfinite(weights(jnp.eye(2), 1.0)).all()
    assert np.isnan(weights(jnp.eye(2), jnp.nan)).all()


@pytest.mark.parametrize("factor", (1e-25, 1e25))
def test_squares_that_leave_the_dtypes_range_do_no_harm(factor):
    G = np.stack([samplers.strongly_stationary(3, np.random.default_rng(seed), 4) for seed in range(32)])
    weights = simplex.min_norm(jnp.asarray(factor * G, jnp.float32)).weights
    assert asserts.violation(np.asarray(weights, np.float64), G).max() <= 1e-6


def test_never_raises_on_zero():
    solution = solved([np.zeros((3, D))])[0]
    asserts.assert_on_simplex(solution.weights)
    assert solution.squared_norm == solution.kkt_residual == 0


def test_the_kkt_residual_of_weights_that_are_not_optimal_is_their_steepest_descent(x64):
    G = samplers.sample("biased", 5, 0, d=8)
    norm = np.linalg.norm(G, axis=1)
    measure = jax.jit(simplex._solution)
    for lam in np.random.default_rng(0).dirichlet(np.ones(5), 4):
        d = lam @ G
        residual = asserts.scaled_kkt(lam, G)
        assert residual > 0.01
        found = measure(lam, d, np.linalg.norm(d), norm, G @ d / norm).kkt_residual
        assert found == pytest.approx(residual, rel=1e-12)


def test_the_kkt_residual_of_a_direction_too_short_for_an_angle_is_its_share_of_the_rows():
    G = np.zeros((2, D))
    G[:, :2] = [[2.0, 1e-15], [-2.0, 1e-15]]
    solution = solved([G])[0]
    np.testing.assert_array_equal(solution.weights, [0.5, 0.5])
    assert solution.kkt_residual == pytest.approx(0.25e-30)


@pytest.mark.parametrize("bad", (np.ones(3), np.ones((0, 3))))
def test_refuses_a_wrong_shape(bad):
    with pytest.raises(ValueError, match="`G` must have two axes"):
        simplex.min_norm(bad)


def test_refuses_what_has_squares_beyond_double_precision():
    with pytest.raises(ValueError, match=r"`G` .* within ±1e\+150, got 1.5e\+308 at index \(1, 1\)"):
        simplex.min_norm(np.diag([1e150, 1.5e308]))
    largest = np.diag([1e150, -1e150])
    for solution in (simplex.min_norm(largest), simplex.min_norm_from_gram(largest @ largest)):
        np.testing.assert_allclose(solution.weights, 0.5, rtol=1e-15)
        assert np.isfinite(solution.squared_norm) and solution.kkt_residual < 1e-15


def test_refuses_a_gram_matrix_that_is_not_symmetric():
    with pytest.raises(ValueError, match="`K` must be symmetric"):
        simplex.min_norm_from_gram([[1.0, 5.0], [0.0, 1.0]])


def test_refuses_a_gram_matrix_that_is_not_square():
    with pytest.raises(ValueError, match="`K` must be square"):
        simplex.min_norm_from_gram(np.ones((2, 3)))
