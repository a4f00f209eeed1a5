import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from moac.policies import Accumulating, Factored, Sharpening, SoftmaxLinear, SoftmaxMLP, SoftmaxTable, features
from moac.policies.networks import States

S, A = 5, 3
TABLE = features.table(np.random.default_rng(0).normal(size=(S, 2)))
POLICIES = {
    "table": SoftmaxTable(S, A),
    "linear": SoftmaxLinear(TABLE, A),
    "linear, one-hot": SoftmaxLinear(features.OneHot(S), A),
    "linear, without a state": SoftmaxLinear(features.OneHot(S, reference=1), A),
}
of_all = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
STATES = jnp.array([0, 3, 1, 1, 4, 2, 3])
ACTIONS = jnp.array([2, 0, 1, 2, 0, 0, 0])


def theta_of(policy, seed=1):
    shape = policy.init(jax.random.key(0)).shape
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def feature_matrix(policy):
    return np.eye(S) if isinstance(policy, SoftmaxTable) else policy.features.table()


def autodiff_scores(policy, theta):
    """∇ log π [B, …] of each pair by automatic differentiation."""
    return jax.jit(jax.vmap(jax.grad(policy.log_prob), in_axes=(None, 0, 0)))(theta, STATES, ACTIONS)


@of_all
def test_log_probabilities_are_those_of_a_softmax(policy):
    theta = theta_of(policy)
    logits = feature_matrix(policy) @ np.asarray(theta, np.float64)
    pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    shown = jax.jit(jax.vmap(policy.log_prob, in_axes=(None, 0, 0)))(theta, STATES, ACTIONS)
    np.testing.assert_allclose(np.exp(shown), pi[STATES, ACTIONS], rtol=1e-5)


@of_all
def test_the_first_policy_is_uniform(policy):
    theta = policy.init(jax.random.key(0))
    np.testing.assert_allclose(policy.log_prob(theta, jnp.array(1), 2), -np.log(A), rtol=1e-6)


@of_all
def test_factors_multiply_to_the_score(policy):
    theta = theta_of(policy)
    assert isinstance(policy, Factored)
    (factor,) = jax.jit(policy.factors)(theta, STATES, ACTIONS)
    inputs = np.asarray(factor.inputs)
    inputs = np.eye(S)[inputs] if inputs.ndim == 1 else inputs
    psi = np.einsum("bd,ba->bda", inputs, factor.signal)
    np.testing.assert_allclose(psi, autodiff_scores(policy, theta), atol=1e-6)
    np.testing.assert_allclose(np.sum(factor.signal, axis=1), 0, atol=1e-6)


def test_a_table_accumulates_its_scores():
    policy = POLICIES["table"]
    assert isinstance(policy, Accumulating)
    theta, signal = theta_of(policy), np.random.default_rng(2).normal(size=(7, 3)).astype(np.float32)
    rows = policy.accumulate(theta, STATES, ACTIONS, jnp.asarray(signal))
    expected = np.einsum("bi,bsa->isa", signal, autodiff_scores(policy, theta))
    np.testing.assert_allclose(np.stack(rows), expected, atol=1e-5)


@of_all
def test_actions_are_drawn_from_the_policy(policy):
    theta, n = theta_of(policy), 6000
    keys = jax.random.split(jax.random.key(3), n)
    drawn = np.asarray(jax.vmap(policy.sample, in_axes=(None, None, 0))(theta, jnp.array(3), keys))
    log_pi = [policy.log_prob(theta, jnp.array(3), a) for a in range(A)]
    chances = np.exp(np.asarray(log_pi, np.float64))
    assert stats.chisquare(np.bincount(drawn, minlength=A), n * chances / chances.sum()).pvalue > 1e-3
    assert stats.chisquare(np.bincount(drawn, minlength=A)).pvalue < 1e-9  # the uniform policy does not fit


@of_all
def test_large_logits_neither_overflow_nor_vanish(policy):
    theta = 1e4 * jnp.sign(theta_of(policy))
    (factor,) = jax.jit(policy.factors)(theta, STATES, ACTIONS)
    log_pi = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, STATES, ACTIONS)
    assert np.isfinite(factor.signal).all()
    assert np.isfinite(log_pi).all()
    assert np.max(log_pi) <= 0


@pytest.mark.parametrize("policy", [*POLICIES.values(), SoftmaxMLP(States(S), (7,), A)], ids=[*POLICIES, "mlp"])
def test_a_sharpened_policy_takes_its_likeliest_action(policy):
    """Of several trials at once; actions that are equally likely stay so."""
    start, noise = policy.init(jax.random.key(0)), jax.random.key(1)
    one = jax.tree.map(lambda leaf: leaf + jax.random.normal(noise, leaf.shape), start)
    theta = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), one)
    assert isinstance(policy, Sharpening)
    sharp = policy.sharpened(theta)
    for k in range(2):
        before, after = (policy.logits(jax.tree.map(lambda x, k=k: x[k], which), STATES) for which in (theta, sharp))
        likeliest = before == before.max(axis=1, keepdims=True)
        np.testing.assert_allclose(jax.nn.softmax(after), likeliest / likeliest.sum(axis=1, keepdims=True), atol=1e-6)
