"""The parts of the actor's study against what they stand for: the oracle, the package's rules, brute force."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import momdp, simplex, weighting
from moac.config import Average, Discounted
from moac.types import Sampling
from moac_studies import actor_law, actor_momentum, framework, small_problems
from moac_studies.small_problems import LinearLogits, padded, problem_of, sample, stacked

SETTINGS = (Discounted(0.7), Average())
NAMES = {"η = 1": "1", "η = 1/√t": "1/sqrt(t)", "η = 1/t": "1/t", "η = 1/t²": "1/t^2", "η = 0": "0"}


gradients = jax.jit(small_problems.gradients, static_argnums=(2, 3))


def random_model(seed=3, states=3, actions=2, objectives=2, termination=0.2):
    return momdp.library.random_ergodic(seed, states, actions, objectives, termination=termination)


@pytest.mark.parametrize(
    ("setting", "law"), [(SETTINGS[0], "own"), (SETTINGS[0], "stationary"), (SETTINGS[1], "stationary")]
)
def test_the_closed_form_agrees_with_the_oracle(setting, law, x64):
    model, theta = random_model(), np.random.default_rng(0).normal(size=6)
    exact = momdp.evaluate(model, theta.reshape(3, 2), setting)
    expected = exact.gradient if law == "own" else exact.direction
    found = gradients(problem_of(model), jnp.asarray(theta), setting, law)
    np.testing.assert_allclose(found, expected.reshape(2, 6), atol=1e-13)


def test_gradients_of_linear_logits_are_those_of_the_logits_times_the_features(x64):
    model, lot = random_model(), np.random.default_rng(1)
    features, theta = lot.normal(size=(3, 2, 2)), lot.normal(size=2)
    exact = momdp.evaluate(model, features @ theta, SETTINGS[0])
    found = gradients(problem_of(model, features), jnp.asarray(theta), SETTINGS[0])
    np.testing.assert_allclose(found, np.einsum("msa,sap->mp", exact.gradient, features), atol=1e-13)


def test_gaps_of_stacked_problems_are_the_oracles():
    models, theta = [random_model(seed) for seed in (0, 1)], np.random.default_rng(2).normal(size=(2, 4, 6))
    found = small_problems.gaps(stacked([problem_of(model) for model in models]), theta, SETTINGS[0])
    expected = [momdp.evaluate(m, t.reshape(4, 3, 2), SETTINGS[0]).gap for m, t in zip(models, theta, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_padding_changes_nothing(x64):
    small = actor_momentum.unequal_scales()
    large, theta = padded(small, (2, 4, 5), 3), np.array([0.3, -0.2, 0.5])
    expected = gradients(small, jnp.asarray(theta), SETTINGS[0])
    found = gradients(large, jnp.asarray(np.pad(theta, (0, 2))), SETTINGS[0])
    np.testing.assert_allclose(found[:, :3], expected, atol=1e-14)
    np.testing.assert_allclose(found[:, 3:], 0.0, atol=1e-14)


@pytest.mark.parametrize("label", NAMES)
def test_a_schedule_as_data_is_the_packages_momentum(label, x64):
    own, package = small_problems.momentum_rule(), weighting.with_momentum(weighting.min_norm(), NAMES[label])
    state = (own.init(2)[0], *(x[0] for x in small_problems.exponents((label,))))
    other = package.init(2)
    for t in range(1, 5):
        G = jnp.asarray(np.random.default_rng(t).normal(size=(2, 3)))
        state, lam = own.update(state, G @ G.T, t)
        other, expected = package.update(other, G @ G.T, t)
        np.testing.assert_allclose(lam, expected, atol=1e-12)


def test_first_batch_weights_never_move(x64):
    state = (
        small_problems.momentum_rule().init(2)[0],
        *(x[0] for x in small_problems.exponents((small_problems.FIRST_BATCH,))),
    )
    kept = []
    for t in (1, 2, 50):
        G = jnp.asarray(np.random.default_rng(t).normal(size=(2, 3)))
        state, lam = small_problems.momentum_rule().update(state, G @ G.T, t)
        kept.append(np.asarray(lam))
    np.testing.assert_array_equal(kept[1], kept[0])
    np.testing.assert_array_equal(kept[2], kept[0])


@pytest.mark.parametrize("survival", [None, 0.7])
def test_samples_visit_states_and_outcomes_as_it_should(survival):
    model = random_model()
    sizes = Sampling(1, 8, 40_000, False, survival)
    drawn = jax.jit(lambda own, key: sample(own, jnp.asarray(0), jnp.zeros(6), key, sizes))
    _, critic, batch = drawn(problem_of(model), jax.random.key(0))
    assert critic.reward.shape == (1, 8, 2)
    uniform = np.full((1, 3, 2), 0.5)
    law = momdp.evaluate(model, np.zeros((3, 2)), SETTINGS[0]).stationary
    if survival is not None:
        moves = momdp.chain.induced(model, uniform).proceed
        law = momdp.chain.visitation(moves, model.start_distribution, survival)[0]
    np.testing.assert_allclose(np.bincount(batch.observation, minlength=3) / 40_000, law / law.sum(), atol=0.015)
    expected = momdp.chain.expected_reward(model)
    for s, a in itertools.product(range(3), range(2)):
        here = (batch.observation == s) & (batch.action == a)
        np.testing.assert_allclose(np.asarray(batch.reward)[here].mean(axis=0), expected[s, a], atol=0.03)


def test_exact_ascent_takes_the_steps_of_the_oracle():
    own, how = stacked([problem_of(random_model())]), (0.5, SETTINGS[0], "own")
    mean_gap, theta = small_problems.exact_ascent(own, ("η = 1",), how, np.array([1, 2]))
    x, gaps = np.zeros((3, 2)), []
    for _ in range(2):
        exact = momdp.evaluate(random_model(), x, SETTINGS[0])
        gaps.append(exact.gap)
        x = x + 0.5 * np.einsum("m,msa->sa", exact.weights, exact.gradient)
    np.testing.assert_allclose(theta[0, 0, -1], x.reshape(-1), atol=1e-12)
    np.testing.assert_allclose(mean_gap[0, 0], [gaps[0], np.mean(gaps)], rtol=1e-10)


def test_the_expected_step_is_the_mean_over_all_batches(x64):
    own, theta = actor_momentum.action_features(), jnp.asarray([0.3, -0.2])
    policy = LinearLogits(own)
    tabulated = jax.jit(lambda theta: (policy.tabulate(theta)[0], policy.scores(theta)[0], own.reward[0, :, 0]))
    pi, psi, reward = map(np.asarray, tabulated(theta))
    advantage, total = reward - pi @ reward, 0.0
    for pair in itertools.product(range(4), repeat=2):
        G = np.mean([advantage[a][:, None] * psi[a] for a in pair], axis=0)
        total = total + pi[pair[0]] * pi[pair[1]] * simplex.min_norm(np.asarray(G)).direction
    batches = tuple(jnp.asarray(x) for x in actor_momentum.multisets(4, 2))
    np.testing.assert_allclose(actor_momentum.expected_step(own, theta, batches), total, atol=1e-12)


def test_objectives_that_differ_in_noise_alone_have_one_gradient():
    for M in (2, 5):
        model = actor_law.noise_only(M)
        exact = momdp.evaluate(model, [[0.4, -0.1]], SETTINGS[0])
        np.testing.assert_allclose(
            exact.gradient, np.broadcast_to(exact.gradient[:1], exact.gradient.shape), atol=1e-15
        )
        noise = model.reward[0, 0] - 0.6
        np.testing.assert_allclose(noise.T @ noise / 64, 0.16 * np.eye(M), atol=1e-15)


def test_the_spec_says_what_each_measurement_needs():
    full, quick = (framework.load("actor-rate", quick) for quick in (False, True))
    assert full.parameters.keys() == quick.parameters.keys()
    assert {"exact", "learned", "noise", "law", "objectives", "momentum"} == set(full.parameters)
