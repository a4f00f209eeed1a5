"""Environments that do what no environment should: one line that says what, or a training that is none the worse."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import moac
from moac import envs
from moac.cli.main import main
from moac.types import SourceError
from tests.helpers import hostile
from tests.helpers.hostile import DEADLY, RESETS, SPACES, STEPS, Hostile

SIZES = {"num_iterations": 3, "num_evaluations": 2, "actor_batch_size": 16}
LEARNERS = {
    "paper": {"num_critic_steps": 1, "critic_batch_size": 8},
    "ppo": {"minibatch_size": 16, "epochs": 1, "hidden": (4,)},
}
HERE = "tests.helpers.hostile:"
TINY = [
    *("--num-envs", "1", "--iterations", "2", "--num-evaluations", "1"),
    *("--actor-batch-size", "8", "--minibatch-size", "8", "--epochs", "1"),
]
WRONG = {name: line for name, (_, line) in (STEPS | RESETS).items() if line is not None}
HARMLESS = [name for name, (_, line) in (STEPS | RESETS).items() if line is None]


def train(kind, learner="paper", stepping=None, **options):
    stepping = {"num_envs": 2, "evaluation_episodes": 1} | (stepping or {})
    with contextlib.closing(envs.make(kind, **stepping, **options)) as environment:
        return moac.train(environment, learner=learner, **SIZES, **LEARNERS[learner])


def refused(line, *arguments, **options):
    """The training ends with one line about the environment in which this is written."""
    with pytest.raises(SourceError) as error:
        train(*arguments, **options)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong_is_one_line(name):
    """With states and a table, as with vectors and networks: the two are stepped by different code."""
    told = [
        refused(WRONG[name], Hostile, "paper", name=name),
        refused(WRONG[name], Hostile, "ppo", name=name, vectors=True),
    ]
    for line in told:
        assert re.match(r"the environment failed at step \d+ of copy 0: ", line)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_changes_no_result(name):
    usual, unusual = (train(Hostile, "paper", name=each) for each in ("nothing", name))
    if not name.startswith("ends"):
        np.testing.assert_array_equal(np.asarray(usual.policy), np.asarray(unusual.policy))
    assert np.isfinite(unusual.returns).all()
    assert not unusual.stopped.any()


@pytest.mark.parametrize("name", ["exits with 0", "rewards a column", "interrupts", "raises"])
@pytest.mark.parametrize("at", [1, 30])
def test_the_step_at_which_it_goes_wrong_is_named(name, at):
    line = refused(WRONG[name], Hostile, "paper", name=name, at=at)
    assert f"at step {at} of copy 0" in line


@pytest.mark.parametrize("name", ["exits with 0", "interrupts", "rewards texts"])
def test_episodes_and_certificates_say_the_same(name):
    trained = train(Hostile, "paper", name="nothing")
    for played in (
        lambda environment: moac.evaluate(trained.policy, environment, episodes=2),
        lambda environment: moac.certify(trained.policy, environment, episodes=80, untrained=False),
    ):
        with pytest.raises(SourceError, match=re.escape(WRONG[name])):
            played(envs.make(Hostile, num_envs=1, name=name, at=2))


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_what_cannot_be_made_again_is_one_line(error, monkeypatch):
    monkeypatch.setattr(hostile.Unmade, "made", 0)
    refused(f"of copy 0: making it raised {error.__name__}: no more.", hostile.Unmade, error=error)


@pytest.mark.filterwarnings("ignore:closing")
@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_what_cannot_be_closed_has_trained_all_the_same(error):
    assert np.isfinite(train(hostile.Unclosed, error=error).returns).all()


def test_what_cannot_be_closed_is_a_warning():
    with pytest.warns(RuntimeWarning, match=r"^closing Unclosed raised ZeroDivisionError: stuck\.$"):
        envs.make(hostile.Unclosed, num_envs=1)


@pytest.mark.parametrize("kind", [hostile.Brief, hostile.Endless, hostile.Shifted])
def test_episodes_of_any_length_and_states_from_any_number_train(kind):
    assert np.isfinite(train(kind).returns).all()


@pytest.mark.parametrize("name", SPACES)
def test_spaces_that_cannot_be_trained_on_are_refused_at_once(name):
    with pytest.raises(ValueError, match=r"^Spaced cannot be trained on: ") as error:
        envs.make(hostile.Spaced, name=name)
    assert SPACES[name].line in str(error.value)
    assert "\n" not in str(error.value)


def test_what_hides_its_spaces_is_refused_at_once():
    with pytest.raises(ValueError, match=r"^Guarded cannot be trained on: PermissionError: not for you\.$"):
        envs.make(hostile.Guarded)


def test_a_reward_space_that_lies_is_found_out_at_the_first_step():
    refused("at step 1 of copy 0: its reward must have length 3, got 2.", hostile.Lying)


@pytest.mark.parametrize("reward", [1.0, [[0.0, 1.0]], ["1", "2"], [1j, 0.0], None, []])
def test_a_first_reward_that_is_no_vector_is_refused_at_once(reward):
    with pytest.raises(ValueError, match=r"^Unspoken cannot be trained on: its reward must be a vector"):
        envs.make(hostile.Unspoken, reward=reward)


@pytest.mark.parametrize("name", ["exits with 0", "kills itself", "prints"])
def test_in_worker_processes_too(name, capfd):
    stepping = {"workers": 2}
    if name == "prints":
        assert np.isfinite(train(Hostile, "paper", stepping, name=name).returns).all()
    elif name in DEADLY:
        with pytest.raises(SourceError, match=DEADLY[name][1]):
            train(Hostile, "paper", stepping, name=name)
    else:
        refused(WRONG[name], Hostile, "paper", stepping, name=name)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STEPS, *RESETS, *DEADLY])
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_learner_and_every_way_of_stepping(name, learner, workers):
    """The paper's learner with states, `ppo` with vectors."""
    if name in DEADLY and not workers:
        pytest.skip("ends the process of the test")
    stepping = {"workers": workers} | ({"step_timeout": 2.0} if name in DEADLY else {})
    options = {"name": name, "vectors": learner == "ppo"}
    line = (STEPS | RESETS | DEADLY)[name][1]
    if line is None:
        assert np.isfinite(train(Hostile, learner, stepping, **options).returns).all()
    elif name in DEADLY:
        with pytest.raises(SourceError, match=line):
            train(Hostile, learner, stepping, **options)
    else:
        refused(line, Hostile, learner, stepping, **options)


