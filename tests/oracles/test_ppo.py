"""The `ppo` learner against its NumPy reference, and its special case, which is the paper's actor."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import algorithm, ppo, settings, weighting
from moac.config import Config, Discounted
from moac.critic import LinearCritic, MLPCritic
from moac.momdp import library
from moac.policies import GaussianMLP, SoftmaxLinear, SoftmaxMLP, SoftmaxTable, features
from moac.policies.gaussian import Squash
from moac.policies.networks import Network, States, Vectors, WithPreference
from moac.types import Batch
from tests.helpers import reference, reference_ppo

S, A, M, E, T = 4, 3, 3, 2, 6
B = E * T
MODEL = library.random_ergodic(5, num_states=S, num_actions=A, num_objectives=M)
SPEC = replace(MODEL.spec, num_chains=E)
PHI = features.table([[1.0, 0.5], [-0.3, 2.0], [0.7, 0.7], [0.0, -1.0]])
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}
CONFIG = Config(
    setting=Discounted((0.6, 0.9, 0.75)),
    learner="ppo",
    num_iterations=5,
    actor_batch_size=B,
    minibatch_size=4,
    epochs=3,
    ratio_clip=0.1,
    actor_step_size=0.1,
    critic_step_size=0.05,
    entropy=0.2,
    gradient_clip=0.4,
)
WITH_P = WithPreference.after(Vectors(2, 10.0), M)
BOX = Squash((-1.0, -1.0), (1.0, 1.0))
KINDS = {
    "table": (SoftmaxTable(S, A), LinearCritic(features.OneHot(S), M)),
    "linear": (SoftmaxLinear(PHI, A), LinearCritic(PHI, M)),
    "mlp": (SoftmaxMLP(States(S), (5,), A), MLPCritic(Network(States(S), (5,), M))),
    "gaussian": (GaussianMLP(Vectors(2, 10.0), (5,), BOX), MLPCritic(Network(Vectors(2, 10.0), (5,), M))),
    "conditioned": (SoftmaxMLP(WITH_P, (5,), A), MLPCritic(Network(WITH_P, (5,), M))),
    "conditioned gaussian": (GaussianMLP(WITH_P, (5,), BOX), MLPCritic(Network(WITH_P, (5,), M))),
}
SEE = {
    "table": lambda s: np.eye(S)[s],
    "linear": lambda s: PHI.rows[s],
    "mlp": lambda s: np.eye(S)[s],
    "gaussian": lambda x: 10 * (2 * x - 1),
    "conditioned": lambda x: np.append(10 * (2 * x[:2] - 1), x[2:]),
    "conditioned gaussian": lambda x: np.append(10 * (2 * x[:2] - 1), x[2:]),
}
OPTIONS = {
    "table": {"units": "raw"},
    "linear": {"units": "return", "weighting": "uniform"},
    "mlp": {"units": "advantage"},
    "gaussian": {"units": "advantage"},
    "conditioned": {"units": "return", "weighting": "uniform"},
    "conditioned gaussian": {"units": "raw", "weighting": "uniform"},
}


def rollout(kind, seed):
    """E copies side by side: one episode that terminates, one that is cut off, one that goes on."""
    random = np.random.default_rng(seed)
    continuous, ends = "gaussian" in kind, np.zeros((T, E), bool)
    vectors, conditioned = continuous or "conditioned" in kind, "conditioned" in kind
    places = random.random((T + 1, E, 2)) if vectors else random.integers(S, size=(T + 1, E))
    here, there = places[:-1].copy(), places[1:].copy()
    for t, e in ((2, 0), (3, 1)):  # the successor is not where the next step begins
        there[t, e] = 1 - here[t + 1, e] if vectors else (here[t + 1, e] + 1) % S
    ends[2, 0] = True
    if conditioned:  # a new p for each episode
        first, second = random.dirichlet(np.ones(M), (2, E))
        later = np.arange(T)[:, None] > np.array([2, 3])
        p = np.where(later[..., None], second, first)
        here, there = (np.concatenate([x, p], axis=2) for x in (here, there))
    shape = (T, E, 2) if continuous else (T, E)
    action = random.uniform(-0.9, 0.9, shape) if continuous else random.integers(A, size=shape)
    reward = random.normal(size=(T, E, M)) * [1.0, 20.0, 0.0]
    flat = [x.reshape(B, *x.shape[2:]) for x in (here, action, reward, there, ends)]
    return Batch(*map(jnp.asarray, flat))


def resolved(**options):
    return settings.resolve(replace(CONFIG, **options), SPEC)


def first_state(init):
    """Random parameters, so that no gradient is zero."""
    state = init(jax.random.key(3))
    noise = lambda x: x + 0.4 * jax.random.normal(jax.random.key(x.size), x.shape)  # noqa: E731
    return replace(state, theta=jax.tree.map(noise, state.theta), w=jax.tree.map(noise, state.w))


def orders(key, epochs):
    """The orders that an iteration draws from its key."""
    keys = jax.random.split(jax.random.split(key, 3)[2], epochs)
    return [np.asarray(jax.random.permutation(k, B)) for k in keys]


@pytest.mark.parametrize("kind", KINDS)
def test_two_iterations_are_their_definition(kind, x64):
    config = replace(resolved(**OPTIONS[kind]), conditioned="conditioned" in kind)
    policy, critic = KINDS[kind]
    init, update = ppo.build(config, SPEC, policy, critic, weighting.by_name(config.weighting, None, "1/t"))
    state, update = first_state(init), jax.jit(update, compiler_options=QUICK_TO_COMPILE)
    Kind = reference_ppo.Gaussian if "gaussian" in kind else reference_ppo.Softmax
    expected = reference_ppo.Reference(
        config,
        Kind(jax.tree.leaves(state.theta), SEE[kind]),
        reference_ppo.Layers(jax.tree.leaves(state.w)),
        E,
    )
    for seed in range(2):
        batch = rollout(kind, seed)
        drawn, before = orders(state.key, config.epochs), state.theta
        state, metrics = update(state, batch, batch)
        expected.update(steps_of(batch), drawn)
        np.testing.assert_allclose(state.spread.sigma, expected.sigma, rtol=1e-10)
        np.testing.assert_allclose(metrics.gram, expected.gram, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(metrics.weights, expected.lam, rtol=1e-8, atol=1e-10)
        for found, known in ((state.theta, expected.policy.leaves), (state.w, expected.values.W)):
            for ours, theirs in zip(jax.tree.leaves(found), known, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.theta, before)
    assert max(jax.tree.leaves(moved)) > 0.05
    assert float(state.spread.sigma[2]) == pytest.approx(1e-3 * float(state.spread.sigma[1]))  # nothing was earned


def steps_of(batch):
    rows = zip(*(np.asarray(x) for x in jax.tree.leaves(batch)), strict=True)
    return [reference.Transition(s, a, r, s_next, bool(end), None) for s, a, r, s_next, end in rows]


# --- the special case

PAPERS = {
    "epochs": 1,
    "minibatch_size": B,
    "gae": 0.0,
    "whitening": "none",
    "units": "raw",
    "entropy": 0.0,
    "schedule": "constant",
    "optimiser": "constant",
    "critic_optimiser": "constant",
    "gradient_clip": 1e9,
}


def in_raw_units(w, sigma):
    """The critic whose values are those of w times σ: its last layer is linear."""
    leaves, structure = jax.tree.flatten(w)
    return jax.tree.unflatten(structure, [*leaves[:-1], leaves[-1] * sigma])


@pytest.mark.parametrize(("kind", "normalise"), [("table", "l2"), ("gaussian", "none")])
def test_one_plain_epoch_is_the_papers_step(kind, normalise, x64):
    policy, critic = KINDS[kind]
    rule = weighting.by_name("min-norm", (0.2, 0.5, 0.3), "const:0.3")
    config = resolved(**PAPERS, normalise=normalise)
    init, update = ppo.build(config, SPEC, policy, critic, rule)
    batch = rollout(kind, 0)
    state = first_state(init)
    ours, metrics = jax.jit(update, compiler_options=QUICK_TO_COMPILE)(state, batch, batch)

    w = in_raw_units(state.w, ours.spread.sigma)
    nothing_to_learn = replace(
        batch, reward=critic.values(w, batch.observation), terminated=jnp.ones(B, bool)
    )  # its TD errors are 0
    _, papers = algorithm.build(replace(config, learner="paper", critic_batch_size=B), SPEC, policy, critic, rule)
    critic_batches = jax.tree.map(lambda x: x[None], nothing_to_learn)
    expected, seen = jax.jit(papers, compiler_options=QUICK_TO_COMPILE)(replace(state, w=w), critic_batches, batch)

    np.testing.assert_allclose(metrics.gram, seen.gram, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(metrics.weights, seen.weights, rtol=1e-12, atol=1e-13)
    for a, b, before in zip(*map(jax.tree.leaves, (ours.theta, expected.theta, state.theta)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        assert np.abs(a - before).max() > 1e-3
