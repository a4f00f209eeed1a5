"""Keys whose hash is written out draw the numbers of JAX's own."""

import jax
import numpy as np
import pytest

from moac import keys

SEEDS = [0, 7, 2**32 - 1]


def data(key):
    return np.asarray(jax.random.key_data(key))


@pytest.fixture(params=SEEDS)
def pair(request):
    return jax.random.key(np.uint32(request.param)), keys.key(np.uint32(request.param))


def test_keys_are_those_of_jax(pair):
    theirs, ours = pair
    np.testing.assert_array_equal(data(ours), data(theirs))
    np.testing.assert_array_equal(data(jax.random.split(ours, (3, 2))), data(jax.random.split(theirs, (3, 2))))
    for number in (0, 9, 2**32 - 1):
        folded = jax.random.fold_in(ours, np.uint32(number)), jax.random.fold_in(theirs, np.uint32(number))
        np.testing.assert_array_equal(data(folded[0]), data(folded[1]))


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_bits_are_those_of_jax(pair, width, x64):
    drawn = [np.asarray(jax.random.bits(key, (7, 3), f"uint{width}")) for key in pair]
    np.testing.assert_array_equal(drawn[1], drawn[0])
    assert len(np.unique(drawn[0])) > 10


def test_draws_under_vmap_are_those_of_jax(pair):
    drawn = [np.asarray(jax.vmap(lambda key: jax.random.uniform(key, (5,)))(jax.random.split(key, 4))) for key in pair]
    np.testing.assert_array_equal(drawn[1], drawn[0])


def test_a_key_from_its_data_goes_on(pair):
    np.testing.assert_array_equal(data(jax.random.split(keys.of_data(data(pair[0])))), data(jax.random.split(pair[0])))
