from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import actor
from moac.policies import Factor, GaussianMLP, SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable, features
from moac.policies.gaussian import Squash
from moac.policies.networks import States, Vectors
from moac.types import Batch

S, A, B, M = 5, 3, 9, 3
GENERATOR = np.random.default_rng(0)
BATCH = Batch(
    observation=jnp.asarray(GENERATOR.integers(S, size=B)),
    action=jnp.asarray(GENERATOR.integers(A, size=B)),
    reward=jnp.zeros((B, M)),
    next_observation=jnp.zeros(B, int),
)
DELTA = jnp.asarray(GENERATOR.normal(size=(B, M)), jnp.float32)


class Bare:
    """A user's policy: nothing but the three functions of the protocol."""

    def __init__(self, policy):
        self.init, self.sample, self.log_prob = policy.init, policy.sample, policy.log_prob


class WithFactors(Bare):
    """The same, and the factors of its score."""

    def __init__(self, policy):
        super().__init__(policy)
        self.factors = policy.factors


VECTORS = replace(BATCH, observation=jnp.asarray(GENERATOR.random((B, 4)), jnp.float32))
ACTIONS = jnp.asarray(GENERATOR.uniform(-0.9, 0.9, size=(B, 2)), jnp.float32)
BOUNDS = Squash((-1.0, -1.0), (1.0, float("inf")))
CASES = {
    "table": (SoftmaxTable(S, A), BATCH),
    "linear": (SoftmaxLinear(features.table(GENERATOR.normal(size=(S, 2))), A), BATCH),
    "linear, without a state": (SoftmaxLinear(features.OneHot(S, reference=1), A), BATCH),
    "linear, of vectors": (SoftmaxBasis(features.Fourier(4, 2), A), VECTORS),
    "mlp of states": (SoftmaxMLP(States(S), (7,), A), BATCH),
    "mlp of vectors": (SoftmaxMLP(Vectors(4), (6, 7), A), VECTORS),
    "gaussian": (GaussianMLP(Vectors(4), (6,), BOUNDS), replace(VECTORS, action=ACTIONS)),
    "gaussian, scale by state": (GaussianMLP(States(S), (6,), BOUNDS, True), replace(BATCH, action=ACTIONS)),
}


def compiled(function):
    """Compiled as a whole, and quickly."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@lru_cache
def theta_of(policy):
    noise = np.random.default_rng(4)
    first = compiled(policy.init)(jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(x + 0.5 * noise.normal(size=x.shape), jnp.float32), first)


def assert_close(found, expected):
    """Single precision, relative to the largest entry."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def flat(tree):
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


@lru_cache
def scores(name):
    """ψ [B, P] of a case by automatic differentiation, sample by sample."""
    policy, batch = CASES[name]
    score = compiled(jax.vmap(jax.grad(policy.log_prob), in_axes=(None, 0, 0)))
    psi = score(theta_of(policy), batch.observation, batch.action)
    return np.concatenate([np.asarray(leaf).reshape(B, -1) for leaf in jax.tree.leaves(psi)], axis=1)


def expected_rows(name):
    """gⁱ = (1/B) Σ δⁱ ψ [M, P]."""
    return np.asarray(DELTA).T @ scores(name) / B


LAM = np.array([0.2, 0.5, 0.3], np.float32)


@lru_cache
def program(name, normalise):
    """(θ, δ, λ) ↦ Gram matrix, scale and direction of `actor.gradients` in every way that the policy allows."""
    policy, batch = CASES[name]
    ways = (policy, WithFactors(policy), Bare(policy)) if normalise == "none" else (policy,)

    def compute(theta, delta, lam):
        found = [actor.gradients(way, theta, batch, delta, normalise) for way in ways]
        return [(g.gram, g.scale, g.direction(lam)) for g in found]

    return compiled(compute)


def gradients(name, delta=DELTA, normalise="none", lam=LAM):
    """What `program` gives for the policy itself."""
    return program(name, normalise)(theta_of(CASES[name][0]), delta, lam)[0]


@pytest.mark.parametrize("name", CASES)
def test_all_ways_to_the_gradients_agree(name):
    G = expected_rows(name)
    for K, scale, direction in program(name, "none")(theta_of(CASES[name][0]), DELTA, LAM):
        assert_close(K, G @ G.T)
        assert_close(flat(direction), LAM @ G)
        np.testing.assert_array_equal(scale, np.ones(M))


