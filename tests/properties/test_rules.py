"""What the rules of docs/rules.md satisfy for every matrix of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import weighting
from tests.helpers import samplers

M = 3
RULES = {
    "capped": weighting.capped(0.5),
    "cagrad": weighting.cagrad(0.4),
    "pcgrad": weighting.pcgrad(),
    "imtl_g": weighting.imtl_g(),
    "nash_mtl": weighting.nash_mtl(),
    "upgrad": weighting.upgrad(),
    "fairgrad": weighting.fairgrad(2.0),
    "chebyshev": weighting.chebyshev([0.2, 0.3, 0.5]),
    "moco": weighting.moco(),
    "modo": weighting.modo(),
    "sdmgrad": weighting.sdmgrad(),
}
TOLERANCE = {name: 2e-2 if name == "sdmgrad" else 2e-3 for name in RULES}  # steps of size 10 amplify rounding
NONE_FALLS = ("nash_mtl", "upgrad", "fairgrad")
of_all = pytest.mark.parametrize("name", RULES)


def shown(rule, K):
    """What the rule's update takes: K, or all that a rule may ask for, with two batches alike and no rewards yet."""
    M = K.shape[0]
    return weighting.Seen(K, K, jnp.zeros(M), jnp.zeros((1, M))) if rule.needs.cross or rule.needs.values else K


SOLVE = {
    name: jax.jit(
        jax.vmap(lambda K, rule=rule: rule.update(rule.init(K.shape[0]), shown(rule, K), 1)[1]),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    for name, rule in RULES.items()
}
ORDER = np.array([2, 0, 1])


def hard():
    """Every family, zeros, duplicates and stationary points; one matrix each, and one permuted."""
    rows = [samplers.sample(family, M, seed)[:, :50] for family in samplers.FAMILIES for seed in (0, 1)]
    return [*rows, np.zeros((M, 50)), rows[0] * 1e-12, rows[0] * 1e12, np.ones((M, 50))]


def tame(count=6):
    generator = np.random.default_rng(5)
    return [generator.normal(size=(M, 4)) * generator.uniform(0.5, 2, size=(M, 1)) for _ in range(count)]


def weights(name, gradients, dtype=np.float32):
    """λ of each matrix of gradients; all are solved in one program, always of one shape."""
    padded = np.stack([G @ G.T for G in [*gradients, *[np.eye(M)] * (24 - len(gradients))]]).astype(dtype)
    return np.asarray(SOLVE[name](jnp.asarray(padded)), np.float64)[: len(gradients)]


@of_all
def test_weights_are_finite_whatever_the_gradients(name):
    lam = weights(name, hard())
    assert np.isfinite(lam).all()
    if RULES[name].simplex:
        assert lam.min() >= 0
        np.testing.assert_allclose(lam.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("bad", (np.nan, np.inf))
@of_all
def test_no_weight_is_finite_where_a_gradient_is_not(name, bad):
    good = tame(2)
    broken = good[0].copy()
    broken[1, 2] = bad
    lam = weights(name, [good[0], broken, good[1]])
    assert np.isnan(lam[1]).all()
    assert np.isfinite(lam[[0, 2]]).all()


@pytest.mark.slow
@of_all
def test_a_batch_is_the_loop_over_it(name):
    gradients, rule = tame(2), RULES[name]
    one = jax.jit(
        lambda K: rule.update(rule.init(M), shown(rule, K), 1)[1],
        compiler_options={"xla_backend_optimization_level": 0},
    )
    alone = [one(jnp.asarray(G @ G.T, jnp.float32)) for G in gradients]
    np.testing.assert_allclose(weights(name, gradients), alone, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("pcgrad", "chebyshev")])
def test_permuting_the_objectives_permutes_the_weights(name):
    """PCGrad's orders are random, and Chebyshev's preference goes with its objective."""
    lam, permuted = weights(name, tame()), weights(name, [G[ORDER] for G in tame()])
    np.testing.assert_allclose(permuted, lam[:, ORDER], rtol=TOLERANCE[name], atol=TOLERANCE[name])


@pytest.mark.parametrize("name", ["capped", "cagrad", "pcgrad", "imtl_g", "upgrad", "sdmgrad"])
def test_the_scale_of_all_gradients_is_irrelevant(name):
    lam, scaled = weights(name, tame()), weights(name, [1e-3 * G for G in tame()])
    np.testing.assert_allclose(scaled, lam, rtol=TOLERANCE[name], atol=TOLERANCE[name])


@pytest.mark.parametrize("name", NONE_FALLS)
def test_nothing_falls(name):
    rows = [samplers.not_stationary(M, np.random.default_rng(seed), 6) for seed in range(10)]
    for G, lam in zip(rows, weights(name, rows), strict=True):
        d = lam @ G
        assert (G @ d / np.linalg.norm(G, axis=1)).min() >= -1e-4 * np.linalg.norm(d)


@pytest.mark.parametrize("name", NONE_FALLS)
def test_the_direction_vanishes_where_every_objective_must_lose(name):
    """Of a Gram matrix in single precision no angle finer than 1e-3 is known."""
    rows = [samplers.strongly_stationary(M, np.random.default_rng(seed), 50) for seed in range(4)]
    for G, lam in zip(rows, weights(name, rows), strict=True):
        assert np.linalg.norm(lam @ G) <= 2e-2 * np.sum(lam * np.linalg.norm(G, axis=1))


@pytest.mark.slow
@of_all
def test_one_objective_keeps_its_gradient(name):
    rule = weighting.chebyshev() if name == "chebyshev" else RULES[name]
    lam = jax.jit(rule.update)(rule.init(1), shown(rule, jnp.array([[4.0]])), 1)[1]
    expected = {"cagrad": 1.4, "nash_mtl": 0.5, "fairgrad": 4 ** (-2 / 3)}.get(name, 1.0)
    np.testing.assert_allclose(lam, [expected], rtol=1e-5)
