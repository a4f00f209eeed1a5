import itertools
import json
import math

import numpy as np
import pytest
from gymnasium import spaces

from moac.envs.make import actions_of, encoder_of
from moac.policies.encoding import MAX_STATES, ActionBox, Encoder
from moac.policies.observations import Moments, Scale

SMALL = {
    "discrete": (spaces.Discrete(4), 4),
    "discrete from -1": (spaces.Discrete(3, start=-1), 3),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), 6),
    "multi-binary": (spaces.MultiBinary(3), 8),
    "whole box": (spaces.Box(-1, 2, (2,), np.int32), 16),
    "tuple": (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 2, (1,), np.int8))), 6),
    "dict": (spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.MultiBinary(2)})}), 12),
}


def everything(space):
    """All values of a small space."""
    if isinstance(space, spaces.Discrete):
        return list(range(space.start, space.start + space.n))
    if isinstance(space, spaces.Tuple):
        return list(itertools.product(*(everything(part) for part in space.spaces)))
    if isinstance(space, spaces.Dict):
        names = list(space.spaces)
        return [dict(zip(names, v, strict=True)) for v in itertools.product(*(everything(space[n]) for n in names))]
    low = np.zeros(space.shape, int) if not isinstance(space, spaces.Box) else space.low
    high = space.nvec - 1 if isinstance(space, spaces.MultiDiscrete) else getattr(space, "high", low + 1)
    ranges = [range(a, b + 1) for a, b in zip(low.ravel(), np.ravel(high), strict=True)]
    return [np.array(v, space.dtype) for v in itertools.product(*ranges)]


@pytest.mark.parametrize(("space", "count"), SMALL.values(), ids=SMALL)
def test_states_are_numbered_without_gaps(space, count):
    encoder, values = encoder_of(space), everything(space)
    assert encoder.num_states == count == len(values)
    assert sorted(encoder.state(value) for value in values) == list(range(count))
    assert len({encoder.lookup_key(value) for value in values}) == count


@pytest.mark.parametrize(("space", "count"), SMALL.values(), ids=SMALL)
def test_an_encoder_survives_json(space, count):
    encoder = encoder_of(space)
    assert Encoder.from_json(encoder.to_json()) == encoder


def test_infinite_bounds_survive_json():
    encoder = encoder_of(spaces.Box(0.0, np.inf, (2,), np.float32))
    assert not encoder.bounded
    assert Encoder.from_json(encoder.to_json()) == encoder


@pytest.mark.timeout(30)  # the number of a picture's states must not be multiplied out, which takes minutes
def test_too_many_states_are_vectors():
    assert encoder_of(spaces.MultiDiscrete([10] * 5)).num_states == MAX_STATES
    assert encoder_of(spaces.MultiDiscrete([10] * 5 + [2])).num_states is None
    assert encoder_of(spaces.Box(0, 255, (300, 300), np.uint8)).num_states is None
    assert encoder_of(spaces.Box(0.0, 1.0, (1,))).num_states is None
    assert encoder_of(spaces.Box(-(2**31), 2**31 - 2, (1,), np.int32)).num_states is None


@pytest.mark.parametrize("shape", [(16, 16, 3), (3, 84, 84), (480, 480, 3)])
def test_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"`observation_space` must not be an image, got shape \(.*: images are not"):
        encoder_of(spaces.Box(0, 255, shape, np.uint8))


@pytest.mark.parametrize("space", [spaces.Box(0, 255, (7, 7, 3), np.uint8), spaces.Box(0.0, 1.0, (16, 16, 3))])
def test_boards_and_real_numbers_are_no_images(space):
    assert encoder_of(space).size == np.prod(space.shape)


def test_vectors_have_a_largest_size():
    assert encoder_of(spaces.Box(-1.0, 1.0, (100_000,))).size == 100_000
    with pytest.raises(ValueError, match=r"`observation_space` must hold at most 100,000 numbers, .* got 100,001\.$"):
        encoder_of(spaces.Box(-1.0, 1.0, (100_001,)))
    with pytest.raises(ValueError, match=r"`observation_space` must hold at most 100,000 numbers, .* got 120,000\.$"):
        encoder_of(spaces.Tuple([spaces.Box(-1.0, 1.0, (60_000,))] * 2))


