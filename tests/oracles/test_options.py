"""One update with networks and every option at once, against its definition; what is off leaves no trace."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moac
from moac import algorithm, beyond, settings
from moac import parts as components
from moac.config import Config, Discounted
from moac.momdp import library
from tests.helpers import reference

MODEL = library.random_ergodic(5, num_states=4, num_actions=3, num_objectives=3, num_successors=2, termination=0.15)
SIZES = {"num_iterations": 1, "num_critic_steps": 1, "critic_batch_size": 6, "actor_batch_size": 20}
STEPS = {"actor_step_size": 0.03, "critic_step_size": 0.02}
PLAIN = Config(setting=Discounted((0.6, 0.9, 0.75)), policy="mlp", critic="mlp", hidden=(5,), **SIZES, **STEPS)
EVERYTHING = replace(PLAIN, gae=0.7, entropy=0.3, gradient_clip=0.05)


def built(config):
    resolved = settings.resolve(config, MODEL.spec)
    parts = components.build(resolved, MODEL.spec, 0)
    init, update = algorithm.build(resolved, MODEL.spec, *parts)
    return resolved, parts, init, update


def batches(config, parts, theta):
    sizes = settings.sampling(config, MODEL.spec)
    _, critic, actor = MODEL.sample(MODEL.start(jax.random.key(0)), parts.policy, theta, jax.random.key(1), sizes)
    return critic, actor


def adam_step(gradient, size):
    """The first step of Adam: α g / (|g| + ε)."""
    return size * gradient / (np.abs(gradient) + 1e-8)


def clipped(tree, norm):
    length = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in tree))
    return [np.asarray(leaf) * min(1.0, norm / length) for leaf in tree]


def network(weights, s):
    """Outputs for states, by hand."""
    return jnp.tanh(weights[0][s]) @ weights[1][:-1] + weights[1][-1]


def test_one_update_with_everything_is_its_definition():
    config, parts, init, update = built(EVERYTHING)
    state = jax.jit(init)(jax.random.key(3))
    theta = jax.tree.map(lambda x: x + 0.5 * jax.random.normal(jax.random.key(7), x.shape), state.theta)
    state = replace(state, theta=theta)
    critic, actor = jax.jit(partial(batches, config, parts))(theta)
    found, metrics = jax.jit(update)(state, critic, actor)

    gamma = np.array(config.setting.discounts(3))
    first = jax.tree.map(lambda x: x[0], critic)
    w = td_step(state.w, first, gamma, config)
    np.testing.assert_allclose(found.w[0], w[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.w[1], w[1], rtol=1e-4, atol=1e-6)

    steps = reference.transitions(actor)
    delta = errors(w, steps, gamma)
    for k in range(len(steps) - 2, -1, -1):  # one chain: it goes on unless it ended
        delta[k] += (0.0 if steps[k].terminated else 1.0) * gamma * config.gae * delta[k + 1]
    s, a = (np.array([getattr(x, name) for x in steps]) for name in "sa")
    score = jax.grad(lambda theta, s, a: jax.nn.log_softmax(network(theta, s))[a])
    psi = jax.tree.map(np.asarray, jax.jit(jax.vmap(score, in_axes=(None, 0, 0)))(theta, s, a))
    G = [[np.tensordot(delta[:, i], psi[layer], 1) / 20 for layer in (0, 1)] for i in range(3)]
    flat = np.array([np.concatenate([np.ravel(leaf) for leaf in g]) for g in G])
    np.testing.assert_allclose(metrics.gram, flat @ flat.T, rtol=1e-3, atol=1e-7)
    lam = reference.min_norm(flat)
    np.testing.assert_allclose(metrics.weights, lam, atol=2e-3)

    def mean_entropy(theta):
        pi = jax.nn.softmax(network(theta, s))
        return -jnp.mean(jnp.sum(pi * jnp.log(pi), axis=1))

    bonus, weights = jax.jit(jax.grad(mean_entropy))(theta), np.asarray(metrics.weights)
    direction = [sum(weights[i] * G[i][layer] for i in range(3)) + 0.3 * bonus[layer] for layer in (0, 1)]
    for layer, cut in enumerate(clipped(direction, 0.05)):
        expected = np.asarray(theta[layer]) + adam_step(cut, 0.03)
        clear = np.abs(cut) > 1e-5  # where the sign of a step is not a matter of rounding
        np.testing.assert_allclose(np.asarray(found.theta[layer])[clear], expected[clear], rtol=1e-3, atol=1e-4)


def errors(w, steps, gamma):
    V = np.asarray(jax.jit(network)(w, np.arange(4)))
    return np.array([x.r + (0.0 if x.terminated else gamma * V[x.s_next]) - V[x.s] for x in steps])


def td_step(w, batch, gamma, config):
    """w after one semi-gradient step of Adam, clipped."""
    steps = reference.transitions(batch)
    held, s = errors(w, steps, gamma), np.array([x.s for x in steps])
    direction = jax.jit(jax.grad(lambda w: jnp.sum(held * network(w, s)) / len(steps)))(w)
    cut = clipped(direction, config.gradient_clip)
    return [np.asarray(leaf) + adam_step(g, config.critic_step_size) for leaf, g in zip(w, cut, strict=True)]


def lines(config):
    """Operations of the update's program."""
    config, parts, init, update = built(config)
    state = jax.eval_shape(init, jax.random.key(0))
    shapes = jax.eval_shape(lambda t: batches(config, parts, t), state.theta)
    return str(jax.make_jaxpr(update)(state, *shapes)).count("\n")


