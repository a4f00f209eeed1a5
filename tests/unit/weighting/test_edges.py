"""Where weighting rules change their mind: gradients that are almost nothing, conflicts that arise on the way."""

from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import weighting
from moac.weighting import rule
from moac.weighting.sdmgrad import _unit_scale

quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize(("length", "there"), [(1e-5, True), (1e-8, False)])
def test_a_gradient_counts_as_zero_below_the_precision_of_the_longest(length, there):
    """Single precision has an eps of 1.2e-7; squares are compared with its square."""
    G = jnp.array([[1.0, 0.0], [length, length]], jnp.float32)
    n, C = rule.lengths(G @ G.T)
    np.testing.assert_allclose(n, [1.0, np.sqrt(2) * length if there else 0.0], rtol=1e-5)
    np.testing.assert_allclose(C[0, 1], np.sqrt(0.5) if there else 0.0, rtol=1e-5)


def test_pcgrad_never_projects_a_gradient_off_its_own_plane():
    """Two conflicts in turn make g̃¹ fall along g¹ itself, which is left as it is."""
    G = np.array([[1.0, 0.0], [-0.95, np.sqrt(1 - 0.95**2)], [-0.95, -np.sqrt(1 - 0.95**2)]])

    def projected(i, order):
        g = G[i]
        for j in order:
            g = g - min(g @ G[j], 0) * G[j]
        return g

    assert projected(0, (1, 2)) @ G[0] < -0.05
    orders = [[*permutations({0, 1, 2} - {i})] for i in range(3)]
    possible = [sum(projected(i, orders[i][k]) for i, k in enumerate(c)) for c in np.ndindex(2, 2, 2)]
    K = jnp.asarray(G @ G.T, jnp.float32)
    weights = quickly(jax.vmap(lambda t: weighting.pcgrad().update((), K, t)[1]))(jnp.arange(1, 9))
    for d in np.asarray(weights) @ G:
        assert min(np.abs(d - one).max() for one in possible) < 1e-5


def test_cagrad_where_the_gradients_agree():
    """d of a plane, g⁰ + c‖g⁰‖(cos φ, sin φ), by a fine search; what it mixes is as long as the gradients are."""
    G, c = np.array([[1.0, 0.0], [0.0, 0.8]]), 0.4
    mean = G.mean(axis=0)
    angle = np.linspace(0, 2 * np.pi, 200_001)[:, None]
    worst = (mean + c * np.linalg.norm(mean) * np.hstack([np.cos(angle), np.sin(angle)])) @ G.T
    lam = quickly(lambda K: weighting.cagrad(c).update((), K, 1)[1])(jnp.asarray(G @ G.T, jnp.float32))
    assert (G @ (np.asarray(lam) @ G)).min() == pytest.approx(worst.min(axis=1).max(), rel=1e-5)
    assert (np.asarray(lam) > 0.5).all()  # both weigh in beyond the mean


def test_what_two_batches_make_negative_has_no_scale():
    """√(diagonal)₊ of K/4 is (0, 1), whose mean is a half."""
    K = jnp.array([[-1.0, 2.0], [1.0, 4.0]])
    np.testing.assert_allclose(_unit_scale(K), K, rtol=1e-6)
