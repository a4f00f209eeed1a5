"""PDPG and TSCAC on logs of one state, whose answers are known."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from moac import simplex
from moac.logs import About, LoggedDataset, Rows
from moac.offline import behaviour
from moac.offline.baselines import Problem, pdpg, tscac

REWARDS = np.array([[1.0, 0.0, 0.2], [0.0, 1.2, 0.3], [0.5, 0.1, 0.9], [0.2, 0.3, 0.0]])
"""Of four actions, for three signals, without chance."""
ALIKE = np.tile([1.0, 2.0, 0.5], (4, 1))
ONE_STATE = {
    "discount": 0.0,
    "scale_rewards": False,
    "hidden": (),
    "start": "random",
    "batch_size": 64,
}


def rows_of(rewards=REWARDS, ended=False, **more):
    """A log of one state, no features at all, in which all four actions are equally frequent."""
    user, action = np.repeat(np.arange(120), 4), np.tile(np.arange(4), 120)
    rows = Rows(user, action, rewards[action], terminated=np.full(480, ended), **more)
    return LoggedDataset.from_numpy(rows, About(window=0, actions=np.ones((4, 1))))


@cache
def bandit(alike=False, ended=False):
    """The same with a behaviour model, which is uniform; `alike` are actions that all earn the same."""
    log = rows_of(ALIKE if alike else REWARDS, ended)
    return log.with_behaviour(behaviour.fit(log, behaviour.Options(hidden=(), max_rounds=1, step_size=1e-9)))


def probabilities(learned, trial=0):
    """π of the one state, from the biases that are all it has."""
    return softmax(np.asarray(learned.theta[-1][trial][-1], np.float64))


def gradients(pi, rewards):
    """[M, K] g_i = π∘(q_i − Σ π q_i): by the logits."""
    return (pi[:, None] * (rewards - pi @ rewards)).T


def pulled(q, pull):
    """The maximum of Σ π q + pull · Σ log π / K: stationary where π (q − ν) + pull / K = 0, ν such that Σ π = 1."""

    def policy(nu):
        return pull / len(q) / (nu - q)

    return policy(brentq(lambda nu: policy(nu).sum() - 1, q.max() + 1e-9, q.max() + 1e3))


@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_pdpg_weights_seek_the_min_norm_point(normalise):
    sizes = {"step_size": 1e-12, "critic_step_size": 0.03, "weight_step_size": 0.05}
    options = pdpg.Options(**ONE_STATE, **sizes, steps=1500, normalise=normalise)
    learned = pdpg.train(bandit(), options, trials=2)
    for trial in range(2):
        G = gradients(probabilities(learned, trial), REWARDS)
        exact = simplex.min_norm(G if normalise == "none" else G / np.linalg.norm(G, axis=1, keepdims=True))
        assert (exact.weights > 0.05).sum() == 3  # so that neither corners nor equal weights would do
        assert np.ptp(exact.weights) > 0.05
        np.testing.assert_allclose(learned.state.weights[trial], exact.weights, atol=2e-3)


def test_pdpg_ends_where_no_direction_helps_all():
    sizes = {"step_size": 0.01, "critic_step_size": 0.03, "weight_step_size": 0.05, "behaviour_pull": 0.0}
    options = pdpg.Options(**ONE_STATE, **sizes, steps=1500, normalise="none")
    learned = pdpg.train(bandit(), options, seed=3)
    pi = probabilities(learned)
    G = gradients(pi, REWARDS)
    assert simplex.min_norm(G).squared_norm < 1e-6
    assert simplex.min_norm(gradients(np.full(4, 0.25), REWARDS)).squared_norm > 1e-3
    assert pi[3] < 0.02  # worse than a mixture of the others for every signal


@pytest.mark.parametrize("seed", [0, 1])
def test_steps_of_weights_converge_to_the_min_norm_point(seed):
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((3, 4)) * rng.uniform(0.5, 2, (3, 1))
    w, K = np.full(3, 1 / 3, np.float32), np.float32(G @ G.T)
    w = jax.jit(lambda w, K: jax.lax.fori_loop(0, 2000, lambda _, w: pdpg.step_of_weights(w, K, 0.2), w))(w, K)
    np.testing.assert_allclose(w, simplex.min_norm(G).weights, atol=1e-5)


def test_tscac_is_exact_on_a_bandit():
    options = tscac.Options(
        **ONE_STATE,
        main="signal 2",
        steps=800,
        auxiliary_steps=800,
        step_size=0.03,
        critic_step_size=0.03,
        behaviour_pull=0.5,
        multiplier=0.4,
        weights=(0.7, 0.3),
    )
    learned = tscac.train(bandit(), options, trials=2)
    stages = np.asarray(learned.state.auxiliary_theta[-1][..., -1, :], np.float64)
    for trial in range(2):
        auxiliary = softmax(stages[trial], axis=-1)
        for own, q in zip(auxiliary, REWARDS[:, :2].T, strict=True):
            np.testing.assert_allclose(own, pulled(q, 0.5), atol=1e-3)
        mixed = np.array([0.7, 0.3]) @ log_softmax(stages[trial], axis=-1) + REWARDS[:, 2] / 0.4
        np.testing.assert_allclose(probabilities(learned, trial), softmax(mixed), atol=1e-3)
        exact = np.array([0.7, 0.3]) @ np.log([pulled(q, 0.5) for q in REWARDS[:, :2].T]) + REWARDS[:, 2] / 0.4
        np.testing.assert_allclose(probabilities(learned, trial), softmax(exact), atol=2e-3)


def test_the_closed_form_of_tscac_is_the_constrained_maximum():
    rng = np.random.default_rng(0)
    pis, A, weights, multiplier = rng.dirichlet(np.ones(5), 3), rng.standard_normal(5), np.array([0.2, 0.5, 0.3]), 0.7
    found = np.exp(tscac.closed_form(np.log(pis)[None], A[None], weights, multiplier))[0].astype(np.float64)

    def lagrangian(pi):
        return pi @ A - multiplier * weights @ np.sum(pi * np.log(pi / pis), axis=1)

    assert all(lagrangian(found) >= lagrangian(other) - 1e-6 for other in rng.dirichlet(np.ones(5), 500))
    near = found * np.exp(0.01 * rng.standard_normal((50, 5)))
    assert all(lagrangian(found) >= lagrangian(other / other.sum()) for other in near)


@pytest.mark.parametrize(("ended", "factor"), [(False, 2.0), (True, 1.0)])
def test_a_terminated_row_does_not_bootstrap_and_others_do(ended, factor):
    """Every action earns the same, so Q is r / (1 − γ), or r where nothing follows."""
    options = pdpg.Options(**(ONE_STATE | {"discount": 0.5}), steps=600, critic_step_size=0.05, target_step_size=0.2)
    bias = pdpg.train(bandit(True, ended), options).state.critic.w[-1][0, -1].reshape(3, 5)
    np.testing.assert_allclose(bias[:, :1] + bias[:, 1:], factor * ALIKE.T, atol=0.02)


@pytest.mark.parametrize("module", [pdpg, tscac])
def test_a_trial_depends_on_seed_and_index_alone(module):
    more = {"auxiliary_steps": 20} if module is tscac else {}
    options, log = module.Options(**ONE_STATE, steps=60, **more), bandit()
    several, one = module.train(log, options, trials=2, seed=5), module.train(log, options, trials=1, seed=5)
    for both, single in zip(several.theta, one.theta, strict=True):
        assert both.shape[0] == 2
        np.testing.assert_array_equal(both[:1], single)
        assert np.any(both[0] != both[1])
    np.testing.assert_allclose(several.state.weights.sum(axis=1), [1, 1], atol=1e-5)


def test_a_strong_pull_stays_at_the_behaviour_model():
    sizes = {"steps": 300, "step_size": 0.01, "critic_step_size": 0.03}
    free, held = (pdpg.train(bandit(), pdpg.Options(**ONE_STATE, **sizes, behaviour_pull=b)) for b in (0.0, 100.0))
    assert np.abs(probabilities(held) - 0.25).max() < 0.01 < 0.1 < np.abs(probabilities(free) - 0.25).max()


def test_without_a_model_the_supervised_term_is_the_logged_likelihood():
    log = rows_of(propensity=np.full(480, 0.25))
    own = Problem.of(log, pdpg.Options(start="random", hidden=(8,), behaviour_pull=0.5, batch_size=16))

    @jax.jit
    def drawn(data):
        batch = own.draw(data, jax.random.key(0))
        theta = jax.tree.map(lambda W: W * 30, own.first(data, jax.random.key(1)))
        log_pi = own.log_pi(theta, batch.observation)
        return batch, log_pi, own.regularisation(log_pi, batch)

    batch, log_pi, term = drawn(log.data)
    by_hand = 0.5 * np.mean(np.asarray(log_pi)[np.arange(16), np.asarray(batch.action)])
    np.testing.assert_allclose(term, by_hand, rtol=1e-5)
    spread = log.reward[log.rows("train")].std(axis=0)
    np.testing.assert_allclose(batch.reward, REWARDS[np.asarray(batch.action)] / spread, rtol=1e-5)


@pytest.mark.parametrize(
    ("module", "options", "named"),
    [
        (pdpg, {"steps": 0}, "steps"),
        (pdpg, {"step_size": float("nan")}, "step_size"),
        (pdpg, {"discount": 1.0}, "discount"),
        (pdpg, {"start": "zero"}, "start"),
        (pdpg, {"hidden": (0,)}, "hidden"),
        (pdpg, {"weight_step_size": 0.0}, "weight_step_size"),
        (pdpg, {"normalise": "l1"}, "normalise"),
        (tscac, {"multiplier": -1.0}, "multiplier"),
        (tscac, {"weights": (0.5, 0.6)}, "weights"),
        (tscac, {"auxiliary_steps": 1.5}, "auxiliary_steps"),
    ],
)
def test_bad_options_are_named(module, options, named):
    with pytest.raises(ValueError, match=f"`{named}` must"):
        module.Options(**options)


def test_what_does_not_fit_the_log_is_named():
    log = rows_of(propensity=np.full(480, 0.25))
    with pytest.raises(ValueError, match=r"`start` must be random.*no behaviour model"):
        pdpg.train(log)
    with pytest.raises(ValueError, match="`main` must be one of signal 0"):
        tscac.train(log, tscac.Options(main="Click", start="random"))
    with pytest.raises(ValueError, match=r"one per auxiliary signal \(2\), got 3"):
        tscac.train(log, tscac.Options(weights=(0.2, 0.2, 0.6), start="random"))
    with pytest.raises(ValueError, match="`trials` must be"):
        pdpg.train(log, pdpg.Options(start="random"), trials=0)


def test_the_one_auxiliary_signal_of_two_has_the_whole_weight():
    two, few = rows_of(REWARDS[:, :2], propensity=np.full(480, 0.25)), {"steps": 2, "auxiliary_steps": 2}
    learned = tscac.train(two, tscac.Options(**ONE_STATE, **few))
    np.testing.assert_array_equal(learned.state.weights[0], [1, 0])