@pytest.mark.parametrize(
    ("env", "line"),
    [
        (
            "Exits-v0",
            "step 6 of copy 0: step raised SystemExit: 0. Nothing was trained yet; try again with: moac resume",
        ),
        ("ExitsWith3-v0", "step 6 of copy 0: step raised SystemExit: 3. "),
        ("ResetExits-v0", "step 1 of copy 0: reset raised SystemExit: 0. "),
        ("Interrupts-v0", "step 6 of copy 0: step raised KeyboardInterrupt. "),
    ],
)
def test_the_command_ends_with_2_and_one_line(env, line, capsys, tmp_path):
    assert main(["train", HERE + env, *TINY, "--out", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize("env", ["UnmadeExits-v0", "Image-v0"])
def test_what_never_began_leaves_no_folder(env, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(hostile.Unmade, "made", 0)
    assert main(["train", HERE + env, *TINY, "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"moac: {HERE}{env} cannot be ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:closing")
@pytest.mark.parametrize("env", ["Unclosed-v0", "UnclosedExits-v0"])
def test_what_cannot_be_closed_leaves_a_run(env, capsys, tmp_path):
    assert main(["train", HERE + env, *TINY, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iterations"] == 2
    assert (tmp_path / "run" / "policy.safetensors").exists()


def command(env, folder, *more):
    return [sys.executable, "-m", "moac", "train", HERE + env, *TINY, "--out", str(folder / "run"), *more]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_stdout_holds_the_json_and_nothing_else(workers, tmp_path):
    """Whatever an environment prints, also as it is closed and as the process ends."""
    given = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(command("Chatty-v0", tmp_path, "--json", "--workers", str(workers)), **given)
    assert done.returncode == 0
    assert json.loads(done.stdout)["iterations"] == 2
    assert "beside Python" in done.stderr


def test_a_signal_in_a_step_is_the_users_and_stops_the_run():
    """Raised by the handler of the signal, in the midst of the environment's code."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(Signalled, "paper")
    assert signal.getsignal(signal.SIGINT) is before


class Signalled(Hostile):
    """A signal arrives during a step."""

    def __init__(self):
        super().__init__("nothing")

    def step(self, action):
        if self.count == hostile.AT:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)
