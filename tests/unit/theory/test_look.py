"""What some episodes say of the gap, against the same numbers from scores that are formed one by one."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

from moac.policies import SoftmaxTable
from moac.theory import gap
from moac.theory.episodes import Baseline, Episodes
from moac.theory.scores import Scores

S, A, M, E, GAMMA, BOUND = 4, 3, 2, 120, (0.9, 0.6), 2.0
POLICY = SoftmaxTable(S, A)
FIRST = 30  # of the 120 episodes choose λ and d


@pytest.fixture(scope="module")
def look():
    """Episodes of one to five steps, with two objectives that disagree."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 6, E)
    number = np.repeat(np.arange(E), lengths)
    N = len(number)
    states, after, actions = (rng.integers(0, most, N).astype(np.int32) for most in (S, S, A))
    states[number < FIRST] %= S - 1  # so that one state is new to the baseline
    after[number < FIRST] %= S - 1
    ended = np.append(number[1:] != number[:-1], True)
    reward = np.column_stack([states + actions + rng.random(N), 2 - actions + rng.random(N)])
    reward[::7] = 0  # some steps give nothing
    weight = rng.uniform(0.5, 1.5, (N, M))
    episodes = Episodes(states, actions, reward, weight, after, ended, np.ones(N), ended, number, E)
    theta = jax.tree.map(lambda leaf: leaf + rng.normal(size=leaf.shape), POLICY.init(jax.random.key(0)))
    return gap.Look(Scores(POLICY, theta), episodes, GAMMA, BOUND)


@pytest.fixture(scope="module")
def plain(look):
    """Scores [N, P], V by states, errors and advantages, written out."""
    e, theta = look.episodes, look.scores.theta
    logits = np.asarray(jax.tree.leaves(theta)[0], np.float64).reshape(S, A)
    pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    psi = np.zeros((len(e.number), S, A))
    for row, (s, a) in enumerate(zip(e.observation, e.action, strict=True)):
        psi[row, s] = np.eye(A)[a] - pi[s]
    first, targets, decay = np.flatnonzero(e.number < FIRST), [], np.array(GAMMA) / max(GAMMA)
    for row in first:
        later = np.flatnonzero((e.number == e.number[row]) & (np.arange(len(e.number)) >= row))
        targets.append(sum(decay ** (k - row) * e.reward[k] for k in later))
    targets = np.array(targets)
    mean, V = targets.mean(axis=0), np.zeros((S, M))
    for s in range(S):
        mine = targets[e.observation[first] == s]
        V[s] = mean + (mine - mean).sum(axis=0) / (len(mine) + 1)
    after = np.where(e.ended[:, None], 0, V[e.successor])
    errors = e.weight * (e.reward + np.array(GAMMA) * after - V[e.observation])
    rows = np.arange(len(e.number))
    advantages = np.stack([errors[(e.number == e.number[k]) & (rows >= k)].sum(axis=0) for k in rows])
    return psi.reshape(len(psi), -1), V, errors, advantages


def test_the_baseline_is_the_mean_of_what_followed_with_one_visit_at_the_mean(look, plain):
    V = Baseline.of(look.episodes.part(0, FIRST), GAMMA)
    np.testing.assert_allclose(V(np.arange(S)), plain[1], rtol=1e-6)
    np.testing.assert_allclose(V(np.array([S - 1, S + 5])), np.stack([V.mean] * 2), rtol=1e-6)


@pytest.mark.parametrize("metric", ["theta", "natural"])
def test_evidence_is_what_the_sums_over_episodes_say(look, plain, metric):
    psi, _, errors, advantages = plain
    number = look.episodes.number
    per_episode = np.stack([advantages[number == k].T @ psi[number == k] for k in range(E)])  # [E, M, P]
    G = np.stack([per_episode[: FIRST // 2].mean(axis=0), per_episode[FIRST // 2 : FIRST].mean(axis=0)])
    np.testing.assert_allclose(look.norms, np.sqrt(np.maximum((G[0] * G[1]).sum(axis=1), 0)), rtol=1e-4, atol=1e-4)
    G = G.mean(axis=0)

    weight = look.episodes.weight[number < FIRST].max(axis=1) / FIRST
    F = psi[number < FIRST].T @ (weight[:, None] * psi[number < FIRST])
    signs = look.metric.signs
    assert look.metric.trace == pytest.approx(np.mean([v @ F @ v for v in signs]), rel=1e-3)
    H = np.eye(S * A) if metric == "theta" else F + look.metric.zeta * np.eye(S * A)
    found, raised = getattr(look, metric), np.linalg.solve(H, G.T).T
    gram = G @ raised.T
    lam = gap.min_norm(gram)
    np.testing.assert_allclose(found.weights, lam, atol=2e-3)

    def unit(weights):
        return weights @ raised / np.sqrt(weights @ gram @ weights)

    spread = (per_episode[:FIRST] @ unit(lam)).std(axis=0)
    d = unit(gap.cautious(gram, 2 * spread / np.sqrt(E - FIRST)))
    assert d @ H @ d == pytest.approx(1)
    slopes = per_episode @ d
    np.testing.assert_allclose(found.slopes, slopes, atol=0.01 * np.abs(slopes).max())
    edges = np.linspace(0, E - FIRST, gap.GROUPS + 1).astype(int)
    along = per_episode[FIRST:].transpose(0, 2, 1) @ found.weights
    Y = np.stack([along[a:b].mean(axis=0) for a, b in itertools.pairwise(edges)])
    kernel = Y @ np.linalg.solve(H, Y.T)
    np.testing.assert_allclose(found.kernel, kernel, atol=0.01 * np.abs(kernel).max())
    np.testing.assert_array_equal(found.kernel, found.kernel.T)
    reach = np.sqrt(look.metric.trace if metric == "theta" else look.metric.rank)
    sizes = [np.sqrt(((errors[number == k] @ found.weights) ** 2).sum()) * reach for k in range(E)]
    np.testing.assert_allclose(found.sizes, sizes, rtol=1e-3)
    assert found.silent == 0
    assert found.bounding == E - FIRST


def test_an_objective_that_was_never_rewarded_counts_with_the_largest_reward(look):
    unrewarded = replace(look.episodes, reward=look.episodes.reward * [1, 0])
    found = replace(look, episodes=unrewarded).theta
    np.testing.assert_allclose(found.weights, [0, 1], atol=1e-6)
    assert found.silent == pytest.approx(BOUND * np.sqrt(look.metric.trace), rel=1e-5)
