"""What rules see beyond the Gram matrix: two halves of a batch, gradients followed over time, the level of returns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import actor, algorithm, settings, weighting
from moac.config import Average, Config, Discounted
from moac.critic import LinearCritic
from moac.momdp import library
from moac.policies import SoftmaxTable
from moac.policies.features import OneHot
from moac.types import Batch

S, A, M, B = 4, 3, 2, 6
MODEL = library.random_ergodic(5, num_states=S, num_actions=A, num_objectives=M, num_successors=2)
GENERATOR = np.random.default_rng(2)  # both halves visit states 1 and 3
BATCH = Batch(
    observation=jnp.asarray(GENERATOR.integers(S, size=B)),
    action=jnp.asarray(GENERATOR.integers(A, size=B)),
    reward=jnp.asarray(GENERATOR.normal(size=(B, M)), jnp.float32),
    next_observation=jnp.asarray(GENERATOR.integers(S, size=B)),
)
DELTA = jnp.asarray(GENERATOR.normal(size=(B, M)), jnp.float32)
POLICY, THETA = SoftmaxTable(S, A), jnp.asarray(GENERATOR.normal(size=(S, A)), jnp.float32)


def compiled(function):
    """Compiled as a whole, and quickly."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def taken(g, lam):
    return g.cross, g.gram, g.direction(lam)


def rows(which, delta=DELTA):
    """gⁱ [M, S·A] of the chosen samples, by hand."""
    pi = np.asarray(jax.nn.softmax(THETA))
    G = np.zeros((M, S, A))
    for k in np.flatnonzero(which):
        s, a = int(BATCH.observation[k]), int(BATCH.action[k])
        G[:, s] += np.outer(delta[k], np.eye(A)[a] - pi[s]) / np.sum(which)
    return G.reshape(M, -1)


