"""Random models: ergodic under every policy, the same for the same key, sensible arguments only."""

import itertools
import re

import jax
import numpy as np
import pytest

from moac.momdp import library

SHAPES = [{}, {"num_states": 1}, {"num_states": 2}, {"num_successors": 2}, {"num_states": 7, "num_successors": 3}]


def moves(model, policy):
    """Which state can follow which, [S, S], with restarts, when each state s takes action policy[s]."""
    possible = np.zeros((model.num_states, model.num_states), dtype=bool)
    for s, a in enumerate(policy):
        for o in np.flatnonzero(model.probability[s, a] > 0):
            after = (
                model.start_distribution > 0
                if model.terminated[s, a, o]
                else np.eye(model.num_states)[model.next_state[s, a, o]]
            )
            possible[s] |= after.astype(bool)
    return possible


def assert_ergodic_under_every_policy(model):
    """Irreducible and aperiodic is: power (S − 1)² + 1 of the moves has no zero (Wielandt)."""
    for policy in itertools.product(range(model.num_actions), repeat=model.num_states):
        possible = moves(model, policy).astype(int)
        reached = np.eye(model.num_states, dtype=int)
        for _ in range((model.num_states - 1) ** 2 + 1):
            reached = np.minimum(reached @ possible, 1)
        assert reached.all(), policy


@pytest.mark.parametrize("termination", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_models_are_irreducible_and_aperiodic_under_every_policy(shape, termination):
    model = library.random_ergodic(3, num_actions=2, termination=termination, **shape)
    assert_ergodic_under_every_policy(model)


@pytest.mark.parametrize("key", range(20))
def test_sparse_random_models_of_even_size_have_no_period(key):
    assert_ergodic_under_every_policy(library.random_ergodic(key, 4, 3, num_successors=2))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_models_have_the_size_that_was_asked_for(shape):
    model = library.random_ergodic(0, num_actions=4, num_objectives=3, **shape)
    width = shape.get("num_successors", model.num_states)
    assert model.next_state.shape == (shape.get("num_states", 5), 4, width)
    assert model.num_objectives == 3
    assert all(len(set(row)) == width for row in model.next_state.reshape(-1, width).tolist())
    assert model.probability.min() >= 0.1 / width
    assert model.reward.min() >= 0
    assert model.reward.max() <= 1
    assert model.start_distribution.min() > 0
    assert not model.terminated.any()


def test_random_models_end_with_the_chance_that_was_asked_for():
    model = library.random_ergodic(0, termination=0.2, num_successors=3)
    np.testing.assert_allclose((model.probability * model.terminated).sum(axis=2), 0.2, rtol=1e-15)
    going_on = library.random_ergodic(0, num_successors=3)
    np.testing.assert_allclose(model.probability[..., :3], 0.8 * going_on.probability, rtol=1e-15)


def test_the_model_that_all_share_cannot_be_changed():
    model = library.for_environment("fishwood-v0")
    assert model is library.for_environment("fishwood-v0")
    with pytest.raises(ValueError, match="read-only"):
        model.reward[:] = 0


def test_random_models_depend_on_the_key_alone():
    same = [library.random_ergodic(key).fingerprint for key in (jax.random.key(7), jax.random.PRNGKey(7))]
    same += [library.random_ergodic(np.array([0, 7], np.uint32)).fingerprint]
    assert len(set(same)) == 1
    assert library.random_ergodic(7).fingerprint == library.random_ergodic(np.int64(7)).fingerprint
    several = [library.random_ergodic(key).fingerprint for key in (0, 1, jax.random.key(2), jax.random.key(3))]
    assert len(set(several)) == 4


REFUSED_SIZES = {
    "`num_states` must be a whole number of at least 1, got 0.": {"num_states": 0},
    "`num_actions` must be a whole number of at least 1, got -1.": {"num_actions": -1},
    "`num_objectives` must be a whole number of at least 1, got 0.": {"num_objectives": 0},
    "`num_successors` must be in [2, 5], got 1.": {"num_successors": 1},
    "`num_successors` must be in [2, 5], got 6.": {"num_successors": 6},
    "`num_successors` must be in [1, 1], got 2.": {"num_states": 1, "num_successors": 2},
    "`termination` must be in [0, 1], got 1.1.": {"termination": 1.1},
    "`termination` must be in [0, 1], got nan.": {"termination": float("nan")},
    "`key` must be a whole number of at least 0, got -1.": {"key": -1},
    "`key` must be a whole number or a key such as jax.random.key(0), got None.": {"key": None},
}


@pytest.mark.parametrize("message", REFUSED_SIZES)
def test_random_models_refuse(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        library.random_ergodic(**{"key": 0, **REFUSED_SIZES[message]})
