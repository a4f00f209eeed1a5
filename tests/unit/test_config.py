import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from moac.config import Average, Config, Discounted, check_trials


def test_imports_neither_jax_nor_numpy():
    script = "import sys, moac.config; print({'jax', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(setting=Average(), num_iterations=3, weights=(0.25, 0.75), momentum="const:0.5", mu="paper"),
        Config(setting=Discounted((0.9, 0.99)), actor_step_size=1, features="random:7", visitation="discounted"),
    ],
)
def test_json_round_trip(config):
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_numpy_values_become_plain():
    config = Config(
        setting=Discounted(np.float32(0.5)),
        num_iterations=np.int64(3),
        actor_step_size=np.float32(0.5),
        weights=np.array([0.5, 0.5]),
    )
    assert config == Config(setting=Discounted(0.5), num_iterations=3, actor_step_size=0.5, weights=(0.5, 0.5))
    assert hash(config) == hash(Config.from_json(config.to_json()))
    json.dumps(config.to_json())


def test_discounts():
    assert Discounted(0.9).discounts(2) == (0.9, 0.9)
    assert Discounted([0.9]).discount == Discounted(np.array(0.9)).discount == 0.9
    assert Discounted(jnp.array([0.25, 0.5])).discount == (0.25, 0.5)  # whose elements are arrays
    assert Discounted((0.9, 0.5)).discounts(2) == (0.9, 0.5)
    assert Average().discounts(3) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"^`discount` must be one value or one per objective \(3\), got 2.$"):
        Discounted((0.9, 0.5)).discounts(3)


@pytest.mark.parametrize("discount", [0, 1, -1, 2, np.nan, np.inf, "0.9", None, True, (0.9, 1.0), np.float32(2)])
def test_discount_outside_the_open_interval(discount):
    with pytest.raises(ValueError, match=r"^`discount` must be in \(0, 1\), got "):
        Discounted(discount)


@pytest.mark.parametrize("name", ["num_iterations", "num_critic_steps", "critic_batch_size", "actor_batch_size"])
@pytest.mark.parametrize("value", [0, -1, 1.0, "1", True, np.int64(0)])
def test_sizes(name, value):
    with pytest.raises(ValueError, match=rf"^`{name}` must be a whole number of at least 1, got "):
        Config(**{name: value})


@pytest.mark.parametrize("name", ["actor_step_size", "critic_step_size"])
@pytest.mark.parametrize("value", [0, -0.1, np.nan, np.inf, "0.1", True])
def test_step_sizes(name, value):
    with pytest.raises(ValueError, match=rf"^`{name}` must be positive and finite, got "):
        Config(**{name: value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"average_step_size": None}, "`average_step_size` must be in (0, 1], got None."),
        ({"average_step_size": 1.5}, "`average_step_size` must be in (0, 1], got 1.5."),
        ({"num_evaluations": None}, "`num_evaluations` must be a whole number of at least 1, got None."),
        ({"setting": "average"}, "`setting` must be Average() or Discounted(discount), got 'average'."),
        (
            {"momentum": 1},
            "`momentum` must be a text, one of 1/t, 1/sqrt(t), 1/t^2, 0, 1, const:<value in [0, 1]>, got 1.",
        ),
        ({"momentum": "const:-1"}, "`momentum` must be in [0, 1], got -1."),
        ({"weights": "abc"}, "`weights` must be non-negative and sum to 1, got 'abc'."),
        ({"weights": (0.5, "a")}, "`weights` must be non-negative and sum to 1, got [0.5, 'a']."),
        ({"weights": (0.5, 0.6)}, "`weights` must be non-negative and sum to 1, got [0.5, 0.6]."),
        ({"weighting": "fixed"}, "`weights` must be given with weighting='fixed', one per objective, got None."),
        ({"weighting": "first-batch", "weights": (1.0,)}, "`weights` must be None with weighting='first-batch', got"),
        ({"policy": ["table"]}, "`policy` must be one of table, linear, mlp, gaussian, items, got ['table']."),
        (
            {"features": "random:-1"},
            "`features` must be one of one-hot, one-hot-reference, random:<d>, "
            "tile, tile:<n>, fourier:<order>, rbf:<n>, raw, plain, got 'random:-1'",
        ),
        ({"setting": Average(), "visitation": "discounted"}, "`visitation` must be stationary in the average setting"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError) as error:
        Config(**fields)
    assert str(error.value).startswith(message)


def test_unknown_field_lists_the_known():
    with pytest.raises(ValueError, match=r"^`colour` is not a field of the configuration; known are setting, num_it"):
        Config.from_json({"colour": "red"})


@pytest.mark.parametrize(
    "setting", [{"name": "average", "discount": 0.9}, {"name": "discounted"}, {"name": "total"}, "average", 3]
)
def test_setting_from_json(setting):
    with pytest.raises(ValueError, match=r"^`setting` must be average or discounted with its discount, got "):
        Config.from_json({"setting": setting})


@pytest.mark.parametrize(("trials", "seed"), [(1, 0), (np.int64(5), np.uint32(7)), (10**6, 2**32 - 1)])
def test_trials_and_seed(trials, seed):
    check_trials(trials, seed)


@pytest.mark.parametrize(("trials", "seed"), [(0, 0), (1.0, 0), ("3", 0), (1, -1), (1, 2**32), (1, 0.5), (1, None)])
def test_refused_trials_and_seed(trials, seed):
    with pytest.raises(ValueError, match=r"^`(trials|seed)` must be a whole number "):
        check_trials(trials, seed)
