"""Steps along a direction against their formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from moac import steps

DIRECTIONS = np.random.default_rng(0).normal(size=(6, 4))


def taken(transformation):
    state, found = transformation.init(jnp.zeros(4)), []
    for direction in DIRECTIONS:
        step, state = transformation.update(jnp.asarray(direction, jnp.float32), state)
        found.append(np.asarray(step))
    return np.array(found)


def test_constant_steps():
    np.testing.assert_allclose(taken(steps.by_name("constant", 0.3)), 0.3 * DIRECTIONS, rtol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_adam(clip):
    """Its moments are those of the directions as they are cut."""
    first, second, expected = np.zeros(4), np.zeros(4), []
    for t, direction in enumerate(DIRECTIONS, start=1):
        g = direction if clip is None else direction * min(1, clip / np.linalg.norm(direction))
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        expected.append(0.01 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8))
    np.testing.assert_allclose(taken(steps.by_name("adam", 0.01, clip)), expected, rtol=1e-4)


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_clipping_cuts_long_directions_only(clip):
    length = np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
    expected = DIRECTIONS * np.minimum(1, clip / length)
    np.testing.assert_allclose(taken(steps.by_name("constant", 1.0, clip)), expected, rtol=1e-5)
