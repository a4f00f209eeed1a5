"""Samples of a finite model: their law, their order in time, and how the chain starts anew."""

from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from moac.config import Average
from moac.momdp import FiniteMOMDP, library, sampling
from moac.policies import SoftmaxTable
from moac.types import Sampling

N, D, B = 2, 8192, 16384
SURVIVAL = 0.8
DISCOUNTED = Sampling(N, D, B, average=False, survival=None)
AVERAGE = Sampling(N, D, B, average=True, survival=None)
RESTARTING = Sampling(N, D, B, average=False, survival=SURVIVAL)
SIZES = {"discounted": DISCOUNTED, "average": AVERAGE, "restarting": RESTARTING}


def ending_model(start, num_outcomes=6):
    """Outcomes of three actions in four states; some end the episode, some are impossible, all rewards differ."""
    generator = np.random.default_rng(2)
    shape = (4, 3, num_outcomes)
    probability = generator.random(shape) * (generator.random(shape) < 0.5)
    probability[:, :, 1] += 0.05
    return FiniteMOMDP.from_outcomes(
        next_state=generator.integers(4, size=shape),
        probability=probability / probability.sum(axis=2, keepdims=True),
        reward=np.arange(24.0 * num_outcomes).reshape(*shape, 2),
        terminated=generator.random(shape) < 0.2,
        start=start,
    )


ONE_START = ending_model([0.0, 1.0, 0.0, 0.0])
SEVERAL_STARTS = ending_model([0.5, 0.0, 0.2, 0.3])
TWO_STARTS = ending_model([0.6, 0.0, 0.4, 0.0], num_outcomes=13)  # too many to draw them with the action
MODELS = {"one start": ONE_START, "several starts": SEVERAL_STARTS}
on_problems = pytest.mark.parametrize(
    ("model", "sizes"),
    [(ONE_START, DISCOUNTED), (ONE_START, RESTARTING), (TWO_STARTS, AVERAGE), (SEVERAL_STARTS, RESTARTING)],
    ids=["one start, discounted", "one start, restarting", "two starts, average", "several starts, restarting"],
)
"""Starts are drawn or not, episodes cut or not, ends shown or not: each in one of them."""
LOGITS = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
PI = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


