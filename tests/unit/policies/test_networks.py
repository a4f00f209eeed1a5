"""Networks, squashing and the policies that stand on them: NumPy as JAX, densities that integrate, exact scores."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac.policies import Entropic, Factored, GaussianMLP, OnHost, Reparametrised, SoftmaxMLP
from moac.policies.gaussian import Squash
from moac.policies.networks import Network, States, Vectors

INF = float("inf")
BOUNDS = {
    "finite": Squash((-2.0, 0.0), (1.0, 10.0)),
    "from below": Squash((0.0, -3.0), (INF, INF)),
    "from above": Squash((-INF, -INF), (0.0, 5.0)),
    "none": Squash((-INF, -INF), (INF, INF)),
    "mixed": Squash((-1.0, 0.0), (1.0, INF)),
}
of_bounds = pytest.mark.parametrize("squash", BOUNDS.values(), ids=BOUNDS)

B = 11
GENERATOR = np.random.default_rng(0)
VECTORS, INDICES = GENERATOR.random((B, 3), dtype=np.float32), GENERATOR.integers(5, size=B)
KINDS = {
    "softmax of vectors": (SoftmaxMLP(Vectors(3), (6, 4), 5), VECTORS),
    "softmax of states": (SoftmaxMLP(States(5), (6,), 4), INDICES),
    "softmax without a hidden layer": (SoftmaxMLP(Vectors(3), (), 4), VECTORS),
    "Gaussian": (GaussianMLP(Vectors(3), (6,), BOUNDS["mixed"]), VECTORS),
    "Gaussian of states": (GaussianMLP(States(5), (6, 3), BOUNDS["finite"]), INDICES),
    "Gaussian, scale by state": (GaussianMLP(Vectors(3), (6,), BOUNDS["from above"], state_scale=True), VECTORS),
}
of_kinds = pytest.mark.parametrize(("policy", "observations"), KINDS.values(), ids=KINDS)


@lru_cache
def theta_of(policy):
    noise = np.random.default_rng(4)
    first = jax.jit(policy.init)(jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x) + 0.4 * noise.normal(size=x.shape), jnp.float32), first)


def sampled(policy, theta, observations):
    keys = jax.random.split(jax.random.key(1), len(observations))
    return jax.jit(jax.vmap(policy.sample, in_axes=(None, 0, 0)))(theta, jnp.asarray(observations), keys)


@of_bounds
def test_squashing_can_be_undone(squash):
    u = np.linspace(-30, 30, 121, dtype=np.float32)[:, None].repeat(2, axis=1)
    a = squash(u)
    assert (a >= squash.low).all()
    assert (a <= squash.high).all()
    np.testing.assert_allclose(squash.inverse(a), u, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(squash(jnp.asarray(u)), a, rtol=1e-5, atol=1e-6)


@of_bounds
def test_the_slope_is_the_derivative(squash):
    jacobian = jax.jit(jax.jacobian(squash))
    for value in (-7.0, -1.0, 0.0, 0.3, 5.0):
        with jax.enable_x64(True):
            u = jnp.full(2, value, jnp.float64)
            slope = jnp.diagonal(jacobian(u))
            np.testing.assert_allclose(squash.log_slope(np.asarray(u)), np.log(np.abs(slope)), rtol=1e-6, atol=1e-6)


@of_bounds
def test_actions_at_a_bound_have_a_finite_log_probability(squash):
    policy = GaussianMLP(Vectors(3), (4,), squash)
    score_of = jax.jit(jax.value_and_grad(policy.log_prob))
    edges = [np.clip(squash.low, -1e6, 1e6), np.clip(squash.high, -1e6, 1e6)]
    for action in edges:
        log_prob, score = score_of(theta_of(policy), jnp.asarray(VECTORS[0]), jnp.asarray(action, jnp.float32))
        assert np.isfinite(log_prob)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(score))


@pytest.mark.parametrize(
    ("low", "high"), [(-2.0, 1.0), (0.0, INF), (-INF, 3.0), (-INF, INF)], ids=["finite", "below", "above", "none"]
)
@pytest.mark.parametrize("state_scale", [False, True])
def test_a_gaussian_density_integrates_to_one(low, high, state_scale):
    policy = GaussianMLP(Vectors(3), (4,), Squash((low,), (high,)), state_scale)
    theta, x = theta_of(policy), jnp.asarray(VECTORS[1])
    actions = policy.bounds(np.linspace(-40, 40, 20_001, dtype=np.float32)[:, None])
    density = np.exp(jax.jit(jax.vmap(policy.log_prob, in_axes=(None, None, 0)))(theta, x, jnp.asarray(actions)))
    assert abs(np.trapezoid(density, actions[:, 0])) == pytest.approx(1.0, abs=2e-3)


@of_kinds
def test_numpy_computes_what_jax_computes(policy, observations):
    theta = theta_of(policy)
    host = jax.tree.map(np.asarray, theta)
    if isinstance(policy, Reparametrised):
        normal = GENERATOR.normal(size=(B, policy.size)).astype(np.float32)
        found, expected = policy.act(host, observations, normal), jax.jit(policy.act)(theta, observations, normal)
    else:
        assert isinstance(policy, OnHost)
        found, expected = policy.logits(host, observations), jax.jit(policy.logits)(theta, observations)
    assert type(found) is np.ndarray
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@of_kinds
def test_factors_multiply_to_the_score(policy, observations):
    theta = theta_of(policy)
    action = sampled(policy, theta, observations)
    score_of = jax.jit(jax.vmap(jax.grad(policy.log_prob), in_axes=(None, 0, 0)))
    score = score_of(theta, jnp.asarray(observations), action)
    assert isinstance(policy, Factored)
    factors = jax.jit(policy.factors)(theta, jnp.asarray(observations), action)
    for factor, leaf, expected in zip(factors, theta, score, strict=True):
        x = np.asarray(factor.inputs)
        x = np.eye(len(leaf))[x] if x.ndim == 1 else x
        np.testing.assert_allclose(np.einsum("bd,bk->bdk", x, factor.signal), expected, rtol=1e-4, atol=1e-5)


def test_a_softmax_entropy_is_the_mean_surprise():
    policy, observations = KINDS["softmax of vectors"]
    theta, x = theta_of(policy), jnp.asarray(observations)
    pi = np.asarray(jax.nn.softmax(policy.logits(theta, x)), np.float64)
    assert isinstance(policy, Entropic)
    np.testing.assert_allclose(policy.entropy(theta, x), -(pi * np.log(pi)).sum(axis=1), rtol=1e-5)


def test_a_gaussian_entropy_is_that_of_the_unsquashed_law():
    policy = GaussianMLP(Vectors(3), (4,), BOUNDS["none"])
    theta, x = theta_of(policy), jnp.asarray(VECTORS[0])
    keys = jax.random.split(jax.random.key(3), 20_000)
    actions = jax.jit(jax.vmap(lambda key: policy.sample(theta, x, key)))(keys)
    surprise = -jax.jit(jax.vmap(policy.log_prob, in_axes=(None, None, 0)))(theta, x, actions)
    spread = float(jnp.std(surprise)) / np.sqrt(len(keys))
    assert float(policy.entropy(theta, x)) == pytest.approx(float(jnp.mean(surprise)), abs=5 * spread)


def test_a_gaussian_entropy_has_a_value_for_each_observation_also_where_the_mean_is_zero():
    policy = GaussianMLP(Vectors(3), (4,), BOUNDS["none"])
    theta = jax.tree.map(jnp.zeros_like, theta_of(policy))
    found = policy.entropy(theta, VECTORS)
    np.testing.assert_array_equal(found, np.full(B, found[0]))
    assert np.isfinite(found[0])


def test_policies_start_where_they_say():
    softmax, gaussian = SoftmaxMLP(Vectors(3), (64, 64), 4), GaussianMLP(Vectors(3), (64, 64), BOUNDS["finite"])
    pi = jax.jit(lambda key: jax.nn.softmax(softmax.logits(softmax.init(key), VECTORS)))(jax.random.key(0))
    np.testing.assert_allclose(pi, 0.25, atol=0.02)
    middle = jax.jit(lambda key: gaussian.act(gaussian.init(key), VECTORS, jnp.zeros((B, 2))))(jax.random.key(0))
    np.testing.assert_allclose(middle, np.broadcast_to([-0.5, 5.0], (B, 2)), atol=0.15)


def test_a_network_has_one_matrix_per_layer():
    network = Network(Vectors(3), (6, 4), 2)
    assert [W.shape for W in network.init(jax.random.key(0))] == [(4, 6), (7, 4), (5, 2)]
    assert [W.shape for W in Network(States(5), (6,), 2).init(jax.random.key(0))] == [(5, 6), (7, 2)]
    weights = network.init(jax.random.key(0))
    x = 2 * VECTORS - 1
    hidden = np.tanh(np.tanh(x @ weights[0][:-1] + weights[0][-1]) @ weights[1][:-1] + weights[1][-1])
    outputs = hidden @ weights[2][:-1] + weights[2][-1]
    np.testing.assert_allclose(network(weights, VECTORS), outputs, rtol=1e-4, atol=1e-5)
