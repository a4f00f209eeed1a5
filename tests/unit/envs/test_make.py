"""What may be made an environment, and with which options."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from moac import envs
from tests.helpers.environments import Line
from tests.helpers.rollouts import sampled


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "`num_envs` must be a whole number of at least 1, got 0."),
        ({"num_envs": 2, "workers": 3}, "`workers` must be at most `num_envs` (2), got 3."),
        ({"step_timeout": 1.0}, "`step_timeout` needs `workers`"),
        ({"workers": 1, "step_timeout": 0}, "`step_timeout` must be a positive number of seconds, got 0."),
        ({"workers": 1, "step_timeout": math.inf}, "`step_timeout` must be a positive number of seconds, got inf."),
        ({"workers": 1, "step_timeout": True}, "`step_timeout` must be a number, got True."),
        ({"evaluation_episodes": 1.5}, "`evaluation_episodes` must be a whole number, got 1.5."),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError) as error:
        envs.make(Line, **options)
    assert str(error.value).startswith(message)


NAMED = {
    "mo-mountaincar-v0": ("time", "reverse", "forward"),
    "mo-mountaincar-3d-v0": ("time", "move", "speed"),
    "mo-mountaincar-timespeed-v0": ("time", "speed"),
    "minecart-deterministic-v0": ("ore1", "ore2", "fuel"),
}


@pytest.mark.parametrize("env", NAMED)
def test_objectives_are_named_by_the_longest_beginning_of_the_id(env):
    assert envs.make(env, num_envs=1).spec.objective_names == NAMED[env]


def test_unknown_spaces_end_with_one_line():
    with pytest.raises(ValueError, match=r"Line.* cannot be trained on: `observation_space` must be .*, got Text"):
        envs.make(Line, observation_space=spaces.Text(3))


def test_an_id_that_its_module_does_not_register_is_refused():
    with pytest.raises(ValueError, match=r"^`env` must be an id that tests\.helpers registers, got"):
        envs.make("tests.helpers:No-v0")


@pytest.mark.parametrize("env, hinted", [("nowhere.at_all:Own-v0", True), ("mo-nowhere-v0", False)])
def test_a_module_that_is_not_found_is_told_where_it_would_be(env, hinted, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "mo-nowhere-v0", EnvSpec("mo-nowhere-v0", entry_point="nowhere:Env"))
    with pytest.raises(ValueError, match="No module named 'nowhere'") as error:
        envs.make(env)
    assert ("PYTHONPATH" in str(error.value)) == hinted


def test_a_function_that_makes_no_environment_is_refused():
    def forgetful():
        Line()

    with pytest.raises(ValueError, match=r"^`env` must make an environment, got forgetful, which makes None\.$"):
        envs.make(forgetful)


def test_a_scalar_reward_is_refused():
    with pytest.raises(ValueError, match="its reward must be a vector, got a number"):
        envs.make("CartPole-v1")


class First(gymnasium.RewardWrapper):
    """Only the first two objectives."""

    def reward(self, reward):
        return reward[:2]


def test_a_wrapper_may_change_how_many_objectives_there_are():
    def picked():
        return First(gymnasium.make("minecart-v0", disable_env_checker=True))

    batch = sampled(envs.make(picked, num_envs=1))
    assert batch.reward.shape[-1] == 2


def test_the_reward_space_of_a_wrapper_comes_first():
    def wrapped():
        env = First(gymnasium.make("minecart-v0", disable_env_checker=True))
        env.reward_space = spaces.Box(-3.0, 3.0, (2,))
        return env

    spec = envs.make(wrapped, num_envs=1).spec
    assert (spec.num_objectives, spec.reward_bound) == (2, 3.0)


def test_a_wrapper_that_keeps_the_objectives_keeps_their_bounds():
    def wrapped():
        return gymnasium.wrappers.TransformReward(gymnasium.make("minecart-v0", disable_env_checker=True), np.negative)

    assert envs.make(wrapped).spec.reward_bound == envs.make("minecart-v0").spec.reward_bound


def test_a_first_step_that_raises_ends_with_one_line():
    class Broken(Line):
        def step(self, action):  # noqa: ARG002 - Gymnasium's signature
            raise KeyError("port")

        reward_space = property(lambda _: None, lambda *_: None)

    with pytest.raises(ValueError, match=r"^Broken cannot be trained on: its first step raised KeyError: 'port'\.$"):
        envs.make(Broken)


@pytest.mark.parametrize("space", [spaces.Dict(), spaces.Box(0.0, 1.0, (0,))])
def test_an_observation_without_numbers_is_refused(space):
    env = Line()
    env.observation_space = space
    with pytest.raises(ValueError, match="`observation_space` must hold at least one number, got "):
        envs.make(lambda: env)


def test_the_time_limit_can_be_lifted():
    for lifted in (True, False):
        environment = envs.make(lambda: TimeLimit(Line(), 2), num_envs=1, time_limit=not lifted)
        assert (sampled(environment).observation.max() > 2) == lifted


def test_mujoco_writes_no_file_and_repeats_no_deprecation(tmp_path, monkeypatch, capfd):
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    envs.make("mo-halfcheetah-v5", num_envs=2).close()
    assert list(tmp_path.iterdir()) == [] and "deprecated" not in capfd.readouterr().err
    mujoco.get_mju_user_warning()("huge value in QACC")
    assert capfd.readouterr().err == "MuJoCo: huge value in QACC\n"
