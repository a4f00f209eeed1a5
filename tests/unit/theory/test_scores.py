"""Sums of scores, slopes and the metric against scores that are formed one by one."""

import itertools

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from moac.policies import GaussianMLP, SoftmaxMLP, SoftmaxTable
from moac.policies.gaussian import Squash
from moac.policies.networks import States, Vectors
from moac.theory.scores import Metric, Scores

N = 70
RNG = np.random.default_rng(0)
STATES, ACTIONS = RNG.integers(0, 5, N).astype(np.int32), RNG.integers(0, 3, N).astype(np.int32)
BOX = Squash((-1.0,), (1.0,))
CASES = {
    "table": (SoftmaxTable(5, 3), (STATES, ACTIONS)),
    "mlp": (SoftmaxMLP(States(5), (4,), 3), (STATES, ACTIONS)),
    "gaussian": (
        GaussianMLP(Vectors(2), (3,), BOX),
        (RNG.random((N, 2), np.float32), RNG.uniform(-0.9, 0.9, (N, 1)).astype(np.float32)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_slopes_and_metric(name):
    policy, x = CASES[name]
    theta = jax.tree.map(lambda leaf: leaf + 0.3, policy.init(jax.random.key(0)))
    one = jax.jit(lambda o, a: ravel_pytree(jax.grad(policy.log_prob)(theta, o, a))[0])
    psi = np.stack([np.asarray(one(o, a)) for o, a in zip(*x, strict=True)]).astype(np.float64)
    scores, weights = Scores(policy, theta), RNG.normal(size=(N, 2))
    edges = np.array([0, 30, 31, N])
    groups = [weights[a:b].T @ psi[a:b] for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(scores.sums(x, weights, edges), groups, rtol=2e-4, atol=2e-4)
    v = RNG.normal(size=scores.size)
    np.testing.assert_allclose(scores.slopes(x, v), psi @ v, rtol=2e-4, atol=2e-4)

    weight = RNG.random(N) / N
    metric, F = Metric.of(scores, x, weight), psi.T @ (weight[:, None] * psi)
    assert metric.trace == pytest.approx(np.trace(F), rel=0.5)  # an estimate, which fixes ζ
    H = F + metric.zeta * np.eye(scores.size)
    rows = weights.T @ psi
    expected = np.linalg.solve(H, rows.T).T
    np.testing.assert_allclose(metric.solve(rows), expected, atol=2e-3 * np.abs(expected).max())
    assert metric.rank == pytest.approx(np.trace(F @ np.linalg.inv(H)), rel=0.5)


def test_what_a_score_never_touches_is_zero_in_the_solution():
    """A row with zeros, of a policy with a state that was not visited."""
    scores, x = Scores(SoftmaxTable(6, 3), np.zeros((6, 3), np.float32)), CASES["table"][1]
    rows = scores.sums(x, RNG.normal(size=(N, 1)), np.array([0, N]))[0]
    assert (rows[:, -3:] == 0).all()
    solved = Metric.of(scores, x, np.full(N, 1 / N)).solve(rows)
    assert np.isfinite(solved).all() and (solved[:, :-3] != 0).any() and (solved[:, -3:] == 0).all()


def test_the_metric_of_many_steps_is_that_of_some_spread_evenly():
    """Steps repeat, so that every fourth stands for all: the first ones alone would be of one state."""
    N = 4 * 1024
    states = np.repeat(np.arange(4), N // 4).astype(np.int32)
    x, weight = (states, (np.arange(N) % 3).astype(np.int32)), np.full(N, 1 / N)
    scores = Scores(SoftmaxTable(4, 3), np.zeros((4, 3), np.float32))
    metric = Metric.of(scores, x, weight)
    used, w = (np.asarray(leaf) for leaf in (metric.x[0], metric.weight))
    assert np.bincount(used[w > 0], minlength=4).tolist() == [256] * 4
    assert w.sum() == pytest.approx(1)