@pytest.mark.parametrize(("name", "count"), [*((name, 300) for name in CASES), ("table", 5), ("mlp of vectors", 5)])
def test_both_forms_of_the_gram_matrix_agree(name, count):
    """Whatever the sizes say is cheaper: the kernel of all pairs of samples, in one strip or three, and gradients."""
    policy, batch = CASES[name]
    generator = np.random.default_rng(1)
    rows = generator.integers(B, size=count)
    picked = jax.tree.map(lambda x: x[rows], batch)
    delta = generator.normal(size=(count, 4)).astype(np.float32)

    def both(theta):
        factors = policy.factors(theta, picked.observation, picked.action)
        formed = [actor.layer_gradients(factor, delta / count) for factor in factors]
        return actor.gram_by_kernel(factors, delta / count), actor.gram_by_gradients(formed)

    G = delta.T @ scores(name)[rows] / count
    for found in compiled(both)(theta_of(policy)):
        assert_close(found, G @ G.T)


def test_the_cheaper_form_is_chosen_by_the_sizes():
    """2 B (d + k) against 3 (M − 1) d k."""
    factor = Factor(jnp.zeros((512, 401)), jnp.zeros((512, 128)))
    assert actor.kernel_is_cheaper(factor, 7)
    assert actor.kernel_is_cheaper(Factor(jnp.zeros((870, 401)), jnp.zeros((870, 128))), 7)
    assert not actor.kernel_is_cheaper(Factor(jnp.zeros((880, 401)), jnp.zeros((880, 128))), 7)
    assert not actor.kernel_is_cheaper(Factor(jnp.zeros((2048, 401)), jnp.zeros((2048, 128))), 7)
    assert actor.kernel_is_cheaper(Factor(jnp.zeros((2048, 401)), jnp.zeros((2048, 128))), 28)
    assert not actor.kernel_is_cheaper(Factor(jnp.zeros(512, int), jnp.zeros((512, 128))), 7)


def test_the_kernel_form_holds_no_gradient_of_each_objective():
    """No array of the program is as large as M gradients."""
    objectives, policy = 40, SoftmaxMLP(Vectors(100), (64,), 50)
    theta = policy.init(jax.random.key(0))
    batch = Batch(jnp.zeros((64, 100)), jnp.zeros(64, int), jnp.zeros((64, objectives)), jnp.zeros((64, 100)))

    def direction(theta, delta):
        found = actor.gradients(policy, theta, batch, delta)
        return found.direction(found.gram[0])

    program = jax.make_jaxpr(direction)(theta, batch.reward)
    largest = max(np.prod(value.aval.shape) for line in program.jaxpr.eqns for value in line.outvars)
    assert largest < objectives * max(W.size for W in theta) / 10


def test_products_of_pytrees():
    rows = tuple({"a": jnp.full((2, 2), float(i)), "b": jnp.arange(3.0) - i} for i in range(3))
    table = np.stack([np.concatenate([np.full(4, float(i)), np.arange(3.0) - i]) for i in range(3)])
    np.testing.assert_allclose(actor.products(rows), table @ table.T, rtol=1e-6)


@pytest.mark.parametrize("count", [1, 3, 7, 8, 12])
@pytest.mark.parametrize("size", [1, 63, 257, 20_000])
def test_rounding_of_products_does_not_grow_with_the_number_of_parameters(count, size):
    G = np.random.default_rng(size).lognormal(sigma=2, size=(count, size)).astype(np.float32)
    K = actor.products(tuple(jnp.asarray(G)))
    exact = G.astype(float) @ G.T.astype(float)
    norm = np.sqrt(np.diagonal(exact))
    np.testing.assert_array_equal(K, K.T)
    assert np.max(np.abs(K - exact) / norm / norm[:, None]) < 1e-6


@pytest.mark.parametrize("name", ["table", "mlp of vectors", "gaussian"])
@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_the_direction_mixes_the_scaled_gradients(name, normalise):
    G = expected_rows(name)
    G = G if normalise == "none" else G / np.linalg.norm(G, axis=1)[:, None]
    K, _, direction = gradients(name, DELTA, normalise)
    np.testing.assert_allclose(K, G @ G.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(flat(direction), LAM @ G, rtol=1e-4, atol=1e-5)


def test_normalised_gradients_do_not_depend_on_the_scale_of_an_objective():
    plain, _, _ = gradients("table", normalise="l2")
    scaled, _, _ = gradients("table", delta=DELTA * jnp.array([1e-6, 1.0, 1e6]), normalise="l2")
    np.testing.assert_allclose(scaled, plain, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(plain), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["table", "mlp of vectors"])
@pytest.mark.parametrize("normalise", ["none", "l2"])
@pytest.mark.parametrize("zeros", [[1], [0, 1, 2]], ids=["one", "all"])
def test_a_zero_gradient_gives_no_nan(name, normalise, zeros):
    delta = DELTA.at[:, jnp.array(zeros)].set(0.0)
    lam = jnp.zeros(M).at[zeros[0]].set(1.0)
    K, scale, direction = gradients(name, delta, normalise, lam)
    assert np.isfinite(K).all()
    assert np.isfinite(scale).all()
    np.testing.assert_array_equal(K[jnp.array(zeros)], 0)
    np.testing.assert_array_equal(flat(direction), 0)