@pytest.mark.parametrize(
    ("observation", "held"), [("1.5", "texts"), (["1.5"], "texts"), (np.array([1j]), "complex numbers")]
)
def test_what_is_no_real_number_is_refused(observation, held):
    for space in (spaces.Box(0.0, 4.0, (1,)), spaces.Discrete(4)):
        with pytest.raises(ValueError, match=f"must hold real numbers at its only array, got {held}"):
            encoder_of(space).flat(observation)


def test_what_counts_more_than_one_bottle_is_still_a_bottle():
    """breakable-bottles counts in a space that is called binary."""
    encoder = encoder_of(spaces.MultiBinary(2))
    assert encoder.state([0, 2]) == encoder.state([0, 1]) == 1


@pytest.mark.parametrize("value", [5, -1, [1, 2]])
def test_what_lies_outside_is_refused(value):
    with pytest.raises(ValueError, match="`observation` must"):
        encoder_of(spaces.Discrete(4)).state(value)


@pytest.mark.parametrize("space", [spaces.Text(4), spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))})])
def test_unknown_spaces_are_refused(space):
    with pytest.raises(ValueError, match="`observation_space` must be Discrete, MultiDiscrete, MultiBinary, Box"):
        encoder_of(space)


def test_discrete_actions_from_zero_or_real_numbers():
    assert actions_of(spaces.Discrete(3)) == 3
    assert actions_of(spaces.Box(0, 1, (2, 1))).shape == (2, 1)
    for space in (spaces.Box(0, 1, (1,), np.int32), spaces.Discrete(3, start=1), spaces.MultiBinary(2)):
        with pytest.raises(ValueError, match="`action_space` must"):
            actions_of(space)


@pytest.mark.parametrize("data", [None, [1], [{"path": []}], [{"path": [], "kind": "odd", "low": [0], "high": [1]}]])
def test_a_bad_encoder_is_refused(data):
    with pytest.raises(ValueError, match=r"`encoder` must|`kind` must"):
        Encoder.from_json(data)


def test_moments_are_those_of_all_that_was_seen():
    rows = np.random.default_rng(0).normal([3, -1, 0], [2, 0.1, 0], size=(100, 3))
    moments = Moments.nothing(3)
    for part in np.split(rows, [1, 10, 64]):
        moments = moments.including(part)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    np.testing.assert_allclose(moments.squares / 100, rows.var(axis=0), atol=1e-12)
    scaled = moments.scale()(rows)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled[:, :2].mean(axis=0), 0.5, atol=0.01)


def test_scaling_by_bounds():
    scale = Scale.between(np.array([-1.0, 5.0]), np.array([3.0, 5.0]))
    np.testing.assert_allclose(scale(np.array([[-1.0, 5.0], [1.0, 5.0], [9.0, 7.0]])), [[0, 0], [0.5, 0], [1, 0]])


BOX = ActionBox((2, 1), "float64", (-1.0, 0.0), (2.0, math.inf))


def test_a_box_survives_json_and_refuses_what_is_none():
    assert ActionBox.from_json(json.loads(json.dumps(BOX.to_json()))) == BOX
    np.testing.assert_array_equal(BOX(np.array([[-3.0, 1e9], [1.0, -1.0]])), [[[-1], [1e9]], [[1], [0]]])
    for change in ({"low": [1.0]}, {"dtype": "int32"}, {"dtype": "cat"}, {"shape": None}, {"high": ["a", "b"]}):
        with pytest.raises(ValueError, match="`actions` must "):
            ActionBox.from_json(BOX.to_json() | change)


@pytest.mark.parametrize("observation", [np.zeros(2), {"a": 1}, {"b": {}}, 3])
def test_an_observation_without_a_part_is_refused(observation):
    encoder = encoder_of(SMALL["dict"][0])
    assert encoder.state({"a": 2, "b": {"c": [1, 0]}}) == 10
    with pytest.raises(ValueError, match=r"^`observation` must have [12] numbers at (a|b\.c), got none\.$"):
        encoder.state(observation)
