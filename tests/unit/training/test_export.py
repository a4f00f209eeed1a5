"""Exported files give what the library gives, for every kind of policy and of observation."""

import importlib.metadata
import json
import sys

import jax
import numpy as np
import onnx
import pytest

import moac
from moac.policies import (
    GaussianMLP,
    Items,
    ItemsPolicy,
    SoftmaxBasis,
    SoftmaxLinear,
    SoftmaxMLP,
    SoftmaxTable,
    features,
)
from moac.policies.encoding import ActionBox, Encoder, Leaf
from moac.policies.gaussian import Squash
from moac.policies.networks import Digits, Plain, States, Vectors, WithPreference
from moac.policies.observations import LogSpec, StateSpec, VectorSpec
from moac.training import export
from moac.training.trained import TrainedPolicy
from moac.types import Request
from tests.helpers.exports import assert_close, outputs, right

INF = float("inf")
TRIALS, ROWS = 2, 64
RNG = np.random.default_rng(0)
DIGITS = Leaf((), "integer", (-1.0, 0.0, 2.0), (1.0, 0.0, 51.0))  # 3 · 1 · 50 states
GRID = Encoder((DIGITS,))
MIXED = Encoder((Leaf(("lamps",), "binary", (0.0,) * 2, (1.0,) * 2), Leaf(("place",), "integer", (-3.0,), (3.0,))))
REAL = Encoder((Leaf((), "float", (-INF,) * 3, (INF,) * 3),))
SHOWN = np.array([[0, 0], [0, 1], [1, 0], [3, 2], [2, 3]])
SHIFT, GAIN = RNG.normal(size=(TRIALS, 3)), RNG.uniform(0.05, 0.5, (TRIALS, 3))


def vectors(encoder, shift=None, gain=None):
    scale = VectorSpec(encoder).scale(None)
    shift = np.tile(scale.shift, (TRIALS, 1)) if shift is None else shift
    return VectorSpec(encoder, {"shift": shift, "gain": np.tile(scale.gain, (TRIALS, 1)) if gain is None else gain})


def floats(low, high):
    return Encoder((Leaf((), "float", low, high),))


def trained(policy, observations, box=None):
    """Policies of two trials with parameters drawn at random; the second is exported."""
    one = policy.init(jax.random.key(0))
    theta = jax.tree.map(lambda leaf: RNG.normal(size=(TRIALS, *leaf.shape)).astype(np.float32), one)
    return TrainedPolicy(policy, theta, observations, trial=1, box=box)


def real(size=3):
    return RNG.normal(size=(ROWS, size)).astype(np.float32)


def whole(encoder):
    return RNG.integers(encoder.low, encoder.high + 1, (ROWS, encoder.size)).astype(np.float32)


def answers(policy, **inputs):
    return outputs(export.onnx(policy, {"problem": "p", "objectives": ("a", "b")}), **inputs)


