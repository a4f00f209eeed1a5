"""The active sets against the optimality conditions of their programmes, where many steps are needed."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

from moac import simplex

quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
non_negative = jax.jit(jax.vmap(simplex.non_negative, in_axes=(None, 0)))
on_capped_simplex = jax.jit(jax.vmap(simplex.on_capped_simplex, in_axes=(0, 0, None)))


@pytest.fixture(autouse=True)
def double(x64):
    """All in double precision."""


def overlapping(width, M=20):
    """M bumps of one width, as vectors of length one: the wider, the nearer to dependent."""
    at = np.linspace(0, 1, 2 * M)
    rows = np.exp(-(((at - np.linspace(0, 1, M)[:, None]) / width) ** 2))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def least_linear(slopes, cap):
    """min over Σλ = 1, 0 ≤ λ ≤ cap of λᵀslopes, of each row: the smallest first."""
    share = np.clip(1 - cap * np.arange(slopes.shape[1]), 0, cap)
    return np.sort(slopes, axis=1) @ share


@pytest.mark.parametrize("width", (0.1, 0.2))
def test_bumps_that_overlap_are_fitted_after_many_steps(width):
    """The second width takes 66 steps, more than three for each bump: whatever ends it sooner leaves a slope.

    Its matrix has a condition of 8e20. Where processors round in another way, the same two indices are let in and out
    until one stays refused: without that a slope of 1.8e-13 is left at the limit of steps.
    """
    U = overlapping(width)
    target = np.random.default_rng(0).dirichlet(np.full(len(U), 0.3), 512) @ U
    y, support = non_negative(U @ U.T, target @ U.T)
    y = np.asarray(y)
    assert y.min() >= 0
    assert ((y > 0) <= np.asarray(support)).all()
    assert ((target - y @ U) @ U.T).max() <= 2e-14
    assert np.abs(np.sum(y * ((target - y @ U) @ U.T), axis=1)).max() <= 1e-14


@pytest.mark.parametrize("guess", (True, False))
def test_a_wrong_first_support_costs_steps_and_no_digits(guess, monkeypatch):
    """All indices, whose matrix is singular, or none: the steps that follow decide, not the guess."""
    U = np.random.default_rng(3).normal(size=(12, 5))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    target = np.random.default_rng(4).normal(size=(64, 5))
    monkeypatch.setattr(simplex, "_likely_support", lambda A, b: jnp.full(len(b), guess))
    y, _ = quickly(jax.vmap(simplex.non_negative, in_axes=(None, 0)))(U @ U.T, target @ U.T)
    np.testing.assert_allclose(y @ U, [nnls(U.T, row)[0] @ U for row in target], atol=1e-12)


@pytest.mark.parametrize("rank", (4, 12))
@pytest.mark.parametrize("cap", (0.15, 0.5))
def test_the_capped_programme_of_many_objectives_satisfies_its_variational_inequality(cap, rank):
    generator = np.random.default_rng(rank)
    G = generator.normal(size=(128, 12, rank)) * 10 ** generator.uniform(-1, 1, size=(128, 12, 1))
    b = generator.normal(size=(128, 12))
    b[::2] = 0
    A = G @ G.transpose(0, 2, 1)
    lam = np.asarray(on_capped_simplex(A, b, cap))
    slopes = np.einsum("kij,kj->ki", A, lam) - b
    assert lam.min() >= 0
    assert lam.max() <= cap + 1e-12
    np.testing.assert_allclose(lam.sum(axis=1), 1, atol=1e-12)
    excess = np.sum(lam * slopes, axis=1) - least_linear(slopes, cap)
    assert (excess <= 1e-12 * np.abs(A).max(axis=(1, 2))).all()


def test_an_index_that_stands_at_zero_and_would_stay_there_leaves():
    both, first = jnp.ones(2, bool), jnp.array([True, False])
    state = simplex._ActiveSet(jnp.zeros(2), both, first, ~both, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    after = quickly(simplex._pivot)(jnp.eye(2), jnp.array([1.0, 0.0]), state)
    np.testing.assert_array_equal(after.y, [0, 0])
    np.testing.assert_array_equal(after.free, first)


@pytest.mark.parametrize("M", (3, 12))
def test_a_support_is_regular_where_its_rows_are_independent(M):
    """Of rows of which two are equal, the support with both is not, and any other is solved."""
    U = overlapping(0.05, M)
    U[1] = U[0]
    everybody, solve = np.ones(M, bool), quickly(simplex.solve)
    assert not solve(U @ U.T, np.ones(M), everybody)[1]
    x, regular = solve(U @ U.T, np.ones(M), everybody & (np.arange(M) != 1))
    assert regular
    assert x[1] == 0
    np.testing.assert_allclose(np.delete(U @ U.T @ x, 1), 1, atol=1e-12)


def test_cheap_pivots_nearly_always_find_the_support():
    """They only save steps: a wrong support would be mended, at the cost of a factor for each index."""
    G = np.stack([np.random.default_rng(seed).normal(size=(20, 30)) for seed in range(20)]) + 0.3
    G /= np.linalg.norm(G, axis=2, keepdims=True)
    A, b = jnp.asarray(G @ G.transpose(0, 2, 1), jnp.float32), jnp.ones(20)
    free, likely = (
        np.asarray(quickly(jax.vmap(how, in_axes=(0, None)))(A, b))
        for how in (lambda A, b: simplex.non_negative(A, b)[1], simplex._likely_support)
    )
    assert ((free.sum(axis=1) > 2) & (free.sum(axis=1) < 20)).all()
    found = (likely == free).all(axis=1)
    assert sum(found) >= 18
