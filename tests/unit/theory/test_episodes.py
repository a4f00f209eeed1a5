"""Certificates on a log: users in place of episodes, against the sums written out."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import moac
from moac.logs.arrays import About, Rows
from moac.logs.dataset import LoggedDataset
from moac.theory.episodes import Baseline, sampler, users
from moac.theory.scores import Scores

ACTIONS, USERS, ROWS = 3, 400, 5


@pytest.fixture(scope="module")
def result():
    """A policy on a log of a bandit with two contexts, whose propensities are known."""
    rng = np.random.default_rng(0)
    user, context = np.repeat(np.arange(USERS), ROWS), rng.integers(0, 2, (USERS * ROWS, 1))
    chance = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])[context[:, 0]]
    action = (rng.random(len(user))[:, None] > np.cumsum(chance, axis=1)[:, :-1]).sum(axis=1)
    reward = rng.random((len(user), 2)) + np.eye(3)[action][:, :2]
    propensity = chance[np.arange(len(user)), action]
    rows = Rows(user, action, reward, context=context, propensity=propensity)
    dataset = LoggedDataset.from_numpy(rows, About(shares=(0.4, 0.5, 0.1), window=1))
    return moac.train(dataset, num_iterations=1, num_evaluations=1, policy="mlp", hidden=(3,))


def test_actions_are_drawn_from_the_policy_mixed_with_the_uniform_one():
    model = moac.momdp.library.resource_gathering()
    trained = moac.train(model, num_iterations=1, num_evaluations=1).policy
    logits = np.tile(np.log([0.6, 0.2, 0.15, 0.05]).astype(np.float32), (model.num_states, 1))
    trained = replace(trained, theta=logits[None])
    episodes = sampler(model, trained, (0.9,) * 3, 0, 10.0)(0, 4000)
    first = np.searchsorted(episodes.number, np.arange(4000))
    share = np.bincount(episodes.action[first], minlength=4) / 4000
    drawn = np.array([0.6, 0.2, 0.15, 0.05]) / [
        episodes.weight[first][episodes.action[first] == a, 0][0] for a in range(4)
    ]
    assert drawn.sum() == pytest.approx(1) and drawn[3] > 0.05
    np.testing.assert_allclose(share, drawn, atol=4 * np.sqrt(0.25 / 4000))


def test_gradients_are_the_mean_over_rows_of_what_training_follows(result):
    dataset, trained, cap = result.run.source, result.policy, 1.5
    count, gamma = len(users(dataset)), (0.5, 0.2)
    episodes = sampler(dataset, trained, gamma, 0, cap)(0, count)
    rows = dataset.rows("validation")
    assert len(episodes.number) == len(rows) and set(np.diff(episodes.number)) == {0, 1}
    V = np.random.default_rng(1).normal(size=2)
    A = episodes.advantages(lambda x: np.repeat(V[None], len(x), axis=0), gamma)
    scores = Scores(trained.policy, trained.trial_theta)
    found = scores.sums(episodes.x, A, np.array([0, len(A)]))[0] / count

    x = np.asarray(dataset.features(dataset.observation(rows)))
    log_pi = jax.vmap(trained.policy.log_prob, in_axes=(None, 0, 0))
    rho = np.minimum(cap, np.exp(log_pi(trained.trial_theta, x, dataset.action[rows])) / dataset.propensity[rows])
    after = np.where(dataset.terminated[rows][:, None], 0.0, V)
    delta = rho[:, None] * (dataset.reward[rows] + np.array(gamma) * after - V)
    for i in range(2):
        total = jax.grad(lambda t, i=i: (log_pi(t, x, dataset.action[rows]) * delta[:, i]).mean())(trained.trial_theta)
        expected = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(total)])
        np.testing.assert_allclose(found[i], expected, rtol=1e-3, atol=1e-5)


def test_values_solve_the_projected_bellman_equation(result):
    episodes = sampler(result.run.source, result.policy, (0.5, 0.9), 0)(0, 150)
    V = Baseline.of(episodes, (0.5, 0.9))
    after = np.where(episodes.ended[:, None], 0.0, V(episodes.successor))
    error = episodes.weight * (episodes.reward + np.array([0.5, 0.9]) * after - V(episodes.observation))
    assert np.all(np.abs(error.mean(axis=0)) < 0.02 * np.abs(episodes.weight * episodes.reward).mean(axis=0))


def test_a_log_has_a_certificate_that_says_what_it_is_of(result):
    found = moac.certify(result, episodes=10_000)
    assert found.episodes == len(users(result.run.source))  # all there are
    assert 0 <= found.low <= found.high < np.inf
    assert "not that of the real system" in found.objective and "validation users" in found.objective
    with pytest.raises(ValueError, match="`until` must be left out on a log"):
        moac.certify(result, until=0.1)
