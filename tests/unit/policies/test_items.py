"""Scores of described items against plain NumPy, gradients against vector-Jacobian products, and new items."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import actor
from moac.policies import Items, ItemsPolicy, log_probs
from moac.policies.items import NEVER, WIDTH
from moac.policies.networks import Plain
from moac.policies.softmax import SHARP
from moac.types import Batch, Request

K, F, B, M, C = 13, 4, 9, 3, 6


def policy(embedding=True, hidden=(5,), seed=0):
    rng = np.random.default_rng(seed)
    items = Items.of(rng.normal(size=(K, 3)), np.arange(K) < 10)
    made = ItemsPolicy(Plain(F), hidden, items, embedding)
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    return made, tuple(jnp.asarray(rng.normal(0, 0.5, leaf.shape), jnp.float32) for leaf in shapes)


def requests(seed=1):
    """B states, with lists of two to C candidates that hold the action taken."""
    rng = np.random.default_rng(seed)
    x, listed = rng.normal(size=(B, F)).astype(np.float32), np.full((B, C), -1)
    for row in listed:
        n = rng.integers(2, C + 1)
        row[:n] = np.sort(rng.permutation(K)[:n])
    action = np.array([row[rng.integers((row >= 0).sum())] for row in listed])
    return Request(jnp.asarray(x), jnp.asarray(listed)), jnp.asarray(action)


def by_hand(made, theta, x):
    """f(s)·(g(x_a) + E_a) + h(x_a) + c_a in float64, one hidden layer."""

    def network(first, last, inputs):
        return np.tanh(inputs @ first[:-1] + first[-1]) @ last[:-1] + last[-1]

    f1, f2, g1, g2, *own = (np.asarray(W, np.float64) for W in theta)
    G = network(g1, g2, made.items.features.astype(np.float64))
    G = G + own[0] * made.items.known[:, None] if own else G
    return network(f1, f2, np.asarray(x, np.float64)) @ G[:, :WIDTH].T + G[:, WIDTH]


@pytest.mark.parametrize("embedding", [True, False])
def test_scores_are_those_of_two_networks_normalised_over_the_list_or_over_all(embedding):
    made, theta = policy(embedding)
    (request, action), score = requests(), by_hand(made, theta, requests()[0].x)
    log_prob, sample = jax.jit(made.log_prob), jax.jit(jax.vmap(made.sample, in_axes=(None, None, 0)))
    keys = jax.random.split(jax.random.key(0), 20)
    on_host = made.logits(tuple(map(np.asarray, theta)), np.asarray(request.x))
    assert isinstance(on_host, np.ndarray)
    np.testing.assert_allclose(on_host, score, rtol=1e-4, atol=1e-5)
    for row in range(B):
        listed = request.candidates[row][request.candidates[row] >= 0]
        among = np.exp(score[row, listed]) / np.exp(score[row, listed]).sum()
        own = jax.tree.map(lambda leaf, row=row: leaf[row], request)
        taken = float(log_prob(theta, own, action[row]))
        assert np.exp(taken) == pytest.approx(among[list(listed).index(action[row])], rel=1e-4)
        every = np.exp(log_prob(theta, request.x[row], action[row]))
        assert every == pytest.approx(np.exp(score[row, action[row]]) / np.exp(score[row]).sum(), rel=1e-4)
        assert set(sample(theta, own, keys).tolist()) <= set(listed.tolist())
    p = np.exp(jax.jit(lambda theta: log_probs(made, theta, request, K))(theta))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert (p[np.asarray(request.candidates) < 0] == 0).all() and made.logits(theta, request).min() == np.float32(NEVER)


@pytest.mark.parametrize(
    ("embedding", "listed", "hidden"),
    [(True, True, (5,)), (True, False, (6, 4)), (False, True, ()), (False, False, (5,))],
)
def test_factors_and_sums_give_the_gradients_of_vector_jacobian_products(embedding, listed, hidden):
    made, theta = policy(embedding, hidden)
    (request, action), rng = requests(), np.random.default_rng(2)
    weights = jnp.asarray(rng.normal(size=(B, M)), jnp.float32)
    batch = Batch(request if listed else request.x, action, weights, None)
    lam = jnp.array([0.5, 0.2, 0.3])

    @jax.jit  # operation by operation it would be 250 small programs
    def found(theta):
        parts, products = (how(made, theta, batch, weights) for how in (actor.of_parts, actor.of_products))
        chosen = actor.gradients(made, theta, batch, weights * B)
        return (parts.gram, parts.mix(lam)), (products.gram, products.mix(lam)), chosen.gram

    (gram, mixed), (expected, theirs), chosen = found(theta)
    np.testing.assert_allclose(gram, expected, rtol=2e-5, atol=1e-6 * float(expected.max()))
    for mine, one in zip(mixed, theirs, strict=True):
        np.testing.assert_allclose(mine, one, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(chosen, gram, rtol=1e-5)


def test_a_new_item_scores_by_its_features_alone():
    made, theta = policy()
    (request, action), new = requests(), ~made.items.known
    moved = (*theta[:-1], theta[-1] + np.float32(1) * new[:, None])
    np.testing.assert_array_equal(made.logits(theta, request), made.logits(moved, request))
    without = replace(made, embedding=False)
    x = np.asarray(request.x)
    np.testing.assert_array_equal(made.logits(theta, x)[:, new], without.logits(theta[:-1], x)[:, new])
    weights = jnp.ones((B, 1))
    batch = Batch(request.x, action, weights, None)
    gradient = jax.jit(lambda theta: actor.of_samples(made, theta, batch, weights).mix(jnp.ones(1)))(theta)
    assert not np.asarray(gradient[-1])[new].any() and np.asarray(gradient[-1])[~new].any()


def test_temperature_bias_and_popularity():
    made, theta = policy()
    (request, _), z = requests(), np.linspace(-1, 1, K)
    scores = np.asarray(made.logits(theta, request.x))
    np.testing.assert_allclose(made.logits(made.tempered(theta, 2.5), request.x), scores / 2.5, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made.logits(made.sharpened(theta), request.x), SHARP * scores, rtol=1e-3, atol=1e-2)
    for embedding in (True, False):
        one, own = policy(embedding)
        shifted, moved = one.shifted(own, z)
        there = np.asarray(shifted.logits(moved, request.x)) - np.asarray(one.logits(own, request.x))
        np.testing.assert_allclose(there, np.broadcast_to(np.where(one.items.known, z, 0), there.shape), atol=1e-4)
    log_share = np.log(np.arange(1, K + 1) / K)
    started = made.popular(made.init(jax.random.key(0)), log_share)
    known = made.items.known
    near = np.asarray(made.logits(started, request.x))
    np.testing.assert_allclose(near[:, known], np.broadcast_to(log_share[known], near[:, known].shape), atol=0.1)


def test_the_last_layer_is_what_embeddings_are_multiplied_with():
    made, theta = policy()
    request, _ = requests()
    h, b = made.last_layer(theta, request)
    p = np.exp(made.log_probs(theta, request))
    for row in range(B):
        listed = np.asarray(request.candidates[row])
        np.testing.assert_allclose(b[row, listed[listed >= 0]], p[row, listed >= 0], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(b).sum(axis=1), 1, rtol=1e-5)
    step = np.random.default_rng(3).normal(size=theta[-1].shape).astype(np.float32) * made.items.known[:, None]
    moved = np.asarray(made.logits((*theta[:-1], theta[-1] + step), request.x))
    np.testing.assert_allclose(moved - made.logits(theta, request.x), np.asarray(h) @ step.T, rtol=1e-3, atol=1e-3)


def test_items_are_equal_where_their_numbers_are():
    x = np.eye(3)
    assert Items.of(x) == Items.of(x.astype(np.float32)) != Items.of(x, [True, True, False])
    assert hash(policy()[0]) == hash(policy()[0]) and policy()[0] != policy(embedding=False)[0]
