"""What every rule must satisfy, for any Gram matrix."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from moac import simplex, weighting
from moac.choices import schedule_of
from tests.helpers import asserts

FLOATS = st.floats(-1e3, 1e3, allow_nan=False, width=32)
ROWS = arrays(np.float64, (3, 4), elements=FLOATS)
"""Of one shape: another is another program. One objective is below; more and fewer: tests/oracles/test_simplex.py."""
PREFERENCE = np.array([1, 2, 3]) / 6
RULES = {
    "min_norm": weighting.min_norm(),
    "preferred": weighting.preferred(PREFERENCE),
    "uniform": weighting.uniform(),
    "fixed": weighting.fixed(PREFERENCE),
    "first_batch": weighting.first_batch(),
    "momentum": weighting.with_momentum(weighting.min_norm(), "1/t"),
    "slow": weighting.with_momentum(weighting.min_norm(), "const:0.1"),
}


def run(rule, state, grams):
    """Not compiled as a whole: so all rules share the one program of the solver inside them."""
    out = []
    for t, K in enumerate(grams, start=1):
        state, lam = rule.update(state, jnp.asarray(K, jnp.float32), t)
        out.append(np.asarray(lam))
    return out


@given(G=ROWS)
@pytest.mark.parametrize("name", RULES)
def test_stays_on_the_simplex(name, G):
    for lam in run(RULES[name], RULES[name].init(3), [G @ G.T, np.eye(3), 2 * G @ G.T]):
        asserts.assert_on_simplex(lam, 1e-5)


def test_one_objective_has_all_the_weight():
    rule = weighting.with_momentum(weighting.min_norm(), "1/sqrt(t)")
    for lam in run(rule, rule.init(1), [np.zeros((1, 1)), 4 * np.eye(1)]):
        assert lam == [1.0]


@given(G=ROWS)
def test_min_norm_satisfies_the_kkt_conditions(G):
    solution = simplex.min_norm(G)
    asserts.assert_on_simplex(solution.weights)
    assert np.min(G @ solution.direction) >= solution.squared_norm - 1e-10 * max(np.sum(G * G), 1e-300)


@given(G=ROWS, seed=st.integers(0, 99))
def test_a_preference_tilts_the_direction_and_harms_nothing(G, seed):
    """gⁱᵀd ≥ pᵢ‖d‖² for the point d = Σ νᵢgⁱ with Σ pᵢνᵢ = 1."""
    p = np.random.default_rng(seed).dirichlet(np.ones(len(G))).clip(0.01)
    p /= p.sum()
    rule = weighting.preferred()
    lam = run(rule, rule.init(3, jnp.asarray(p, jnp.float32)), [G @ G.T])[0].astype(np.float64)
    d = lam @ G / (p @ lam)
    assert np.min(G @ d - p * (d @ d)) >= -1e-3 * max(np.sum(G * G), 1e-30)


@given(G=ROWS, seed=st.integers(0, 99))
def test_permuting_the_rows_keeps_the_direction(G, seed):
    order = np.random.default_rng(seed).permutation(len(G))
    difference = simplex.min_norm(G).direction - simplex.min_norm(G[order]).direction
    assert np.linalg.norm(difference) <= 1e-7 * max(np.abs(G).max(), 1e-300)


@given(G=ROWS, exponent=st.integers(-30, 30))
def test_scaling_the_rows_scales_the_direction(G, exponent):
    factor = 2.0**exponent
    d, scaled = simplex.min_norm(G).direction, simplex.min_norm(G * factor).direction
    np.testing.assert_allclose(scaled, d * factor, rtol=0, atol=1e-9 * factor * max(np.abs(G).max(), 1e-300))


@given(G=ROWS)
def test_duplicating_a_row_keeps_the_direction(G):
    G = G[:2]
    difference = simplex.min_norm(G).direction - simplex.min_norm(G[[0, 1, 0]]).direction
    assert np.linalg.norm(difference) <= 1e-7 * max(np.abs(G).max(), 1e-300)


@given(value=st.floats(0, 1))
def test_a_constant_schedule_is_that_constant(value):
    assert schedule_of(f"const:{value!r}")(7.0) == value
