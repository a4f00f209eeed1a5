"""A problem is solved in a batch of any size as it is alone. Reductions of a large batch are other programs to XLA."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

from moac import simplex, weighting
from tests.helpers import samplers


def of_rule(rule):
    return lambda G: rule.update(rule.init(len(G)), G @ G.T, 1)[1]


SOLVERS = {
    "min_norm": lambda G: simplex.min_norm(G).weights,
    "min_norm_from_gram": lambda G: simplex.min_norm_from_gram(G @ G.T).weights,
    "capped": of_rule(weighting.capped(0.5)),
    "upgrad": of_rule(weighting.upgrad()),
}
sample = cache(samplers.of_all_families)


def direction(lam, G):
    return np.einsum("km,kmp->kp", np.asarray(lam, np.float64), G[: len(lam)])


def assert_batches_equal_the_loop(name, G, sizes, dtype):
    """Two values may differ by rounding, so the directions that have them by its root.

    The min-norm rules keep the digits of every gradient that has a weight; the capped simplex those of the longest.
    """
    solve, given = SOLVERS[name], jnp.asarray(G, dtype)
    lam = jax.jit(lambda G: jax.lax.map(solve, G))(given)
    alone, norms = direction(lam, G), np.linalg.norm(G, axis=2)
    length = np.max(norms, axis=1) if name == "capped" else np.sum(np.abs(lam) * norms, axis=1)
    batched = jax.jit(jax.vmap(solve))
    for count in sizes:
        away = np.linalg.norm(direction(batched(given[:count]), G) - alone[:count], axis=1)
        assert (away <= 10 * np.sqrt(np.finfo(dtype).eps) * length[:count]).all()


def test_dependent_gradients_in_a_batch_of_upgrad(x64):
    """Against the mean of projections on the dual cone, by non-negative least squares, one at a time."""
    G = np.random.default_rng(7).normal(size=(256, 9, 4))
    found = direction(jax.jit(jax.vmap(SOLVERS["upgrad"]))(jnp.asarray(G)), G)
    expected = [np.mean([g + nnls(rows.T, -g)[0] @ rows for g in rows], axis=0) for rows in G]
    np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("M", (3, 9, 32))
@pytest.mark.parametrize("name", SOLVERS)
def test_the_nine_families_in_batches_of_every_size(name, M, dtype, x64):
    """The rules of 32 objectives in batches up to 1024 alone: UPGrad solves 32 programmes for each problem."""
    many = 1024 if M == 32 and name in ("capped", "upgrad") else 8192
    assert_batches_equal_the_loop(name, sample(M, many), (1, 64, 1024, many), dtype)
