from dataclasses import replace

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
of_all = pytest.mark.parametrize(("policy", "batch"), CASES.values(), ids=CASES)
TABLE = CASES["table"][0]


def compiled(function):
    """Compiled as a whole, and quickly."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def theta_of(policy):
    noise = np.random.default_rng(4)
    first = compiled(policy.init)(jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(x + 0.5 * noise.normal(size=x.shape), jnp.float32), first)


def assert_close(found, expected):
    """Single precision, relative to the largest entry."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def flat(tree):
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


def expected_rows(policy, theta, batch=BATCH, delta=DELTA):
    """gⁱ = (1/B) Σ δⁱ ψ [M, P] with ψ by automatic differentiation, sample by sample."""
    score = compiled(jax.vmap(jax.grad(policy.log_prob), in_axes=(None, 0, 0)))
    psi = score(theta, batch.observation, batch.action)
    psi = np.concatenate([np.asarray(leaf).reshape(len(delta), -1) for leaf in jax.tree.leaves(psi)], axis=1)
    return np.asarray(delta).T @ psi / len(delta)


def gradients(policy, theta, batch=BATCH, delta=DELTA, normalise="none", lam=None):
    """Gram matrix, scale and direction of `actor.gradients`, compiled as a whole."""
    weights = jnp.full(delta.shape[1], 1 / delta.shape[1]) if lam is None else jnp.asarray(lam)

    def compute(theta, delta):
        found = actor.gradients(policy, theta, batch, delta, normalise)
        return found.gram, found.scale, found.direction(weights)

    return compiled(compute)(theta, delta)


@of_all
def test_all_ways_to_the_gradients_agree(policy, batch):
    theta, lam = theta_of(policy), np.array([0.2, 0.5, 0.3], np.float32)
    G = expected_rows(policy, theta, batch)
    for way in (policy, WithFactors(policy), Bare(policy)):
        K, scale, direction = gradients(way, theta, batch, lam=lam)
        assert_close(K, G @ G.T)
        assert_close(flat(direction), lam @ G)
        np.testing.assert_array_equal(scale, np.ones(M))


@pytest.mark.parametrize("count", [5, 300], ids=["one strip", "three strips"])
@of_all
def test_both_forms_of_the_gram_matrix_agree(policy, batch, count):
    """Whatever the sizes say is cheaper: the kernel of all pairs of samples, and the gradients themselves."""
    generator = np.random.default_rng(1)
    picked = jax.tree.map(lambda x: x[jnp.asarray(generator.integers(B, size=count))], batch)
    delta = jnp.asarray(generator.normal(size=(count, 4)), jnp.float32)
    theta = theta_of(policy)

    def both(theta):
        factors = policy.factors(theta, picked.observation, picked.action)
        return actor.gram_by_kernel(factors, delta / count), actor.gram_by_gradients(factors, delta / count)

    G = expected_rows(policy, theta, picked, delta)
    for found in compiled(both)(theta):
        assert_close(found, G @ G.T)


def test_the_cheaper_form_is_chosen_by_the_sizes():
    """B (d + k) against 2 M d k."""
    factor = Factor(jnp.zeros((512, 401)), jnp.zeros((512, 128)))
    assert actor.kernel_is_cheaper(factor, 7)
    assert actor.kernel_is_cheaper(Factor(jnp.zeros((1300, 401)), jnp.zeros((1300, 128))), 7)
    assert not actor.kernel_is_cheaper(Factor(jnp.zeros((1400, 401)), jnp.zeros((1400, 128))), 7)
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


@pytest.mark.parametrize("name", ["table", "mlp of vectors", "gaussian"])
@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_the_direction_mixes_the_scaled_gradients(name, normalise):
    policy, batch = CASES[name]
    theta, lam = theta_of(policy), np.array([0.2, 0.5, 0.3], np.float32)
    G = expected_rows(policy, theta, batch)
    G = G if normalise == "none" else G / np.linalg.norm(G, axis=1)[:, None]
    K, _, direction = gradients(policy, theta, batch, DELTA, normalise, lam)
    np.testing.assert_allclose(K, G @ G.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(flat(direction), lam @ G, rtol=1e-4, atol=1e-5)


def test_normalised_gradients_do_not_depend_on_the_scale_of_an_objective():
    theta, scale = theta_of(TABLE), jnp.array([1e-6, 1.0, 1e6])
    plain, _, _ = gradients(TABLE, theta, normalise="l2")
    scaled, _, _ = gradients(TABLE, theta, delta=DELTA * scale, normalise="l2")
    np.testing.assert_allclose(scaled, plain, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(plain), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["table", "mlp of states"])
@pytest.mark.parametrize("normalise", ["none", "l2"])
@pytest.mark.parametrize("zeros", [[1], [0, 1, 2]], ids=["one", "all"])
def test_a_zero_gradient_gives_no_nan(name, normalise, zeros):
    policy, batch = CASES[name]
    delta = DELTA.at[:, jnp.array(zeros)].set(0.0)
    lam = jnp.zeros(M).at[zeros[0]].set(1.0)
    K, scale, direction = gradients(policy, theta_of(policy), batch, delta, normalise, lam)
    assert np.isfinite(K).all()
    assert np.isfinite(scale).all()
    np.testing.assert_array_equal(K[jnp.array(zeros)], 0)
    np.testing.assert_array_equal(flat(direction), 0)
