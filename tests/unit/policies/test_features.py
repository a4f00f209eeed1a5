import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac.momdp import library
from moac.policies import features
from tests.helpers import reference

MODEL = library.random_ergodic(0, num_states=5, num_actions=2, num_objectives=2, num_successors=2, termination=0.1)
STATES = jnp.array([[3, 0, 4], [1, 1, 2]])
ALL = {
    "one-hot": features.OneHot(5),
    "without the first": features.OneHot(5, reference=0),
    "without one between": features.OneHot(5, reference=2),
    "without the last": features.OneHot(5, reference=4),
    "table": features.table(np.arange(15.0).reshape(5, 3) - 6),
    "random": features.random_table(jax.random.key(0), 5, 3),
}
of_all = pytest.mark.parametrize("phi", ALL.values(), ids=ALL)


@of_all
def test_applying_features_is_a_product_with_their_table(phi):
    w = jnp.asarray(np.random.default_rng(0).normal(size=(phi.size, 2)), jnp.float32)
    assert phi.table().shape == (5, phi.size)
    np.testing.assert_allclose(phi.apply(w, STATES), phi.table()[STATES] @ w, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(phi.apply(w, jnp.array(2)), phi.table()[2] @ w, rtol=1e-6, atol=1e-6)


@of_all
def test_the_transpose_sums_features(phi):
    """What a TD step needs: Σ φ(s) δ, for states that come twice too."""
    delta = np.random.default_rng(1).normal(size=(2, 3, 2)).astype(np.float32)
    w = jnp.zeros((phi.size, 2))
    (ascent,) = jax.vjp(lambda w: phi.apply(w, STATES), w)[1](jnp.asarray(delta))
    expected = np.einsum("bcd,bck->dk", phi.table()[STATES], delta)
    np.testing.assert_allclose(ascent, expected, rtol=1e-5, atol=1e-6)


@of_all
def test_no_feature_vector_is_longer_than_one(phi):
    length = np.linalg.norm(phi.table(), axis=1)
    assert length.max() == pytest.approx(1.0)
    assert length.max() <= 1 + 1e-12


@pytest.mark.parametrize("dropped", [0, 2, 4])
def test_a_reference_state_has_no_column_and_no_value(dropped):
    phi = features.OneHot(5, reference=dropped)
    np.testing.assert_array_equal(phi.table(), np.delete(np.eye(5), dropped, axis=1))
    values = phi.apply(jnp.arange(1.0, 5.0)[:, None], jnp.arange(5))[:, 0]
    np.testing.assert_array_equal(values, np.insert(np.arange(1.0, 5.0), dropped, 0.0))


def test_the_reference_that_is_named_is_the_most_visited_state():
    law = reference.uniform_policy_law(MODEL)
    assert np.sort(law)[-1] - np.sort(law)[-2] > 0.01
    phi = features.by_name("one-hot-reference", MODEL.spec, jax.random.key(0))
    assert phi == features.OneHot(5, reference=int(law.argmax()))


def test_a_table_is_scaled_as_a_whole_and_only_down():
    rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(features.table(rows).table(), rows / 5)
    np.testing.assert_array_equal(features.table(rows / 100).table(), rows / 100)


def test_a_table_is_a_copy():
    rows = np.ones((2, 1))
    phi = features.table(rows)
    rows[:] = 7
    np.testing.assert_array_equal(phi.table(), 1)


def test_random_features_depend_on_the_key_and_have_length_one():
    first, again, other = (features.by_name("random:3", MODEL.spec, jax.random.key(k)).table() for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-12)
    assert first.shape == (5, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones(3), r"`rows` must have shape \[S, d\], got \(3,\)"),
        (np.ones((3, 0)), r"`rows` must have shape \[S, d\], got \(3, 0\)"),
        ([[1.0, np.nan]], r"`rows` must be finite, got nan at index \(0, 1\)"),
        ([[1.0], [-np.inf]], r"`rows` must be finite, got -inf at index \(1, 0\)"),
    ],
)
def test_a_bad_table_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        features.table(rows)


def test_one_state_has_no_reference():
    one = library.random_ergodic(0, num_states=1, num_actions=2)
    with pytest.raises(ValueError, match=r"`features` must be one-hot.*of more than one state"):
        features.by_name("one-hot-reference", one.spec, jax.random.key(0))