DISCRETE = {
    "bounds": lambda: (SoftmaxMLP(Vectors(3), (8, 8), 4), vectors(floats((-2.0, 0.0, 0.5), (2.0, 1.0, 0.5))), real()),
    "moments": lambda: (SoftmaxMLP(Vectors(3, 10.0), (8,), 4), vectors(REAL, SHIFT, GAIN), real()),
    "no hidden layer": lambda: (SoftmaxMLP(Vectors(3), (), 2), vectors(REAL, SHIFT, GAIN), real()),
    "ones and zeros": lambda: (SoftmaxMLP(Digits(54, (3, 1, 50)), (8,), 4), vectors(GRID), whole(GRID)),
    "raw": lambda: (SoftmaxBasis(features.of_vectors("raw", 3), 4), vectors(REAL, SHIFT, GAIN), real()),
    "fourier": lambda: (SoftmaxBasis(features.of_vectors("fourier:3", 3), 4), vectors(REAL, SHIFT, GAIN), real()),
    "rbf": lambda: (SoftmaxBasis(features.of_vectors("rbf:20", 3), 4), vectors(REAL, SHIFT, GAIN), real()),
    "tile": lambda: (SoftmaxBasis(features.of_vectors("tile:4", 3), 4), vectors(REAL, SHIFT, GAIN), real()),
    "hashed": lambda: (SoftmaxBasis(features.Tile(5), 4), vectors(floats((-3.0,) * 5, (3.0,) * 5)), real(5)),
    "table": lambda: (SoftmaxTable(150, 4), StateSpec(150, encoder=GRID), whole(GRID)),
    "linear": lambda: (SoftmaxLinear(features.OneHot(150, 3), 4), StateSpec(150, encoder=GRID), whole(GRID)),
    "network, states": lambda: (SoftmaxMLP(States(150), (8,), 4), StateSpec(150, encoder=GRID), whole(GRID)),
    "network, digits": lambda: (SoftmaxMLP(Digits(54, (3, 1, 50)), (8,), 4), StateSpec(150, encoder=GRID), whole(GRID)),
    "shown": lambda: (SoftmaxTable(5, 4), StateSpec(5, SHOWN), SHOWN[np.arange(ROWS) % 5].astype(np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_are_the_librarys(name):
    kind, observations, rows = DISCRETE[name]()
    policy = trained(kind, observations)
    found = answers(policy, observation=rows)
    assert_close(found["logits"], right(policy, rows))
    assert_close(found["probabilities"], jax.nn.softmax(right(policy, rows)))


def test_parts_of_an_observation_stand_one_after_the_other():
    policy = trained(SoftmaxMLP(Vectors(3), (8,), 4), vectors(MIXED))
    parts = [{"lamps": np.array([0.0, -7.0]), "place": place} for place in range(-3, 4)]
    rows = np.array([[*part["lamps"], part["place"]] for part in parts], np.float32)
    assert_close(answers(policy, observation=rows)["logits"], right(policy, parts))


@pytest.mark.parametrize("inner", [Vectors(3, 10.0), Digits(54, (3, 1, 50))], ids=["vectors", "whole numbers"])
def test_a_preference_is_an_input_or_part_of_the_file(inner):
    encoder = (REAL if isinstance(inner, Vectors) else GRID).with_preference(2)
    scales = (np.pad(SHIFT, ((0, 0), (0, 2))), np.pad(GAIN, ((0, 0), (0, 2)), constant_values=1.0))
    observations = vectors(encoder, *(scales if isinstance(inner, Vectors) else ()))
    policy = trained(SoftmaxMLP(WithPreference.after(inner, 2), (8,), 4), observations)
    rows = real() if isinstance(inner, Vectors) else whole(GRID)
    p = RNG.dirichlet((1, 1), size=ROWS).astype(np.float32)
    found = answers(policy, observation=rows, preference=p)["logits"]
    assert_close(found, right(policy, rows, p))
    bound = answers(policy.at([0.25, 0.75]), observation=rows)["logits"]
    assert_close(bound, right(policy, rows, np.tile([0.25, 0.75], (ROWS, 1))))
    assert np.abs(bound - found).max() > 0.1


BOXES = {
    "bounded": ActionBox((2,), "float32", (-1.0, 0.0), (1.0, 50.0)),
    "half bounded": ActionBox((2, 2), "float64", (-1.0, 0.0, -INF, -INF), (1.0, INF, 2.0, INF)),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("by_state", [False, True], ids=["one sigma", "sigma by state"])
def test_actions_are_the_librarys_for_the_same_noise(box, by_state):
    kind = GaussianMLP(Vectors(3, 10.0), (8, 8), Squash(box.low, box.high), by_state)
    policy = trained(kind, vectors(REAL, SHIFT, GAIN), box)
    rows, noise = real(), real(box.size)
    for normal in (noise, 0 * noise):
        found = answers(policy, observation=rows, noise=normal)["action"]
        assert found.dtype == box.dtype
        assert_close(found, right(policy, rows, noise=normal))


@pytest.mark.parametrize("inputs", [States(150), Digits(54, (3, 1, 50))], ids=["states", "digits"])
def test_vectors_as_actions_by_states(inputs):
    box = BOXES["bounded"]
    kind = GaussianMLP(inputs, (8,), Squash(box.low, box.high))
    policy, rows, noise = trained(kind, StateSpec(150, encoder=GRID), box), whole(GRID), real(2)
    assert_close(answers(policy, observation=rows, noise=noise)["action"], right(policy, rows, noise=noise))


def test_features_of_a_log_come_as_they_are():
    policy = trained(SoftmaxMLP(Plain(6), (8,), 4), LogSpec(6))
    x = RNG.normal(size=(ROWS, 6)).astype(np.float32)
    assert_close(answers(policy, observation=x)["logits"], policy.logits(x))


@pytest.mark.parametrize("embedding", [False, True], ids=["by features", "with embeddings"])
def test_candidates_among_described_items(embedding):
    items = Items.of(RNG.normal(size=(20, 3)), np.arange(20) < 15)
    policy, x = trained(ItemsPolicy(Plain(6), (8,), items, embedding), LogSpec(6)), real(6)
    listed = np.where(RNG.random((ROWS, 9)) < 0.3, -1, np.argsort(RNG.random((ROWS, 20)))[:, :9])
    listed[:, 0] = np.maximum(listed[:, 0], 0)
    found, right = answers(policy, observation=x, candidates=listed), policy.logits(Request(x, listed))
    assert_close(found["logits"], right)
    assert_close(found["probabilities"], jax.nn.softmax(right))
    assert (found["probabilities"][listed < 0] == 0).all()
    everything = np.tile(np.arange(20), (ROWS, 1))
    assert_close(answers(policy, observation=x, candidates=everything)["logits"], policy.logits(x))


@pytest.mark.parametrize(
    ("observations", "name", "rows"),
    [
        (StateSpec(150, encoder=GRID), "observation", [[0, 0, 3], [0, 0, 52], [0, 1, 3], [0.5, 0, 3], [-2, 0, 3]]),
        (StateSpec(5, SHOWN), "observation", [[3, 2], [3, 3], [0.5, 0], [9, 9]]),
        (StateSpec(150), "state", [149, 150, -1]),
    ],
    ids=["whole numbers", "shown by a model", "index"],
)
def test_what_is_no_state_has_no_answer(observations, name, rows):
    policy = trained(SoftmaxTable(observations.num_states, 4), observations)
    found = answers(policy, **{name: np.array(rows, np.int64 if name == "state" else np.float32)})
    for output in found.values():
        np.testing.assert_array_equal(np.isnan(output).any(axis=1), [False] + [True] * (len(rows) - 1))
    assert_close(found["logits"][:1], right(policy, rows[:1]))


def test_the_file_says_what_it_is():
    observations = vectors(REAL.with_preference(2), *[np.ones((TRIALS, 5))] * 2)
    policy = trained(SoftmaxMLP(WithPreference.after(Vectors(3), 2), (8,), 4), observations)
    model = onnx.load_model_from_string(export.onnx(policy, {"problem": "minecart-v0", "objectives": ("ore", "fuel")}))
    facts = {each.key: each.value for each in model.metadata_props}
    assert facts["problem"] == "minecart-v0"
    assert json.loads(facts["objectives"]) == ["ore", "fuel"]
    assert (facts["preference_size"], facts["trial"], facts["policy"]) == ("2", "1", "SoftmaxMLP")
    assert json.loads(facts["observation"]) == REAL.to_json()
    assert (model.producer_name, model.producer_version) == ("moac", importlib.metadata.version("moac"))


class Own:
    """A user's policy."""


def test_mistakes_are_one_line(tmp_path, monkeypatch):
    policy = trained(SoftmaxTable(3, 2), StateSpec(3))
    with pytest.raises(ValueError, match=r"^`policy` must be one of SoftmaxTable, .* to be exported, got Own\.$"):
        export.onnx(TrainedPolicy(Own(), policy.theta, StateSpec(3)), {})
    with pytest.raises(ValueError, match=r"^`format` must be onnx, got 'pickle'\.$"):
        moac.export(policy, tmp_path / "policy", format="pickle")
    with pytest.raises(ValueError, match="not conditioned on a preference"):
        moac.export(policy, tmp_path / "policy", preference=[0.5, 0.5])
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match=r"^an export to ONNX needs onnx: pip install 'moac\[onnx\]'\.$"):
        moac.export(policy, tmp_path / "policy")
    assert not list(tmp_path.iterdir())
