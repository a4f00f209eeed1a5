"""Learning from a log: one update against its definition in NumPy, and policies whose true worth is known."""

from collections import deque
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moac
from moac import algorithm, beyond, settings, simplex, training
from moac import parts as components
from moac.logs import About, LoggedDataset, Rows
from moac.offline import behaviour, evaluate
from moac.policies import SoftmaxTable
from moac.training import result
from moac.types import Batch

CONFIG = moac.Config(
    setting=moac.Discounted((0.5, 0.8)), num_iterations=3, num_critic_steps=2, critic_batch_size=6, actor_batch_size=9,
    actor_step_size=0.3, critic_step_size=0.2, hidden=(), optimiser="constant", critic_optimiser="constant",
    importance_cap=1.03, behaviour_pull=0.7, num_evaluations=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def small():
    rng, n = np.random.default_rng(3), 300
    rows = Rows(
        user=rng.integers(0, 40, n), action=rng.integers(0, 4, n), reward=rng.random((n, 2)),
        context=rng.integers(0, 3, (n, 1)), terminated=rng.random(n) < 0.2,
    )  # fmt: skip
    dataset = LoggedDataset.from_numpy(rows, About(users=rng.random((40, 2)), window=2))
    model = behaviour.fit(dataset, behaviour.Options(hidden=(), max_rounds=2))
    return evaluate.with_estimator(dataset.with_behaviour(model))


def softmax(logits):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def with_one(x):
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)


class ByHand:
    """The update in float64, one transition after the other."""

    def __init__(self, theta, features):
        self.theta, self.w = np.array(theta, np.float64), np.zeros((features + 1, 2))

    def phi(self, x):
        return np.concatenate([[1.0], x]) / np.sqrt(len(x) + 1)

    def signals(self, batch):
        for k in range(len(batch.action)):
            x, a = np.asarray(batch.observation[k], float), int(batch.action[k])
            pi = softmax(with_one(x) @ self.theta)
            rho = min(CONFIG.importance_cap, pi[a] / np.exp(float(batch.behaviour_log_prob[k])))
            goes_on = 0.0 if batch.terminated[k] else 1.0
            ahead = goes_on * self.w.T @ self.phi(np.asarray(batch.next_observation[k], float))
            delta = np.asarray(batch.reward[k], float) + np.array([0.5, 0.8]) * ahead - self.w.T @ self.phi(x)
            yield x, pi, a, rho * delta

    def update(self, critic, actor):
        for n in range(2):
            batch = jax.tree.map(lambda leaf, n=n: leaf[n], critic)
            steps = [np.outer(self.phi(x), delta) for x, _, _, delta in self.signals(batch)]
            self.w = self.w + CONFIG.critic_step_size * np.mean(steps, axis=0)
        g, pull = np.zeros((2, *self.theta.shape)), np.zeros_like(self.theta)
        for k, (x, pi, a, delta) in enumerate(self.signals(actor)):
            g += delta[:, None, None] * np.outer(with_one(x), np.eye(4)[a] - pi) / 9
            pull += np.outer(with_one(x), softmax(np.asarray(actor.behaviour_log_probs[k], float)) - pi) / 9
        g /= np.sqrt((g**2).sum(axis=(1, 2), keepdims=True))
        lam = simplex.min_norm(g.reshape(2, -1)).weights
        self.theta = self.theta + CONFIG.actor_step_size * (np.tensordot(lam, g, 1) + CONFIG.behaviour_pull * pull)
        return lam


def test_one_update_is_its_definition(small):
    config = settings.resolve(CONFIG, small.spec)
    parts = components.build(config, small.spec, 0)
    init, update = algorithm.build(config, small.spec, *parts)
    theta = small.initial()
    state = replace(jax.jit(init)(jax.random.key(0)), theta=theta)
    sizes = settings.sampling(config, small.spec)
    sample = jax.jit(lambda data, key: small.bound(data).sample((), parts.policy, theta, key, sizes))
    _, critic, actor = jax.tree.map(np.asarray, sample(small.data, jax.random.key(1)))
    state, metrics = jax.jit(update)(state, critic, actor)
    by_hand = ByHand(theta[0], small.num_features)
    lam = by_hand.update(critic, actor)
    np.testing.assert_allclose(state.w, by_hand.w, atol=2e-6)
    np.testing.assert_allclose(metrics.weights, lam, atol=2e-4)
    np.testing.assert_allclose(state.theta[0], by_hand.theta, atol=2e-5)
    weights = jax.jit(lambda batch: beyond.with_ratios(parts.policy, np.inf, theta, batch).weight)(critic)
    assert (np.asarray(weights) > config.importance_cap).any()  # so that the cap was tried


