"""What is derived from an object lives as long as the object."""

import copy
import gc
import pickle
import weakref
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moac
from moac import api, compiling, envs, momdp, theory
from moac.config import Config, Discounted
from moac.kept import with_owner
from moac.kuairand import generate
from moac.offline.evaluate import with_estimator
from moac.training import compiled, result

DISCOUNTED = Discounted(0.5)
BATCHES = {"num_critic_steps": 1, "critic_batch_size": 2, "actor_batch_size": 2}
SMALL = {"num_iterations": 2, "num_evaluations": 1, **BATCHES}


@dataclass(frozen=True, eq=False)
class Owner:
    """Frozen, as models and logs are."""

    size: int = 3


@with_owner
def made(owner, times=1, *, plus=0):
    return np.full(owner.size, times + plus)


def test_made_once_for_each_owner_and_value():
    one, other = Owner(), Owner()
    assert made(one) is made(one)
    assert made(one, 2) is made(one, 2)
    assert made(one, plus=1) is made(one, plus=1)
    assert len({id(x) for x in (made(one), made(one, 2), made(one, plus=1), made(other))}) == 4
    assert made(one, 2, plus=1).tolist() == [3, 3, 3]


def test_gone_with_its_owner():
    owner = Owner()
    value = weakref.ref(made(owner))
    assert value() is not None
    del owner
    assert value() is None


def test_copies_begin_with_nothing():
    owner = Owner()
    value = made(owner)
    for other in (copy.deepcopy(owner), pickle.loads(pickle.dumps(owner)), replace(owner)):
        assert made(other) is not value
        assert other.size == owner.size


def test_a_log_is_freed_with_the_programs_that_were_compiled_for_it():
    log = generate.log(400, 1, num_users=60).dataset()
    trained = api.train(with_estimator(log), Config(policy="mlp", num_iterations=2, num_evaluations=1), trials=1)
    gone = weakref.ref(log)
    assert gone() is not None
    del log, trained
    gc.collect()
    assert gone() is None


def small_model(seed, num_states=3):
    """Two actions with two outcomes each, some of which end the episode."""
    rng = np.random.default_rng(seed)
    shape = (num_states, 2, 2)
    tables = rng.integers(num_states, size=shape), np.full(shape, 0.5), rng.normal(size=(*shape, 2))
    ended = np.zeros(shape, bool)
    ended[0, 0, 0] = True
    return momdp.FiniteMOMDP.from_outcomes(*tables, ended)


def test_programs_of_few_static_values_and_few_shapes_are_kept():
    @compiling.kept_for_few(1)
    def scaled(owner, x):
        return owner.size * x

    first = Owner(size=2)
    gone = weakref.ref(first)
    assert scaled(first, 3) == 6
    del first
    for size in range(20):
        assert scaled(Owner(size=size), np.ones(1)).tolist() == [size]
    gc.collect()
    assert gone() is None


def train(model):
    return moac.train(model, **SMALL)


def train_a_network(model):
    return moac.train(model, policy="mlp", hidden=(4,), **SMALL)


def train_an_own_policy(model):
    return moac.train(model, policy=OwnTable(model.num_states, model.num_actions), **SMALL)


def evaluate(model):
    return momdp.evaluate(model, np.zeros((model.num_states, model.num_actions)), DISCOUNTED)


def front(model):
    return momdp.pareto_front(model, DISCOUNTED)


def ground(model):
    known = theory.ground(model, np.zeros((model.num_states, model.num_actions)), DISCOUNTED)
    return known.exact, theory.check(known)


def explore(model):
    return moac.explore(model, steps=500, preferences=2, **BATCHES)


@dataclass(frozen=True, eq=False)
class OwnTable:
    """A policy of the caller's."""

    num_states: int
    num_actions: int

    def init(self, key):
        del key
        return jnp.zeros((self.num_states, self.num_actions))

    def sample(self, theta, observation, key):
        return jax.random.categorical(key, theta[observation])

    def log_prob(self, theta, observation, action):
        return jax.nn.log_softmax(theta[observation])[action]


@pytest.mark.parametrize(
    "use", [train, train_a_network, train_an_own_policy, evaluate, front, ground, explore], ids=lambda use: use.__name__
)
def test_a_model_that_was_used_is_freed(use):
    model = small_model(0)
    made_of_it = use(model)
    gone = weakref.ref(model)
    assert made_of_it is not None
    del model, made_of_it
    gc.collect()
    assert gone() is None


def test_an_environment_that_was_trained_on_and_evaluated_is_freed():
    environment = envs.make("deep-sea-treasure-v0", num_envs=2, evaluation_episodes=1)
    trained = moac.train(environment, num_iterations=1, num_evaluations=1, hidden=(4,), epochs=1)
    moac.evaluate(trained, episodes=2)
    gone = weakref.ref(environment)
    del environment, trained
    gc.collect()
    assert gone() is None


def test_models_of_one_shape_share_a_program_and_each_is_sampled_from_its_own_tables():
    models = [small_model(seed) for seed in (1, 2)]
    first, second = (compiled._program_of(result.prepare(model, Config(**SMALL), 2, 0)) for model in models)
    assert first is second
    shared = [train(model).policy.theta for model in models]
    assert not np.array_equal(*shared)
    compiled._shared_program.cache_clear()
    np.testing.assert_array_equal(train(models[1]).policy.theta, shared[1])
