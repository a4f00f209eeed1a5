"""Generalised advantages, ages, optimisers against their formulas."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from moac import beyond, settings
from moac.config import Config, Discounted
from moac.policies.observations import StateSpec
from moac.types import Batch, Spec

T, N, M = 6, 3, 2
GAMMA, TRACE = (0.9, 0.5), 0.8
SETTINGS = settings.resolve(Config(setting=Discounted(GAMMA)), Spec("problem", ("a", "b"), StateSpec(3), 2))
GENERATOR = np.random.default_rng(0)
DELTA = GENERATOR.normal(size=(T * N, M)).astype(np.float32)


def walks(breaks=(), ends=(), vectors=False, restarts_there=False):
    """N chains of T steps, time first. At (t, chain) in `breaks` the next sample starts elsewhere; `ends` terminate.

    With `restarts_there` the episode after an end starts in the very state in which the last one ended.
    """
    state = np.arange(T * N).reshape(T, N)
    successor = state + N
    for t, k in breaks if restarts_there else (*breaks, *ends):
        successor[t, k] = 1000 + t
    terminated = np.zeros((T, N), bool)
    for t, k in ends:
        terminated[t, k] = True
    seen = [x.reshape(-1) for x in (state, successor)]
    seen = [np.stack([x, -x], axis=1).astype(np.float32) for x in seen] if vectors else seen
    zeros = np.zeros(T * N, np.int32)
    return Batch(jnp.asarray(seen[0]), zeros, DELTA, jnp.asarray(seen[1]), jnp.asarray(terminated.reshape(-1)))


def expected(stops):
    """A_t = Σ_k (γλ)^k δ_{t+k}, up to a stop or the chain's last sample; by plain loops."""
    table, found = DELTA.reshape(T, N, M).astype(float), np.zeros((T, N, M))
    for t, k, i in np.ndindex(T, N, M):
        weight = 1.0
        for later in range(t, T):
            found[t, k, i] += weight * table[later, k, i]
            weight *= GAMMA[i] * TRACE
            if (later, k) in stops:
                break
    return found.reshape(T * N, M)


def weighed(batch, trace=TRACE):
    return beyond.advantages(replace(SETTINGS, gae=trace), GAMMA, N, jnp.asarray(DELTA), batch)


@pytest.mark.parametrize("vectors", [False, True], ids=["states", "vectors"])
@pytest.mark.parametrize(
    ("breaks", "ends"),
    [((), ()), (((2, 1),), ()), ((), ((3, 0), (0, 2))), (((4, 2), (1, 0)), ((2, 2),))],
    ids=["whole", "truncated", "terminated", "both"],
)
def test_traces_follow_each_chain_to_its_end(breaks, ends, vectors):
    found = weighed(walks(breaks, ends, vectors))
    np.testing.assert_allclose(found, expected({*breaks, *ends}), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vectors", [False, True], ids=["states", "vectors"])
def test_an_end_stops_a_trace_although_the_next_episode_starts_where_it_ended(vectors):
    ends = ((3, 0), (0, 2))
    stopped = weighed(walks(ends=ends, vectors=vectors, restarts_there=True))
    np.testing.assert_allclose(stopped, expected({*ends}), rtol=1e-5, atol=1e-6)
    assert np.abs(expected({*ends}) - expected(())).max() > 0.1


@pytest.mark.parametrize("vectors", [False, True], ids=["states", "vectors"])
def test_chains_of_one_step_have_no_trace(vectors):
    whole, delta = walks(vectors=vectors), jnp.asarray(DELTA[:N])
    step = Batch(whole.observation[:N], whole.action[:N], delta, whole.next_observation[:N])
    found = beyond.advantages(replace(SETTINGS, gae=TRACE), GAMMA, N, delta, step)
    np.testing.assert_array_equal(found, delta)


def test_without_termination_in_the_batch_only_breaks_stop():
    batch = walks(breaks=((2, 1),))
    no_ends = Batch(batch.observation, batch.action, batch.reward, batch.next_observation)
    np.testing.assert_allclose(weighed(no_ends), expected({(2, 1)}), rtol=1e-5, atol=1e-6)


def test_a_trace_of_zero_changes_nothing():
    np.testing.assert_array_equal(weighed(walks(), trace=0.0), DELTA)


def test_a_trace_of_one_is_the_discounted_sum():
    batch = walks()
    found = np.asarray(weighed(batch, trace=1.0)).reshape(T, N, M)
    weights = np.array(GAMMA)[None, :] ** np.arange(T)[:, None]
    np.testing.assert_allclose(found[0], (DELTA.reshape(T, N, M) * weights[:, None]).sum(axis=0), rtol=1e-5)


DIRECTIONS = np.random.default_rng(0).normal(size=(6, 4))


def taken(transformation):
    state, found = transformation.init(jnp.zeros(4)), []
    for direction in DIRECTIONS:
        step, state = transformation.update(jnp.asarray(direction, jnp.float32), state)
        found.append(np.asarray(step))
    return np.array(found)


def test_constant_steps():
    np.testing.assert_allclose(taken(beyond.steps("constant", 0.3)), 0.3 * DIRECTIONS, rtol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_adam(clip):
    """Its moments are those of the directions as they are cut."""
    first, second, expected = np.zeros(4), np.zeros(4), []
    for t, direction in enumerate(DIRECTIONS, start=1):
        g = direction if clip is None else direction * min(1, clip / np.linalg.norm(direction))
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        expected.append(0.01 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8))
    np.testing.assert_allclose(taken(beyond.steps("adam", 0.01, clip)), expected, rtol=1e-4)


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_clipping_cuts_long_directions_only(clip):
    length = np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
    expected = DIRECTIONS * np.minimum(1, clip / length)
    np.testing.assert_allclose(taken(beyond.steps("constant", 1.0, clip)), expected, rtol=1e-5)


@pytest.mark.parametrize("trace", [0.0, TRACE])
def test_with_discounted_visitation_ages_weigh_the_finished_advantages(trace):
    """(γⁱ/c)^k Aⁱ with the age k of the sample itself, also where A sums over later ones."""
    age = GENERATOR.integers(5, size=T * N)
    chosen = replace(SETTINGS, gae=trace, visitation="discounted")
    batch = replace(walks(), age=jnp.asarray(age))
    A = expected(()) if trace else DELTA
    weighted = beyond.advantages(chosen, GAMMA, N, jnp.asarray(DELTA), batch)
    np.testing.assert_allclose(weighted, (np.array(GAMMA) / 0.9) ** age[:, None] * A, rtol=1e-4, atol=1e-6)


def test_one_discount_for_all_needs_no_age():
    chosen = replace(SETTINGS, setting=Discounted(0.9), visitation="discounted")
    np.testing.assert_array_equal(beyond.advantages(chosen, (0.9, 0.9), N, jnp.asarray(DELTA), walks()), DELTA)
