"""Where weighting rules change their mind: gradients that are almost nothing, conflicts that arise on the way."""

from itertools import permutations

import jax.numpy as jnp
import numpy as np
import pytest

from moac import weighting
from moac.weighting import rule


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
    pcgrad = weighting.pcgrad()
    for t in range(1, 9):
        d = np.asarray(pcgrad.update((), jnp.asarray(G @ G.T, jnp.float32), t)[1]) @ G
        assert min(np.abs(d - one).max() for one in possible) < 1e-5
