"""Environments brought back to where others stood: what they do next is the same, bit for bit."""

import json
import random

import jax
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import moac
from moac import envs
from moac.training import result
from moac.types import Sampling
from tests.helpers.environments import Line, Push, Unbounded

SIZES = Sampling(num_critic_steps=3, critic_batch_size=8, actor_batch_size=16, average=False, survival=None)


class Chancy(Line):
    """Slips by its own generator."""

    def step(self, action):
        return super().step(action if self.np_random.random() < 0.7 else 1 - action)


class Forgetful(Line):
    """Draws from the global generator."""

    def step(self, action):
        return super().step(action if random.random() < 0.7 else 1 - action)


class Grudging(Line):
    """Remembers something from one episode to the next, which no reset brings back."""

    def step(self, action):
        return super().step(action if self.count % 5 else 1 - action)


def limited(kind):
    return lambda: TimeLimit(kind(), 11)


def walker(make, sizes=SIZES, **options):
    """An environment, and what samples from a chain of it, an untrained policy for the k-th time."""
    environment = envs.make(make, num_envs=4, **options)
    run = result.prepare(environment, moac.Config(num_iterations=1, num_critic_steps=3, critic_batch_size=8,
                                                  actor_batch_size=16), 1, 0)  # fmt: skip
    theta = run.parts.policy.init(jax.random.key(0))

    def sample(chain, k):
        return environment.sample(chain, run.parts.policy, theta, np.array([k, 5], np.uint32), sizes)

    return environment, sample


def same(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("forced", [None, 0.8])
@pytest.mark.parametrize("kind", [Line, Chancy, Unbounded, Push])
def test_a_chain_goes_on_as_if_nothing_had_happened(kind, forced):
    sizes = Sampling(3, 8, 16, False, forced, kind is Unbounded)
    environment, sample = walker(limited(kind), sizes)
    chain = environment.start(np.array([1, 2], np.uint32))
    for k in range(5):
        chain = sample(chain, k)[0]
        other, sample_other = walker(limited(kind), sizes)
        again = other.revive(environment.past(chain))
        assert again is not None
        other.recall(again, environment.learned(chain))
        assert same(other.past(again), environment.past(chain))
        assert same(sample_other(again, 100 + k)[1:], sample(chain, 100 + k)[1:])
        assert same(other.past(again), environment.past(chain))


def test_before_the_first_walk_and_after_many():
    environment, sample = walker(limited(Chancy))
    chain = environment.start(np.array([1, 2], np.uint32))
    for k in range(30):
        other, _ = walker(limited(Chancy))
        if k in (0, 29):
            assert other.revive(environment.past(chain)) is not None
        chain = sample(chain, k)[0]


def test_a_copy_whose_episode_had_just_ended_beside_one_whose_goes_on():
    """What the former did before is nothing, and nothing of no shape; what the latter did is still needed."""
    environment, sample = walker(Chancy)
    chain, met = environment.start(np.array([1, 2], np.uint32)), 0
    for k in range(30):
        chain, past = sample(chain, k)[0], environment.past(chain)
        again = environment.revive(past)
        assert again is not None
        again = sample(again, k + 1)[0]
        elapsed, later = ([there["elapsed"] for there in json.loads(told["standing"].tobytes())]
                          for told in (past, environment.past(again)))  # fmt: skip
        met += any(a == 0 < b for a, b in zip(elapsed, later, strict=True)) and max(later) > SIZES.steps // 4
    assert met


def test_what_draws_from_nobodys_generator_cannot_be_brought_back():
    environment, sample = walker(limited(Forgetful))
    chain = environment.start(np.array([1, 2], np.uint32))
    assert environment.past(chain)
    assert environment.past(sample(chain, 0)[0]) == {}


def test_what_comes_out_elsewhere_is_noticed():
    environment, sample = walker(limited(Grudging))
    chain = environment.start(np.array([1, 2], np.uint32))
    for k in range(5):
        chain = sample(chain, k)[0]
    assert walker(limited(Grudging))[0].revive(environment.past(chain)) is None


def test_a_past_that_is_none():
    environment, sample = walker(limited(Chancy))
    chain = sample(environment.start(np.array([1, 2], np.uint32)), 0)[0]
    past = environment.past(chain)
    plain = json.loads(past["standing"].tobytes())
    for changed in (
        {"now": {"bit_generator": "PCG64"}}, {"origin": [], "first": False}, {"elapsed": 10**12}, {"elapsed": -1},
        {"elapsed": "x"}, {"colour": 1}, {"origin": plain[0]["now"], "first": False},
    ):  # fmt: skip
        told = np.frombuffer(json.dumps([plain[0] | changed, *plain[1:]]).encode(), np.uint8)
        assert walker(limited(Chancy))[0].revive(past | {"standing": told}) is None, changed
    for missing in past:
        assert walker(limited(Chancy))[0].revive({k: v for k, v in past.items() if k != missing}) is None
    for name in ("rewards", "actions", "seen", "seeds"):
        assert walker(limited(Chancy))[0].revive(past | {name: past[name][:-1]}) is None
    assert walker(limited(Chancy))[0].revive({}) is None


@pytest.mark.slow
def test_worker_processes_too():
    environment, sample = walker("resource-gathering-v0", workers=2)
    chain = environment.start(np.array([1, 2], np.uint32))
    for k in range(3):
        chain = sample(chain, k)[0]
    other, sample_other = walker("resource-gathering-v0")
    again = other.revive(environment.past(chain))
    assert again is not None
    assert same(sample_other(again, 9)[1:], sample(chain, 9)[1:])
    environment.close()