@lru_cache
def sampler(model, sizes):
    policy = SoftmaxTable(model.num_states, model.num_actions)
    sample = jax.jit(
        lambda chain, theta, key: model.sample(chain, policy, theta, key, sizes),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    return lambda chain, theta, seed: sample(chain, jnp.asarray(theta, jnp.float32), jax.random.key(seed))


def drawn(model, sizes, seed=0, theta=LOGITS):
    """One long batch from a fresh chain: the chain after it, and all transitions in the order of time."""
    chain, critic, actor = sampler(model, sizes)(model.start(jax.random.key(100 + seed)), theta, seed)
    assert critic.action.shape == (N, D)
    assert actor.action.shape == (B,)
    return chain, jax.tree.map(
        lambda c, a: np.concatenate([np.asarray(c).reshape(N * D, *c.shape[2:]), a]), critic, actor
    )


def outcomes(model, batch):
    """Which outcome each transition was: rewards are all different, the first of them even numbers in order."""
    flat = (batch.reward[:, 0] / 2).astype(int)
    s, a, o = np.unravel_index(flat, model.probability.shape)
    np.testing.assert_array_equal(s, batch.observation)
    np.testing.assert_array_equal(a, batch.action)
    np.testing.assert_array_equal(batch.reward[:, 1], batch.reward[:, 0] + 1)
    return s, a, o


def goodness_of_fit(counts, chances):
    """p-value of counts [R, k] against chances [R, k], row by row given the rows' totals."""
    expected = counts.sum(axis=1, keepdims=True) * chances
    possible = expected > 0
    assert counts[~possible].sum() == 0
    statistic = np.sum((counts[possible] - expected[possible]) ** 2 / expected[possible])
    freedom = possible.sum() - len(counts)
    return stats.chi2.sf(statistic, freedom) if freedom > 0 else 1.0


@on_problems
def test_actions_and_outcomes_have_the_chances_of_policy_and_model(model, sizes):
    _, batch = drawn(model, sizes)
    counts = np.zeros(model.probability.shape)
    np.add.at(counts, outcomes(model, batch), 1)
    counts = counts.reshape(model.num_states, -1)
    assert counts.sum(axis=1).min() > 300

    def joint(pi):
        return (pi[:, :, None] * model.probability).reshape(model.num_states, -1)

    assert goodness_of_fit(counts, joint(PI)) > 1e-3
    assert goodness_of_fit(counts, joint(0.9 * PI + 0.1 / 3)) < 1e-3  # nothing near it fits
    assert goodness_of_fit(counts, joint(np.full_like(PI, 1 / 3))) < 1e-50


@on_problems
def test_successors_and_terminations_are_the_outcomes_own(model, sizes):
    chain, batch = drawn(model, sizes)
    i = outcomes(model, batch)
    ended = model.terminated[i]
    np.testing.assert_array_equal(batch.next_observation[~ended], model.next_state[i][~ended])
    if sizes.average:
        assert batch.terminated is None
        after = np.append(batch.observation[1:], chain.state)
        np.testing.assert_array_equal(batch.next_observation, after)  # also through the restart
    else:
        np.testing.assert_array_equal(batch.terminated, ended)
    assert ended.mean() > 0.05


@on_problems
def test_after_the_end_the_chain_starts_anew(model, sizes):
    chain, batch = drawn(model, sizes)
    ended = model.terminated[outcomes(model, batch)]
    after = np.append(batch.observation[1:], chain.state)
    restarts = np.bincount(after[ended], minlength=model.num_states)
    assert goodness_of_fit(restarts[None], model.start_distribution[None]) > 1e-3
    if sizes.survival is None:
        goes_on = model.next_state[outcomes(model, batch)]
        np.testing.assert_array_equal(after[~ended], goes_on[~ended])
        assert batch.age is None


def test_without_termination_nothing_is_flagged():
    model = library.random_ergodic(0, num_states=4, num_actions=3, num_successors=2)
    policy, key = SoftmaxTable(4, 3), jax.random.key(0)
    for sizes in SIZES.values():
        draw = partial(model.sample, policy=policy, sizes=sizes)
        _, critic, actor = jax.eval_shape(
            lambda c, t, k, draw=draw: draw(c, theta=t, key=k), model.start(key), LOGITS, key
        )
        assert critic.terminated is None
        assert actor.terminated is None


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_ages_and_forced_restarts(model):
    chain, batch = drawn(model, RESTARTING)
    ended = batch.terminated
    after, age_after = np.append(batch.observation[1:], chain.state), np.append(batch.age[1:], chain.age)
    assert batch.age[0] == 0
    restarted = age_after == 0
    np.testing.assert_array_equal(age_after[~restarted], batch.age[~restarted] + 1)
    assert restarted[ended].all()
    # An episode that goes on is cut with probability 1 − c, whatever its age and state.
    for some in (~ended, ~ended & (batch.age >= 3), ~ended & (batch.observation == 0)):
        n, cut = some.sum(), restarted[some].sum()
        assert abs(cut - n * (1 - SURVIVAL)) < 3.5 * np.sqrt(n * SURVIVAL * (1 - SURVIVAL))
        assert n > 300
    cut = restarted & ~ended
    counts = np.bincount(after[cut], minlength=model.num_states)
    assert goodness_of_fit(counts[None], model.start_distribution[None]) > 1e-3
    np.testing.assert_array_equal(after[~restarted], batch.next_observation[~restarted])
    # A transition that is cut still shows the successor it had.
    assert np.mean(batch.next_observation[cut] != after[cut]) > 0.2


@on_problems
def test_the_chain_is_carried_from_batch_to_batch(model, sizes):
    sample = sampler(model, sizes)
    chain = model.start(jax.random.key(9))
    for seed in range(3):
        before = chain
        chain, critic, actor = sample(chain, LOGITS, seed)
        assert critic.observation[0, 0] == before.state
        if sizes.survival is None:
            seams = [(critic, (0, -1), critic.observation[1, 0]), (critic, (1, -1), actor.observation[0])]
            for batch, last, following in [*seams, (actor, (-1,), chain.state)]:
                ends = batch.terminated is not None and bool(batch.terminated[last])
                assert ends or batch.next_observation[last] == following
        else:
            assert critic.age[0, 0] == before.age
            assert critic.age[1, 0] in (0, critic.age[0, -1] + 1)
            assert actor.age[0] in (0, critic.age[1, -1] + 1)
            assert chain.age in (0, actor.age[-1] + 1)


def test_chains_of_two_keys_differ_and_of_one_key_agree():
    first, again, other = (drawn(SEVERAL_STARTS, AVERAGE, seed)[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.observation, again.observation)
    assert np.mean(first.observation != other.observation) > 0.3


def test_first_states_have_the_start_distribution():
    for model in (*MODELS.values(), ending_model([0.0, 0.4, 0.0, 0.6])):
        chains = jax.jit(jax.vmap(model.start))(jax.random.split(jax.random.key(0), 4000))
        counts = np.bincount(chains.state, minlength=model.num_states)
        assert goodness_of_fit(counts[None], model.start_distribution[None]) > 1e-3
        np.testing.assert_array_equal(chains.age, 0)


def test_a_nearly_deterministic_policy_does_what_it_says():
    model = ONE_START
    chosen = np.array([2, 0, 1, 2])
    theta = np.where(np.arange(3) == chosen[:, None], 300.0, -300.0)  # the others underflow to probability 0
    _, batch = drawn(model, DISCOUNTED, theta=theta)
    np.testing.assert_array_equal(batch.action, chosen[batch.observation])
    s, a, o = outcomes(model, batch)
    assert model.probability[s, a, o].min() > 0


@pytest.mark.parametrize(("A", "width"), [(4, 6), (30, 20)], ids=["short rows", "long rows"])
def test_an_impossible_outcome_has_no_room_among_the_uniform_numbers(A, width):
    """However the cumulative chances are rounded: XLA sums long rows in blocks."""
    S, trials = 6, 32
    generator = np.random.default_rng(0)
    probability = generator.random((S, A, width)) ** 6 * (generator.random((S, A, width)) < 0.3)
    probability[:, :, 3] += 1e-4
    model = FiniteMOMDP.from_outcomes(
        next_state=np.zeros((S, A, width), int),
        probability=probability / probability.sum(axis=2, keepdims=True),
        reward=np.zeros((S, A, width, 1)),
        terminated=np.zeros((S, A, width)),
    )
    pi = jax.nn.softmax(jnp.asarray(3 * generator.normal(size=(trials, S, A)), jnp.float32))
    expected = (pi[..., None] * model.probability).reshape(trials, S, -1)
    cumulative = jax.jit(jax.vmap(sampling._cumulative))(expected)
    room = np.diff(np.asarray(cumulative, np.float64), axis=2, prepend=0, append=1)
    np.testing.assert_allclose(room, expected, atol=1e-6)
    impossible = np.broadcast_to((model.probability == 0).reshape(S, -1), room.shape)
    assert impossible[:, :, -1].any()
    assert (room[impossible] == 0).all()
    assert (room >= 0).all()


@pytest.mark.parametrize("num_outcomes", [2, 13, 16, 17])
def test_an_outcome_that_is_drawn_after_the_action_is_where_the_number_falls(num_outcomes):
    """At the edges too, where an impossible outcome would be hit first."""
    model = ending_model([1.0, 0.0, 0.0, 0.0], num_outcomes)
    S, A, _ = model.probability.shape
    pi = np.random.default_rng(0).dirichlet(np.ones(A), S).astype(np.float32)
    edges = sampling._running_chances(model.probability)
    table = replace(sampling.tables(model), chances=edges)
    choose = jax.jit(jax.vmap(sampling._choice_in_turn(table, jnp.asarray(pi))))
    np.testing.assert_allclose(np.diff(edges, axis=2, prepend=0), model.probability, atol=1e-6)
    for s, a in np.ndindex(S, A):
        u = np.unique(np.concatenate([[0, 0.3, 1 - 2**-24], edges[s, a], np.nextafter(edges[s, a], np.float32(0))]))
        u = u[(u >= 0) & (u < 1)].astype(np.float32)
        taken = np.full(len(u), pi[s, :a].sum() + pi[s, a] / 2)
        found = choose(np.full(len(u), s), np.stack([taken, u], axis=1).astype(np.float32))
        outcome = np.searchsorted(edges[s, a], u, side="right")
        np.testing.assert_array_equal(found, (s * A + a) * num_outcomes + outcome)
        assert (model.probability[s, a, outcome] > 0).all()


def test_the_spec_has_the_largest_reward_that_can_happen():
    possible = np.abs(ONE_START.reward[ONE_START.probability > 0]).max()
    assert sampling.spec(ONE_START).reward_bound == possible != np.abs(ONE_START.reward).max()
    nothing = FiniteMOMDP.from_dense(np.ones((1, 1, 1)), np.zeros((1, 1, 2)))
    assert sampling.spec(nothing).reward_bound == 1.0


def test_a_policy_without_answers_changes_no_bit_of_the_others():
    """One of three stays where it is, so that its average reward depends on where it starts."""
    model = library.fishwood()
    theta = np.random.default_rng(0).normal(size=(3, model.num_states, model.num_actions)).astype(np.float32)
    with_one = theta.copy()
    with_one[1] = np.where(np.eye(2, dtype=bool), 2000, 0)
    policy = SoftmaxTable(model.num_states, model.num_actions)
    ours, theirs = (sampling.evaluate(model, policy, table, Average()) for table in (theta, with_one))
    for name in ("returns", "gap", "direction_gap", "regret"):
        found = getattr(theirs, name)
        np.testing.assert_array_equal(found[[0, 2]], getattr(ours, name)[[0, 2]], err_msg=name)
        assert np.isnan(found[1]).all()
