"""What the actor's samples are worth in expectation: ∇J with discounted visitation, Lemma 1's direction without.

With the exact critic, the mean of (γⁱ/c)^k δⁱ ψ over the chain that restarts with chance 1 − c is K ∇Jⁱ, with one K
for all objectives. Worked out from the model's table, and met by the real sampler and update within sampling error.
"""

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moac
from moac import algorithm, momdp, settings
from moac import parts as components
from moac.config import Discounted
from moac.momdp import library
from tests.helpers import closed_form

GAMMAS = (0.45, 0.8)
SURVIVAL = max(GAMMAS)
OLDEST = 160  # 0.8^160 = 3e-16
MODELS = {
    "episodic": library.random_ergodic(1, num_states=4, num_actions=3, num_successors=2, termination=0.2),
    "continuing": library.random_ergodic(2, num_states=4, num_actions=3, num_successors=2),
    "one start": momdp.FiniteMOMDP.from_dense(
        [[[0.1, 0.9, 0], [0, 0.2, 0.8]], [[0.5, 0, 0.5], [0, 1, 0]], [[1, 0, 0], [0, 0.5, 0.5]]],
        [[[1, 0], [0, -1]], [[0, 2], [3, 0]], [[0, 1], [-1, 0]]],
        start=[0, 0, 1],
        terminal=np.broadcast_to([0.0, 0.5, 0.1], (3, 2, 3)),
    ),
}
on_models = pytest.mark.parametrize("name", MODELS)


def logits_of(model):
    return np.random.default_rng(7).normal(size=(model.num_states, model.num_actions))


def policy_of(model):
    weight = np.exp(logits_of(model))
    return weight / weight.sum(axis=1, keepdims=True)


def values(model, pi):
    """Vⁱ [S, M] by one linear system per objective."""
    go, _, reward = closed_form.dense(model)
    P, r = np.einsum("sa,sat->st", pi, go), np.einsum("sa,sam->sm", pi, reward)
    eye = np.eye(len(P))
    return np.stack([np.linalg.solve(eye - g * P, r[:, i]) for i, g in enumerate(GAMMAS)], axis=1)


def law_of_state_and_age(model, pi, survival, oldest):
    """Stationary law [age, S] of the chain that ends with its episodes or with chance 1 − c, and starts anew."""
    go, end, _ = closed_form.dense(model)
    P, stop = np.einsum("sa,sat->st", pi, go), np.einsum("sa,sa->s", pi, end)
    S = model.num_states
    T = np.zeros((oldest, S, oldest, S))
    for k in range(oldest):
        lives = survival if k + 1 < oldest else 0.0
        for s in range(S):
            T[k, s, 0] += (stop[s] + (1 - lives) * (1 - stop[s])) * model.start_distribution
            if lives:
                T[k, s, k + 1] += lives * P[s]
    T = T.reshape(oldest * S, -1)
    np.testing.assert_allclose(T.sum(axis=1), 1, atol=1e-13)
    system = np.eye(len(T)) - T.T
    system[0] = 1.0
    return np.linalg.solve(system, np.eye(len(T))[0]).reshape(oldest, S)


def expected_gradients(model, pi, law, *, weighted=True, restart_value=False):
    """E[(γⁱ/c)^k δⁱ ψ] [M, S, A] over law [age, S], the policy and the outcomes, one of them at a time."""
    V = values(model, pi)
    ages, gammas = np.arange(len(law)), np.array(GAMMAS)
    weight = (gammas / SURVIVAL) ** ages[:, None] if weighted else np.ones((len(law), 2))
    visits = np.einsum("ks,ki->si", law, weight)
    G = np.zeros((len(gammas), *pi.shape))
    for s, a, o in np.ndindex(model.probability.shape):
        ahead = V[model.next_state[s, a, o]]
        if restart_value:  # the mistake of looking where the chain goes instead of where the MDP went
            ahead = SURVIVAL * ahead + (1 - SURVIVAL) * model.start_distribution @ V
        delta = model.reward[s, a, o] + gammas * (0 if model.terminated[s, a, o] else ahead) - V[s]
        psi = np.eye(model.num_actions)[a] - pi[s]
        G[:, s] += np.outer(pi[s, a] * model.probability[s, a, o] * visits[s] * delta, psi)
    return G


def miss(G, gradient):
    """How far G is from K·gradient for the best single K, relative."""
    K = np.sum(G * gradient) / np.sum(gradient * gradient)
    return np.abs(G - K * gradient).max() / np.abs(K * gradient).max()


