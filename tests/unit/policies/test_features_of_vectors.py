import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moac.policies import SoftmaxBasis, features

BASES = {
    "raw": features.Raw(3),
    "fourier": features.Fourier(3, 3),
    "rbf": features.RBF(3, 40),
    "tile": features.Tile(3),
    "hashed tile": features.Tile(3, tilings=4, tiles=20),
}
of_all = pytest.mark.parametrize("phi", BASES.values(), ids=BASES)
vectors = st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3)


def vector(phi, x):
    return phi.apply(np.eye(phi.size), np.asarray(x, np.float32))


@of_all
@given(x=vectors)
def test_no_feature_vector_is_longer_than_one(phi, x):
    assert np.linalg.norm(vector(phi, x)) <= 1 + 1e-6


@of_all
def test_numpy_and_jax_agree(phi):
    rng = np.random.default_rng(0)
    x, w = rng.random((5, 4, 3), np.float32), rng.normal(size=(phi.size, 2)).astype(np.float32)
    ours = phi.apply(w, x)
    assert isinstance(ours, np.ndarray)
    assert ours.shape == (5, 4, 2)
    np.testing.assert_allclose(jax.jit(phi.apply)(jnp.asarray(w), jnp.asarray(x)), ours, rtol=1e-4, atol=1e-5)


@of_all
def test_different_places_differ(phi):
    assert np.abs(vector(phi, [0.1, 0.1, 0.1]) - vector(phi, [0.9, 0.9, 0.9])).max() > 1e-3


def test_tiles_form_a_grid_of_which_one_per_tiling_is_on():
    phi = features.Tile(2, tilings=4, tiles=3)
    assert phi.size == 4 * 16
    on = vector(phi, [0.2, 0.7])
    assert sorted(np.unique(on)) == [0, 0.5]
    assert (on > 0).sum() == 4
    np.testing.assert_array_equal(on.reshape(4, 16).sum(axis=1), 0.5)


def test_fourier_coefficients_couple_at_most_two_inputs():
    phi = features.Fourier(4, 2)
    assert phi.size == 1 + 4 * 2 + 6 * 4
    assert (np.count_nonzero(phi.coefficients, axis=1) <= 2).all()
    assert len(np.unique(phi.coefficients, axis=0)) == phi.size


def test_by_their_names():
    assert features.of_vectors("tile:5", 2) == features.Tile(2, tiles=5)
    assert features.of_vectors("fourier:2", 3) == features.Fourier(3, 2)
    assert features.of_vectors("rbf:9", 3) == features.RBF(3, 9)
    with pytest.raises(ValueError, match="`features` must be tile, fourier:<order>, rbf:<n>, raw or plain for vectors"):
        features.of_vectors("one-hot", 2)


@of_all
def test_scores_are_those_of_the_log_probabilities(phi):
    policy, rng = SoftmaxBasis(phi, 3), np.random.default_rng(1)
    theta = jnp.asarray(rng.normal(size=(phi.size, 3)), jnp.float32)
    x, a = jnp.asarray(rng.random((6, 3)), jnp.float32), jnp.array([0, 1, 2, 2, 1, 0])
    signal = jnp.asarray(rng.normal(size=(6, 2)), jnp.float32)
    log_prob = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))

    def both(theta):
        transpose = jax.vjp(lambda t: log_prob(t, x, a), theta)[1]
        return policy.accumulate(theta, x, a, signal), [transpose(column)[0] for column in signal.T]

    for ours, expected in zip(*jax.jit(both)(theta), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)
