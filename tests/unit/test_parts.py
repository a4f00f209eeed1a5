"""From a configuration to what it names: defaults by the problem, features by the seed, rules by their numbers."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import moac
from moac import envs, settings, weighting
from moac import parts as parts_of
from moac.config import Config
from moac.momdp import FiniteMOMDP, library
from tests.helpers.environments import Line

MODEL = library.random_ergodic(0)
GRAM = jnp.diag(jnp.array([1.0, 100.0]))
"""Its min-norm weights are (100, 1)/101."""


class Wide(Line):
    """The place on the line, several times over."""

    def __init__(self, size):
        self.size = size
        super().__init__(observation_space=spaces.Box(0.0, 4.0, (size,), np.float64))

    def shown(self):
        return np.full(self.size, float(self.place))


def weights(name, **fields):
    rule = weighting.by_name(name, fields.get("weights"), fields.get("momentum", "1/t"))
    return rule.update(rule.init(2), GRAM, 1)[1]


@pytest.mark.parametrize(("num_states", "reward", "step"), [(3, 1.0, 6.0), (3, -4.0, 1.5), (150, 4.0, 50.0)])
def test_the_actors_step_grows_with_the_states_and_falls_with_the_rewards(num_states, reward, step):
    """2S/r_max, and no more than 200/r_max."""
    P = np.full((num_states, 1, num_states), 1 / num_states)
    model = FiniteMOMDP.from_dense(P, np.full((num_states, 1, 2), reward))
    assert moac.defaults(model).actor_step_size == pytest.approx(step)


@pytest.mark.parametrize(("size", "name"), [(3, "tile"), (4, "fourier:3")])
def test_up_to_three_inputs_are_tiled(size, name):
    assert moac.defaults(envs.make(lambda: Wide(size))).features == name


@pytest.mark.parametrize("scale", ["bounds", "running"])
def test_only_vectors_have_a_running_scale(scale):
    for problem, running in ((MODEL, False), (envs.make(lambda: Wide(3)), scale == "running")):
        chosen = settings.resolve(Config(observation_scale=scale), problem.spec)
        assert settings.sampling(chosen, problem.spec).deviations == (3.0 if running else None)


def test_random_features_depend_on_the_seed_and_others_do_not():
    def parts(name, seed):
        return parts_of.build(settings.resolve(Config(features=name), MODEL.spec), MODEL.spec, seed)

    tables = [parts("random:2", seed).critic.features.table() for seed in (0, 0, 1)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert np.abs(tables[0] - tables[2]).max() > 0.1
    assert parts("one-hot", 0) is parts("one-hot", 1)


def test_the_number_of_a_rule_is_its_own():
    np.testing.assert_allclose(weights("capped:0.6"), [0.6, 0.4], rtol=1e-5)
    np.testing.assert_allclose(weights("capped"), [0.5, 0.5], rtol=1e-5)


def test_a_rule_that_steps_starts_at_the_weights_given():
    for name in ("moco", "modo"):
        given, uniform = (weighting.by_name(name, w, "1/t").init(2) for w in ((0.2, 0.8), None))
        np.testing.assert_allclose(given, [0.2, 0.8])
        np.testing.assert_allclose(uniform, [0.5, 0.5])


def test_momentum_smooths_weights_of_the_simplex_only():
    np.testing.assert_allclose(weights("min-norm", momentum="0", weights=(0.2, 0.8)), [0.2, 0.8], rtol=1e-5)
    np.testing.assert_allclose(weights("upgrad", momentum="0", weights=(0.2, 0.8)), [0.5, 0.5], rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "mpl"}, "`policy` must be one of .*, got 'mpl'"),
        ({"critic": "lineal"}, "`critic` must be one of .*, got 'lineal'"),
        (
            {"policy": Line},
            "`policy` must be a text or an object with `init`, `sample` and `log_prob`, got <class .*Line",
        ),
        ({"critic": np.zeros(3)}, "`critic` must be a text or an object with `init` and `values`, got array"),
        ({"rule": "cagrad"}, r"`rule` must be a moac.weighting.Rule, .*`weighting`\), got 'cagrad'"),
        ({"rule": weighting.min_norm}, "`rule` must be a moac.weighting.Rule, .*, got <function min_norm"),
    ],
)
def test_what_is_no_part_is_refused_before_a_folder_is_made(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        moac.train(MODEL, out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


class Own:
    """A policy and a critic with a table each; either may answer in a wrong shape."""

    def __init__(self, answer=lambda x: x):
        self.answer = answer

    def init(self, _key):
        return jnp.zeros((MODEL.num_states, 2))

    def sample(self, _theta, observation, _key):
        return self.answer(observation)

    def log_prob(self, *_):
        return jnp.float32(0)

    def values(self, w, observation):
        return self.answer(w[observation])


@dataclass
class Unhashable(Own):
    answer: int = 0


def rule_of(answer):
    return weighting.Rule(lambda M: (), lambda state, K, t: answer)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": Own(lambda action: action[None])}, r"`policy.sample` .* of shape \(\), got \(1,\)"),
        ({"critic": Own(lambda values: values[..., 0])}, r"`critic.values` of 7 .* of shape \(7, 2\), got \(7,\)"),
        ({"rule": rule_of(((), jnp.ones(3)))}, r"`rule.update` .* of shape \(\(\), \(2,\)\), got \(\(\), \(3,\)\)"),
        ({"rule": rule_of(jnp.ones(2))}, r"`rule.update` .* its state and the weights .*, got \(2,\)"),
        ({"policy": Unhashable()}, r"`policy` must be hashable"),
    ],
)
def test_an_object_of_wrong_shapes_is_refused_before_a_folder_is_made(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        moac.train(MODEL, out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()
