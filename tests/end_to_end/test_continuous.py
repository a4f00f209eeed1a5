"""Environments with continuous actions, and those of extras, from nothing to a film."""

import json

import gymnasium
import numpy as np
import pytest

import moac as package
from moac.cli.main import main
from tests.helpers.exports import assert_close, outputs, right

ENVIRONMENTS = {
    "mo-mountaincarcontinuous-v0": ("pygame", 2),
    "water-reservoir-v0": ("pygame", 2),
    "mo-lunar-lander-v3": ("Box2D", 4),
    "mo-hopper-v5": ("mujoco", 3),
}
FIRST = "mo-mountaincarcontinuous-v0"
FILM = "episodes-trial0.gif"
SHORT = ["--iterations", "3", "--num-evaluations", "1", "--evaluation-episodes", "1", "--num-envs", "4", "--json"]


def answer(capsys, *arguments):
    assert main([*map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    "env", [FIRST, *(pytest.param(env, marks=pytest.mark.slow) for env in ENVIRONMENTS if env != FIRST)]
)
def test_trained_loaded_evaluated_and_filmed(env, capsys, moac, tmp_path):
    module, objectives = ENVIRONMENTS[env]
    pytest.importorskip(module)
    run = tmp_path / "run"
    summary = answer(capsys, "train", env, "--out", run, "--hidden", 8, *SHORT)
    assert len(summary["returns"]) == objectives
    assert np.isfinite(summary["returns"]).all()
    assert len(answer(capsys, "evaluate", run, "--episodes", 2, "--json")["returns"]) == objectives
    copy = gymnasium.make(env, disable_env_checker=True)
    observation, _ = copy.reset(seed=0)
    action = package.load(run).eval(observation, None)
    assert copy.action_space.contains(action)
    assert np.asarray(action).dtype == copy.action_space.dtype
    copy.step(action)
    file, seen = package.export(run, tmp_path / "policy.onnx"), np.float32([observation, observation])
    noise = np.ones((2, np.size(action)), np.float32) * [[0], [1]] if np.shape(action) else None
    inputs = {"observation": seen} if noise is None else {"observation": seen, "noise": noise.astype(np.float32)}
    (found, *_) = outputs(file, **inputs).values()
    assert_close(found, right(package.load(run), seen, noise=inputs.get("noise")))
    if module == "mujoco":
        assert_filmed_or_not(moac("watch", run, "--episodes", 1), env, run)
    elif env != "mo-mountaincarcontinuous-v0":  # its episodes are too long to be written as pictures here
        film = answer(capsys, "watch", run, "--episodes", 1, "--json")
        assert film["frames"] == film["lengths"][0] + 1
        assert (run / "figures" / FILM).read_bytes().startswith(b"GIF89a")


def assert_filmed_or_not(done, env, run):
    """Which drivers of OpenGL a machine has is not known: a film, or one line that says why not."""
    if done.returncode == 0:
        assert (run / "figures" / FILM).read_bytes().startswith(b"GIF89a")
        return
    assert done.returncode == 2, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith(f"moac: {env} cannot be ")]
    assert "Traceback" not in done.stderr