@pytest.mark.parametrize(
    "option",
    [{"gae": 0.9}, {"entropy": 0.1}, {"gradient_clip": 1.0}, {"optimiser": "adam"}, {"critic_optimiser": "adam"}],
    ids=lambda option: next(iter(option)),
)
def test_an_option_that_is_off_is_absent_from_the_program(option):
    plain = Config(**SIZES, **STEPS)
    off = {"gae": 0.0, "entropy": 0.0, "gradient_clip": None, "optimiser": "constant", "critic_optimiser": "constant"}
    name = next(iter(option))
    assert lines(plain) == lines(replace(plain, **{name: off[name]}))
    assert lines(plain) < lines(replace(plain, **option))


def test_constant_steps_remember_nothing():
    _, _, init, _ = built(Config(**SIZES, **STEPS))
    state = init(jax.random.key(0))
    assert jax.tree.leaves((state.actor_optimiser, state.critic_optimiser)) == []


def test_the_sampled_entropy_gradient_has_the_known_mean():
    """A policy of three functions gets the bonus from its log-probabilities: the same on average."""
    from moac.policies import SoftmaxTable
    from moac.types import Batch

    policy = SoftmaxTable(1, 3)
    theta = jnp.array([[0.5, -1.0, 0.2]])

    class Bare:
        init, sample, log_prob = policy.init, policy.sample, policy.log_prob

    states = jnp.zeros(200_000, int)
    actions = jax.random.categorical(jax.random.key(0), theta[0], shape=(200_000,))
    batch = Batch(states, actions, jnp.zeros((200_000, 1)), states)
    nothing = jnp.zeros_like(theta)
    resolved = settings.resolve(Config(entropy=2.0), MODEL.spec)
    exact = beyond.regularised(resolved, policy, theta, batch, nothing)
    regularised = jax.jit(partial(beyond.regularised, resolved, Bare()))
    sampled = regularised(theta, batch, nothing)
    np.testing.assert_allclose(sampled, exact, atol=0.02)
    same = replace(batch, action=jnp.zeros_like(actions))  # all alike: nothing to learn from, once it is centred
    np.testing.assert_allclose(regularised(theta, same, nothing), nothing, atol=1e-4)


def test_networks_are_trained_saved_and_loaded(tmp_path):
    how = {"policy": "mlp", "critic": "mlp", "hidden": (8,), "gae": 0.9, "weighting": "uniform"}
    config = Config(num_iterations=6, num_evaluations=2, **how)
    outcome = moac.train(MODEL, config, trials=3, seed=1)
    alone = moac.train(MODEL, config, trials=1, seed=1)
    for ours, single in zip(outcome.policy.theta, alone.policy.theta, strict=True):
        np.testing.assert_array_equal(ours[0], single[0])
    loaded = moac.load(outcome.save(tmp_path / "run"), trial=2)
    assert loaded.policy == outcome.policy.policy
    assert loaded.log_prob(1, 2) == pytest.approx(outcome.policy.of_trial(2).log_prob(1, 2), rel=1e-6)
    assert outcome.config.optimiser == "adam"
    assert np.isfinite(outcome.history.gap).all()


def test_what_the_theory_does_not_cover_is_named():
    assert settings.beyond_theory(settings.complete(Config(), MODEL.spec)) == ()
    named = settings.beyond_theory(settings.complete(EVERYTHING, MODEL.spec))
    assert named == ("an mlp critic", "a network's policy", "Adam", "clipped gradients", "an entropy bonus", "GAE")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gae": 1.5}, "`gae` must be in [0, 1], got 1.5."),
        ({"entropy": -0.1}, "`entropy` must be at least 0 and finite, got -0.1."),
        ({"gradient_clip": 0.0}, "`gradient_clip` must be positive and finite, got 0.0."),
        ({"hidden": (8, 0)}, "`hidden` must be a whole number of at least 1, got 0."),
        ({"critic": "mlp", "critic_start": "cold"}, "`critic_start` must be warm with an mlp critic"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError) as error:
        Config(**fields)
    assert str(error.value).startswith(message)


def test_a_gaussian_policy_needs_continuous_actions():
    with pytest.raises(ValueError, match="`policy` must be table, linear or mlp for discrete actions"):
        moac.train(MODEL, Config(policy="gaussian"))