@on_models
def test_discounted_visitation_is_the_gradient_up_to_one_constant(name):
    model, pi = MODELS[name], policy_of(MODELS[name])
    law = law_of_state_and_age(model, pi, SURVIVAL, OLDEST)
    gradient = closed_form.jacobian(model, logits_of(model), Discounted(GAMMAS))
    K = law[0].sum()  # the chance to be at a start
    np.testing.assert_allclose(expected_gradients(model, pi, law), K * gradient, rtol=1e-10, atol=1e-13)
    # Neither without the weights of age, nor bootstrapping from the restart state.
    assert miss(expected_gradients(model, pi, law), gradient) < 1e-10
    assert miss(expected_gradients(model, pi, law, weighted=False), gradient) > 0.05
    assert miss(expected_gradients(model, pi, law, restart_value=True), gradient) > 0.005


@on_models
def test_stationary_visitation_is_lemma_one(name):
    """Its mean is the oracle's direction, which is not the gradient."""
    model, pi = MODELS[name], policy_of(MODELS[name])
    go, end, _ = closed_form.dense(model)
    P = np.einsum("sa,sat->st", pi, go) + np.einsum("sa,sa->s", pi, end)[:, None] * model.start_distribution
    law = np.linalg.matrix_power(P, 2**14)[:1]
    exact = momdp.evaluate(model, logits_of(model), Discounted(GAMMAS))
    G = expected_gradients(model, pi, law, weighted=False)
    np.testing.assert_allclose(G, exact.direction, rtol=1e-10, atol=1e-13)
    assert miss(G, exact.gradient) > 0.05


# --- the real sampler and update

CHAINS, BATCH, BURN_IN = 4096, 128, 64


@lru_cache
def sampled_gradients(name, visitation):
    """gⁱ of the real actor [chains, M, S, A]: update once with the exact critic and all weight on objective i."""
    model, M = MODELS[name], len(GAMMAS)
    config = moac.Config(
        policy="table",
        features="one-hot",
        setting=Discounted(GAMMAS),
        visitation=visitation,
        num_iterations=1,
        num_critic_steps=1,
        critic_batch_size=BURN_IN,  # the critic's samples let the chain forget its start
        critic_step_size=1e-30,  # and leave the critic as it is
        actor_batch_size=BATCH,
        actor_step_size=1.0,
        weighting="uniform",
    )
    resolved = settings.resolve(config, model.spec)
    parts = components.build(resolved, model.spec, 0)
    sizes = settings.sampling(resolved, model.spec)
    theta = jnp.asarray(logits_of(model), jnp.float32)
    V = jnp.asarray(values(model, policy_of(model)), jnp.float32)
    chosen = moac.weighting.Rule(lambda M: jnp.zeros(M), lambda lam, K, t: (lam, lam))
    init, update = algorithm.build(resolved, model.spec, parts.policy, parts.critic, chosen)

    def one_chain(key):
        key_start, key_sample, key_state = jax.random.split(key, 3)
        _, critic, actor = model.sample(model.start(key_start), parts.policy, theta, key_sample, sizes)

        def step(lam):
            state = init(key_state)
            state = replace(state, theta=theta, w=V, rule=lam, theta_random=theta)
            return update(state, critic, actor)[0].theta - theta

        return jax.vmap(step)(jnp.eye(M))

    run = jax.jit(jax.vmap(one_chain), compiler_options={"xla_backend_optimization_level": 0})
    return np.asarray(run(jax.random.split(jax.random.key(0), CHAINS)), np.float64)


def z_scores(samples, expected):
    spread = samples.std(axis=0) / np.sqrt(len(samples))
    return (samples.mean(axis=0) - expected) / spread


def test_sampled_gradients_have_the_expected_mean():
    """One start alone: `test_ages_and_forced_restarts` of the sampler."""
    name = "episodic"
    model, pi = MODELS[name], policy_of(MODELS[name])
    samples = sampled_gradients(name, "discounted")
    law = law_of_state_and_age(model, pi, SURVIVAL, OLDEST)
    gradient = closed_form.jacobian(model, logits_of(model), Discounted(GAMMAS))
    assert np.abs(z_scores(samples, law[0].sum() * gradient)).max() < 4
    # The samples are many enough to tell the two mistakes from the truth.
    assert np.abs(z_scores(samples, expected_gradients(model, pi, law, weighted=False))).max() > 10
    assert np.abs(z_scores(samples, expected_gradients(model, pi, law, restart_value=True))).max() > 6


def test_sampled_directions_have_the_mean_of_lemma_one():
    samples = sampled_gradients("episodic", "stationary")
    exact = momdp.evaluate(MODELS["episodic"], logits_of(MODELS["episodic"]), Discounted(GAMMAS))
    assert np.abs(z_scores(samples, exact.direction)).max() < 4
