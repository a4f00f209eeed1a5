"""Algorithm 2 step by step against its NumPy reference, and the law of the iterate it returns."""

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

from moac import algorithm, parts, settings, weighting
from moac.config import Average, Config, Discounted
from moac.critic import LinearCritic
from moac.momdp import library
from moac.policies import SoftmaxLinear, SoftmaxTable, features
from moac.types import Batch
from tests.helpers import reference

MODEL = library.random_ergodic(5, num_states=4, num_actions=3, num_objectives=4, num_successors=2, termination=0.15)
GAMMAS = (0.6, 0.9, 0.75, 0.8)
USERS_TABLE = np.array([[1.0, 0.5], [-0.3, 2.0], [0.7, 0.7], [0.0, -1.0]])
ITERATIONS = 5
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}

ROADS = {
    "discounted": lambda M: {"setting": Discounted(GAMMAS[:M])},
    "discounted visitation": lambda M: {"setting": Discounted(GAMMAS[:M]), "visitation": "discounted"},
    "average": lambda M: {"setting": Average()},
}

# Every road with all features. Compilation is what costs, so the other options ride along, some with two objectives.
GRID = {
    ("discounted", "one-hot"): {},
    ("discounted", "one-hot-reference"): {"critic_start": "cold", "policy": "linear", "M": 2},
    ("discounted", "random:3"): {"momentum": "const:0.3", "weights": (0.1, 0.2, 0.7)},
    ("discounted", "users-table"): {"weighting": "fixed", "weights": (0.2, 0.3, 0.5)},
    ("discounted visitation", "one-hot"): {"normalise": "l2", "momentum": "1/sqrt(t)"},
    ("discounted visitation", "one-hot-reference"): {"M": 2},
    ("discounted visitation", "random:3"): {"weighting": "uniform", "policy": "linear"},
    ("discounted visitation", "users-table"): {"momentum": "0", "weights": (0.4, 0.6), "M": 2},
    ("average", "one-hot"): {"mu": "paper"},
    ("average", "one-hot-reference"): {"average_step_size": 0.7, "momentum": "1/t^2", "M": 2},
    ("average", "random:3"): {"weighting": "first-batch", "M": 2},
    ("average", "users-table"): {"mu": "paper", "critic_start": "cold", "normalise": "l2", "momentum": "1"},
}


def configured(options):
    sizes = {"num_critic_steps": 2, "critic_batch_size": 8, "actor_batch_size": 16}
    kinds = {"policy": "table", "features": "one-hot"}
    return Config(
        **{"num_iterations": ITERATIONS, "actor_step_size": 0.9, "critic_step_size": 0.4} | kinds | sizes | options
    )


@lru_cache
def sampler(sizes):
    """The model's own sampler, for a policy given by its logits [S, A]."""
    policy = SoftmaxTable(MODEL.num_states, MODEL.num_actions)
    sample = lambda chain, logits, key: MODEL.sample(chain, policy, logits, key, sizes)  # noqa: E731
    return jax.jit(sample, compiler_options=QUICK_TO_COMPILE)


