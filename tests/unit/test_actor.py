import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import actor, features
from moac.policy import SoftmaxLinear, SoftmaxTable
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


POLICIES = {
    "table": SoftmaxTable(S, A),
    "linear": SoftmaxLinear(features.table(GENERATOR.normal(size=(S, 2))), A),
    "linear, without a state": SoftmaxLinear(features.OneHot(S, reference=1), A),
}
of_all = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def theta_of(policy):
    shape = policy.init(jax.random.key(0)).shape
    return jnp.asarray(np.random.default_rng(4).normal(size=shape), jnp.float32)


def expected_rows(policy, theta):
    """gⁱ = (1/B) Σ δⁱ ψ [M, …] with ψ by automatic differentiation, sample by sample."""
    score = jax.jit(jax.vmap(jax.grad(policy.log_prob), in_axes=(None, 0, 0)))
    return np.einsum("bi,bsa->isa", DELTA, score(theta, BATCH.observation, BATCH.action)) / B


def gradients(policy, theta, delta=DELTA, normalise="none"):
    """`actor.gradients`, compiled as a whole."""

    def compute(theta, delta):
        found = actor.gradients(policy, theta, BATCH, delta, normalise)
        return found.rows, found.scale, found.gram

    return actor.Gradients(*jax.jit(compute)(theta, delta))


@of_all
def test_all_ways_to_the_gradients_agree(policy):
    theta = theta_of(policy)
    expected = expected_rows(policy, theta)
    for way in (policy, WithFactors(policy), Bare(policy)):
        found = gradients(way, theta)
        np.testing.assert_allclose(np.stack(found.rows), expected, atol=1e-6)
        np.testing.assert_allclose(found.gram, np.einsum("isa,jsa->ij", expected, expected), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(found.scale, np.ones(M))


def test_the_gram_matrix_of_pytrees():
    rows = tuple({"a": jnp.full((2, 2), float(i)), "b": jnp.arange(3.0) - i} for i in range(3))
    flat = np.stack([np.concatenate([np.full(4, float(i)), np.arange(3.0) - i]) for i in range(3)])
    np.testing.assert_allclose(actor.gram(rows), flat @ flat.T, rtol=1e-6)


@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_the_direction_mixes_the_scaled_gradients(normalise):
    policy = POLICIES["table"]
    theta = theta_of(policy)
    G = expected_rows(policy, theta)
    G = G if normalise == "none" else G / np.linalg.norm(G.reshape(M, -1), axis=1)[:, None, None]
    found = gradients(policy, theta, DELTA, normalise)
    np.testing.assert_allclose(found.gram, np.einsum("isa,jsa->ij", G, G), rtol=1e-4, atol=1e-6)
    lam = np.array([0.2, 0.5, 0.3], np.float32)
    np.testing.assert_allclose(found.direction(jnp.asarray(lam)), np.einsum("i,isa->sa", lam, G), atol=1e-5)


def test_normalised_gradients_do_not_depend_on_the_scale_of_an_objective():
    policy = POLICIES["table"]
    theta, scale = theta_of(policy), jnp.array([1e-6, 1.0, 1e6])
    plain = gradients(policy, theta, DELTA, "l2")
    scaled = gradients(policy, theta, DELTA * scale, "l2")
    np.testing.assert_allclose(scaled.gram, plain.gram, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(plain.gram), 1, rtol=1e-5)


@pytest.mark.parametrize("normalise", ["none", "l2"])
@pytest.mark.parametrize("zeros", [[1], [0, 1, 2]], ids=["one", "all"])
def test_a_zero_gradient_gives_no_nan(normalise, zeros):
    policy = POLICIES["table"]
    theta = theta_of(policy)
    delta = DELTA.at[:, jnp.array(zeros)].set(0.0)
    found = gradients(policy, theta, delta, normalise)
    assert np.isfinite(found.gram).all()
    assert np.isfinite(found.scale).all()
    np.testing.assert_array_equal(found.gram[jnp.array(zeros)], 0)
    lam = jnp.zeros(M).at[zeros[0]].set(1.0)
    np.testing.assert_array_equal(found.direction(lam), np.zeros((S, A)))