def test_what_the_policy_itself_chose_weighs_one():
    policy = SoftmaxTable(3, 4)
    theta = jax.random.normal(jax.random.key(0), (3, 4))
    s, a = jnp.array([0, 1, 2, 1]), jnp.array([3, 0, 1, 2])
    own = jax.jit(jax.vmap(policy.log_prob, in_axes=(None, 0, 0)))(theta, s, a)
    batch = Batch(s, a, jnp.zeros((4, 1)), s, behaviour_log_prob=own)
    np.testing.assert_allclose(beyond.with_ratios(policy, 10.0, theta, batch).weight, np.ones(4), rtol=1e-6)
    there = replace(batch, behaviour_log_prob=None)
    assert beyond.with_ratios(policy, 10.0, theta, there) is there


def test_the_pull_of_logged_actions_is_that_of_the_model_on_average(small):
    policy, theta, b = SoftmaxTable(1, 3), jnp.array([[0.5, -1.0, 0.2]]), np.log([0.2, 0.5, 0.3])
    s = np.zeros(100_000, int)
    a = np.random.default_rng(0).choice(3, len(s), p=np.exp(b))
    logged = Batch(s, a, np.zeros((len(s), 1)), s)
    known = Batch(s[:5], a[:5], logged.reward[:5], s[:5], behaviour_log_probs=np.tile(np.float32(b), (5, 1)))
    pulled = replace(settings.resolve(CONFIG, small.spec), behaviour_pull=2.0)
    pull = jax.jit(partial(beyond.regularised, pulled, policy))
    exact = 2 * (np.exp(b) - softmax(np.asarray(theta[0])))
    np.testing.assert_allclose(pull(theta, known, jnp.zeros_like(theta))[0], exact, atol=1e-6)
    np.testing.assert_allclose(pull(theta, logged, jnp.zeros_like(theta))[0], exact, atol=0.01)


def test_a_start_from_the_behaviour_model_is_behavior_clone(small):
    rows = small.rows("validation")
    policy = components.build(settings.resolve(CONFIG, small.spec), small.spec, 0).policy
    clone = jax.tree.map(lambda leaf: leaf[None], small.initial())
    np.testing.assert_allclose(evaluate.probabilities(small, policy, clone, rows)[0], small.propensity[rows], rtol=1e-5)
    value = small.evaluate(policy, clone, None)
    np.testing.assert_allclose(value.returns[0], small.reward[rows].mean(axis=0), rtol=1e-5)
    assert value.kind == "ncis"


VALUE = np.array([[0.2, 0.2], [0.5, 0.5], [0.85, 0.15], [0.15, 0.85]])
"""Of the four actions of a bandit."""
RISING = moac.Config(
    setting=moac.Discounted(0.1), num_iterations=200, hidden=(), actor_step_size=0.02, behaviour_pull=0.0,
    num_evaluations=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def bandit():
    """A log of the bandit, made uniformly."""
    rng, n = np.random.default_rng(0), 8_000
    action = rng.integers(0, 4, n)
    reward = (rng.random((n, 2)) < VALUE[action]).astype(float)
    rows = Rows(user=rng.integers(0, 500, n), action=action, reward=reward, propensity=np.full(n, 0.25))
    return evaluate.with_estimator(LoggedDataset.from_numpy(rows, About(window=1, history_responses=False)))


def test_both_objectives_of_a_bandit_rise_to_what_is_known_to_be_possible(bandit):
    """Logged uniformly: (0.425, 0.425). No policy has more than 0.5 of both; the second action alone has it."""
    outcome = moac.train(bandit, RISING, trials=2)
    x = evaluate.features(bandit, bandit.rows("train")[:200])
    for trial in range(2):
        logits = outcome.policy.policy.logits(jax.tree.map(lambda leaf, k=trial: leaf[k], outcome.policy.theta), x)
        truth = (softmax(np.asarray(logits)) @ VALUE).mean(axis=0)
        assert (truth > 0.46).all()
        np.testing.assert_allclose(outcome.returns[trial], truth, atol=0.1)


def test_a_trial_depends_on_its_index_alone_and_goes_on_where_it_stopped(bandit):
    short = replace(RISING, num_iterations=3)
    three = result.prepare(bandit, short, 3, seed=5)
    whole = list(training.iterate(three))[-1]
    alone = moac.train(bandit, short, trials=1, seed=5)
    np.testing.assert_array_equal(whole.trials.state.theta[0][0], alone.policy.theta[0][0])
    often = replace(short, num_evaluations=3)
    first = next(training.iterate(result.prepare(bandit, often, 3, seed=5)))
    assert first.iteration == 1
    (again,) = deque(training.iterate(three, first), maxlen=1)
    np.testing.assert_array_equal(again.trials.state.theta[0], whole.trials.state.theta[0])