class Pair:
    """The package's run and the reference's, on the same batches."""

    def __init__(self, options, M=3):
        own_table = options.get("features") == "users-table"
        self.config = configured({**options, "features": "one-hot"} if own_table else options)
        self.spec = replace(MODEL.spec, objective_names=MODEL.objective_names[:M])
        self.settings = settings.resolve(self.config, self.spec)
        policy, critic, rule = parts.build(self.settings, self.spec, 0)
        if own_table:
            phi = features.table(USERS_TABLE)
            policy, critic = SoftmaxLinear(phi, MODEL.num_actions), LinearCritic(phi, M)
        init, update = algorithm.build(self.settings, self.spec, policy, critic, rule)
        self.update = jax.jit(update, compiler_options=QUICK_TO_COMPILE)
        self.state, self.chain = init(jax.random.key(3)), MODEL.start(jax.random.key(4))
        Phi = feature_matrix(options.get("features", "one-hot"), critic.features)
        X = np.eye(MODEL.num_states) if isinstance(policy, SoftmaxTable) else Phi
        self.reference = reference.Reference(self.config, M, Phi, X, MODEL.num_actions)

    def step(self, seed):
        """Sample under θ_t and update both."""
        critic, actor = self.draw(seed)
        self.state, metrics = self.update(self.state, critic, actor)
        batches = [jax.tree.map(lambda x, k=k: x[k], critic) for k in range(self.config.num_critic_steps)]
        self.reference.update([reference.transitions(batch) for batch in batches], reference.transitions(actor))
        return metrics

    def draw(self, seed):
        """The next batches; always sampled in double precision, so that all tests share the samplers."""
        dtype, M = self.state.theta.dtype, self.spec.num_objectives
        with jax.enable_x64(True):
            sample = sampler(settings.sampling(self.settings, self.spec))
            logits = jnp.asarray(self.reference.X) @ jnp.asarray(self.state.theta, jnp.float64)
            self.chain, *batches = sample(self.chain, logits, jax.random.key(seed))
            return [replace(batch, reward=batch.reward[..., :M].astype(dtype)) for batch in batches]

    def compare(self, metrics, **tolerance):
        ours, expected = self.state, self.reference
        assert int(ours.t) == expected.t
        for name in ("w", "mu", "theta"):
            np.testing.assert_allclose(getattr(ours, name), getattr(expected, name), err_msg=name, **tolerance)
        np.testing.assert_allclose(metrics.gram, expected.gram, err_msg="K", **tolerance)
        np.testing.assert_allclose(metrics.weights, expected.lam, err_msg="λ", **tolerance)


def feature_matrix(name, phi):
    """Φ written down anew, but for random features, whose numbers are taken as they are."""
    one_hot = np.eye(MODEL.num_states)
    most_visited = reference.uniform_policy_law(MODEL).argmax()
    known = {
        "one-hot": one_hot,
        "one-hot-reference": np.delete(one_hot, most_visited, axis=1),
        "users-table": USERS_TABLE / np.hypot(0.3, 2.0),
    }
    return known.get(name, phi.table())


def follow(options, M=3):
    """Five iterations, compared after each."""
    pair = Pair(options, M)
    assert {leaf.dtype for leaf in (pair.state.theta, pair.state.w, pair.state.mu)} == {np.dtype(np.float64)}
    iterates = []
    for seed in range(ITERATIONS):
        iterates.append(pair.state.theta)
        metrics = pair.step(seed)
        pair.compare(metrics, rtol=1e-10, atol=1e-12)
        kept = iterates[int(pair.state.random_iteration) - 1]
        np.testing.assert_array_equal(pair.state.theta_random, kept)
    return pair


@pytest.mark.parametrize(("road", "phi"), GRID)
def test_update_is_the_papers(road, phi, x64):
    options = {**GRID[road, phi], "features": phi}
    M = options.pop("M", 3)
    if phi == "users-table":
        options["policy"] = "linear"
    pair = follow({**ROADS[road](M), **options}, M)
    assert np.abs(pair.reference.theta).max() > 0.01  # the policy moved
    assert np.abs(pair.reference.w).max() > 0.01


def test_update_with_four_objectives(x64):
    follow({"setting": Discounted(GAMMAS)}, M=4)


def test_update_with_two_objectives_of_one_discount(x64):
    """Equal discounts make all age weights one; the ages are there all the same."""
    follow({"setting": Discounted(0.9), "visitation": "discounted"}, M=2)


def test_the_batches_of_this_suite_hold_what_they_should(x64):
    """Termination, ages and several states: else the comparisons above would miss a branch."""
    pair = Pair(ROADS["discounted visitation"](3))
    actor = [batch for seed in range(ITERATIONS) for batch in reference.transitions(pair.draw(seed)[1])]
    assert 3 <= sum(x.terminated for x in actor) <= len(actor) // 2
    assert max(x.age for x in actor) >= 5
    assert {x.s for x in actor} == set(range(MODEL.num_states))
    assert {x.a for x in actor} == set(range(MODEL.num_actions))