def test_halves_are_chains_where_they_are_even_and_time_where_not():
    np.testing.assert_array_equal(actor.first_half(6, 2), [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(actor.first_half(5, 1), [1, 1, 0, 0, 0])
    np.testing.assert_array_equal(actor.first_half(6, 3), [1, 1, 1, 0, 0, 0])
    with pytest.raises(ValueError, match="`actor_batch_size` must be at least 2 for a rule of two batches, got 1"):
        actor.first_half(1, 1)


@pytest.mark.parametrize(("count", "normalise"), [(3, "none"), (2, "l2")])
def test_the_gradients_of_halves_are_those_of_two_batches(count, normalise):
    first, lam = np.arange(B) < count, jnp.array([0.3, 0.7])
    seen, gram, direction = compiled(
        lambda theta: taken(actor.gradients(POLICY, theta, BATCH, DELTA, normalise, first), lam)
    )(THETA)
    G, halves = rows(np.ones(B, bool)), (rows(first), rows(~first))
    scale = 1 / np.linalg.norm(G, axis=1) if normalise == "l2" else np.ones(M)
    np.testing.assert_allclose(seen, np.outer(scale, scale) * (halves[0] @ halves[1].T), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gram, np.outer(scale, scale) * (G @ G.T), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.ravel(direction), (lam * scale) @ G, rtol=1e-4, atol=1e-6)


def test_a_rule_of_two_batches_is_shown_their_product_and_the_gram_matrix():
    """One update in which δ = r, for w starts at 0 and hardly moves; the rule keeps what it was shown."""
    rule = weighting.Rule(
        lambda M: (jnp.zeros((M, M)), jnp.zeros((M, M))),
        lambda state, seen, t: ((seen.cross, seen.gram), jnp.array([0.3, 0.7], jnp.float32)),
        weighting.Needs(cross=True),
    )
    sizes = {"num_critic_steps": 1, "critic_batch_size": B, "actor_batch_size": B}
    config = Config(num_iterations=1, **sizes, actor_step_size=0.1, critic_step_size=1e-9, policy="table")
    config = settings.resolve(config, MODEL.spec)
    init, update = algorithm.build(config, MODEL.spec, POLICY, LinearCritic(OneHot(S), M), rule)
    state = replace(compiled(init)(jax.random.key(0)), theta=THETA)
    state, metrics = compiled(update)(state, jax.tree.map(lambda x: x[None], BATCH), BATCH)

    first, reward = np.arange(B) < B // 2, np.asarray(BATCH.reward)
    G, G_1, G_2 = (rows(which, reward) for which in (np.ones(B, bool), first, ~first))
    np.testing.assert_allclose(state.rule, (G_1 @ G_2.T, G @ G.T), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics.gram, G @ G.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.ravel(state.theta - THETA), 0.1 * np.array([0.3, 0.7]) @ G, rtol=1e-3, atol=1e-6)
    assert min(np.abs(G @ G.T - G_1 @ G_2.T).max(), np.abs(G_1 @ G_2.T).max()) > 0.01


def test_moco_follows_the_gradients():
    beta, gamma, rho = 0.3, 0.2, 0.1
    rule = weighting.moco(beta, gamma, rho)
    state, Y, lam = algorithm.first_rule_state(rule, THETA, M), np.zeros((M, S * A)), np.full(M, 1 / M)

    @compiled
    def step(state, t):
        g = actor.gradients(POLICY, THETA, BATCH, t * DELTA)
        state, found, seen = algorithm.rule_step(rule, state, g, t, lambda: pytest.fail("it needs no values"))
        return state, found, seen.gram, seen.direction(found)

    for t in (1, 2, 3):
        state, found, gram, direction = step(state, jnp.asarray(t))
        Y = Y - beta * (Y - t * rows(np.ones(B, bool)))
        lam = lam - gamma * (Y @ Y.T + rho * np.eye(M)) @ lam
        lam = np.array([np.clip((1 + lam[0] - lam[1]) / 2, 0, 1), np.clip((1 + lam[1] - lam[0]) / 2, 0, 1)])
        np.testing.assert_allclose(found, lam, rtol=1e-4)
        np.testing.assert_allclose(gram, Y @ Y.T, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.ravel(direction), lam @ Y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("setting", [Discounted((0.5, 0.9)), Average()])
def test_a_rule_sees_the_reward_per_step(setting):
    rule = weighting.Rule(
        lambda M: (jnp.zeros(M), jnp.zeros(())),
        lambda state, seen, t: ((seen.level, jnp.max(seen.rewards)), jnp.full(M, 0.5)),
        weighting.Needs(values=True),
    )
    sizes = {"num_critic_steps": 1, "critic_batch_size": B, "actor_batch_size": B}
    config = Config(setting, num_iterations=1, **sizes, actor_step_size=0.1, critic_step_size=0.1, policy="table")
    init, update = algorithm.build(
        settings.resolve(config, MODEL.spec), MODEL.spec, POLICY, LinearCritic(OneHot(S), M), rule
    )
    critic_batch = jax.tree.map(lambda x: x[None], BATCH)
    state = compiled(init)(jax.random.key(0))
    state, _ = compiled(update)(replace(state, w=jnp.ones((S, M))), critic_batch, BATCH)
    average = isinstance(setting, Average)
    values = np.asarray(state.w)[np.asarray(BATCH.observation)].mean(axis=0)
    expected = state.mu if average else (1 - np.array(setting.discount)) * values
    np.testing.assert_allclose(state.rule[0], expected, rtol=1e-5)
    np.testing.assert_allclose(state.rule[1], np.max(BATCH.reward))


def test_momentum_keeps_the_scale_and_hands_on_what_the_inner_rule_asks_for():
    inverse = weighting.Rule(lambda M: (), lambda state, K, t: (state, 1 / jnp.sqrt(jnp.diagonal(K))), simplex=False)
    smoothed = weighting.with_momentum(inverse, "1/sqrt(t)")
    update = compiled(smoothed.update)
    state, lam = update(smoothed.init(2), 4 * jnp.eye(2), 1)
    np.testing.assert_allclose(lam, [0.5, 0.5], rtol=1e-5)
    _, lam = update(state, jnp.eye(2), 2)
    np.testing.assert_allclose(lam, np.full(2, (1 - 2**-0.5) * 0.5 + 2**-0.5), rtol=1e-5)
    assert weighting.with_momentum(weighting.modo(), "1").needs.cross
    watching = weighting.Rule(inverse.init, lambda state, seen, t: (seen.level, jnp.full(2, 0.5)))
    wrapped = weighting.with_momentum(replace(watching, needs=weighting.Needs(values=True)), "1")
    state, _ = wrapped.update(wrapped.init(2), weighting.Seen(jnp.eye(2), level=jnp.array([0.1, 0.2])), 1)
    np.testing.assert_allclose(state[0], [0.1, 0.2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: weighting.capped(1.5), "`cap` must be in (0, 1], got 1.5."),
        (lambda: weighting.cagrad(-1.0), "`c` must be at least 0 and finite, got -1.0."),
        (lambda: weighting.fairgrad(0.0), "`alpha` must be positive and finite, got 0.0."),
        (lambda: weighting.moco(tracking=2.0), "`tracking` must be in (0, 1], got 2.0."),
        (lambda: weighting.chebyshev(ideal=[np.inf]), "`ideal` must be a vector of finite numbers, one per objective"),
        (lambda: weighting.chebyshev(ideal=[1.0]).init(2), "`ideal` must hold one number per objective (2), got 1."),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value).startswith(message)


def test_every_name_makes_its_rule_and_says_what_the_theory_does_not_cover():
    for name in ("capped:0.6", "cagrad", "pcgrad", "imtl-g", "nash-mtl", "upgrad", "fairgrad:2", "moco", "modo"):
        assert weighting.by_name(name).needs.cross == (name == "modo")
        assert f"{name} weights" in settings.beyond_theory(Config(weighting=name))
    assert weighting.by_name("sdmgrad").needs.preference
    assert weighting.by_name("chebyshev:0.5").needs.values
    for name in ("min-norm", "preferred", "fixed", "uniform", "first-batch"):
        assert settings.beyond_theory(Config(weighting=name, weights=(1.0,) if name == "fixed" else None)) == ()
    for bad in ("capped:", "capped:0", "capped:x", "upgrad:1", "cagrad:1.2.3"):
        with pytest.raises(ValueError, match="`weighting` must be one of"):
            Config(weighting=bad)