@pytest.mark.parametrize("road", ["discounted visitation", "average"])
def test_single_precision_follows_double(road):
    pair = Pair(ROADS[road](2), M=2)
    assert pair.state.theta.dtype == jnp.float32
    for seed in range(ITERATIONS):
        metrics = pair.step(seed)
    pair.compare(metrics, rtol=1e-4, atol=1e-5)


# --- one objective is plain actor-critic


def plain_actor_critic(config, batches):
    """θ after single-objective actor-critic over [(critic batches, actor batch), …], without weights of any kind."""
    average = isinstance(config.setting, Average)
    gamma = 1.0 if average else config.setting.discount
    V, theta, mu = np.zeros(MODEL.num_states), np.zeros((MODEL.num_states, MODEL.num_actions)), 0.0

    def errors(batch, V, mu):
        ahead = [0.0 if x.terminated else gamma * V[x.s_next] for x in batch]
        return [x.r[0] - mu + v - V[x.s] for x, v in zip(batch, ahead, strict=True)]

    def moved(mu, batch):
        return mu + config.average_step_size * (np.mean([x.r[0] for x in batch]) - mu) if average else 0.0

    for critic, actor in batches:
        for batch in critic:
            before, delta = V.copy(), errors(batch, V, mu)
            for x, d in zip(batch, delta, strict=True):
                before[x.s] += config.critic_step_size * d / len(batch)
            V, mu = before, moved(mu, batch)
        g, delta = np.zeros_like(theta), errors(actor, V, mu)
        for x, d in zip(actor, delta, strict=True):
            g[x.s] -= d * reference.softmax(theta[x.s]) / len(actor)
            g[x.s, x.a] += d / len(actor)
        theta, mu = theta + config.actor_step_size * g, moved(mu, actor)
    return theta


@pytest.mark.parametrize("setting", [Discounted(0.8), Average()], ids=["discounted", "average"])
def test_one_objective_is_plain_actor_critic(setting, x64):
    pair, seen = Pair({"setting": setting}, M=1), []
    for seed in range(ITERATIONS):
        critic, actor = pair.draw(seed)
        pair.state, metrics = pair.update(pair.state, critic, actor)
        rows = [reference.transitions(jax.tree.map(lambda x, k=k: x[k], critic)) for k in range(2)]
        seen.append((rows, reference.transitions(actor)))
        np.testing.assert_array_equal(metrics.weights, [1.0])
    np.testing.assert_allclose(pair.state.theta, plain_actor_critic(pair.config, seen), rtol=1e-10, atol=1e-13)


# --- the random iterate


def test_the_random_iterate_is_uniform_over_the_iterates_before_each_update():
    T, trials = 7, 7000
    spec = replace(MODEL.spec, objective_names=("only",))
    policy = SoftmaxTable(MODEL.num_states, MODEL.num_actions)
    critic = LinearCritic(features.OneHot(MODEL.num_states), 1)
    init, update = algorithm.build(
        settings.resolve(configured({"setting": Discounted(0.8)}), spec), spec, policy, critic, weighting.uniform()
    )
    step = Batch(jnp.zeros(16, int), jnp.arange(16) % 3, jnp.arange(16.0)[:, None] % 3, jnp.zeros(16, int))
    two = jax.tree.map(lambda x: jnp.stack([x[:8]] * 2), step)

    def trial(key):
        return lax.scan(lambda state, _: (update(state, two, step)[0], state.theta), init(key), length=T)

    run = jax.jit(jax.vmap(trial), compiler_options=QUICK_TO_COMPILE)
    state, iterates = run(jax.random.split(jax.random.key(0), trials))
    chosen = np.asarray(state.random_iteration)
    counts = np.bincount(chosen, minlength=T + 1)
    assert counts[0] == 0
    assert len(counts) == T + 1
    assert stats.chisquare(counts[1:]).pvalue > 1e-3
    np.testing.assert_allclose(state.theta_random, iterates[np.arange(trials), chosen - 1], rtol=1e-6)
    assert len(np.unique(np.asarray(iterates[0, :, 0, 0]))) == T  # so that the line above tells iterates apart
