"""A run directory from a stranger: it runs no code, holds no command up, and writes nowhere else."""

import contextlib
import json
import os
import shutil
import sys

import gymnasium
import numpy as np
import pytest

import moac as package
from moac import files
from moac.cli.main import main
from tests.helpers.limits import limited
from tests.helpers.run_folders import invented, model, rewrite, trained

PAYLOAD = """
import pathlib
import gymnasium
import numpy as np

pathlib.Path(__file__).with_name("ran").touch()


class Foo(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    reward_space = gymnasium.spaces.Box(0, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return int(action), np.array([action, 1 - action], np.float32), self.steps == 4, False, {}


gymnasium.register("Foo-v0", "payload:Foo")
"""
ID = "payload:Foo-v0"
RUN = "run[/red] [bold] :smile:"
"""Brackets and colons that are markup elsewhere."""


@contextlib.contextmanager
def inside(folder):
    """In a folder, where Python finds modules; those that are imported meanwhile are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop("payload", None)
    gymnasium.registry.pop("Foo-v0", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a module, and a run on the environment in it; nothing knows of the module any more."""
    place = tmp_path_factory.mktemp("stranger")
    (place / "payload.py").write_text(PAYLOAD)
    sizes = ["--iterations", "2", "--num-critic-steps", "1", "--critic-batch-size", "16", "--actor-batch-size", "16"]
    with inside(place):
        assert main(["train", ID, *sizes, "--out", RUN]) == 0
    assert (place / RUN / "report.html").exists()
    (place / "ran").unlink()
    return place


@pytest.mark.parametrize("command", ["evaluate", "watch", "resume"])
def test_a_module_that_a_run_names_is_not_imported(command, folder, capsys):
    with inside(folder):
        capsys.readouterr()
        assert main([command, RUN]) == 2
        out, err = capsys.readouterr()
        assert "payload" not in sys.modules
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("moac: ")
    assert ID in err
    assert "--trust" in err
    assert not (folder / "ran").exists()


def test_loading_imports_nothing(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    assert package.load(folder / RUN).num_trials == 1
    assert "payload" not in sys.modules
    assert not (folder / "ran").exists()


def test_a_trusted_module_is_imported_and_names_are_shown_as_they_are(folder, tmp_path, capsys):
    place = shutil.copytree(folder, tmp_path / "copy")
    path, names = place / RUN / "policy.safetensors", ["[/red]", "[bold]gold"]
    rewrite(place / RUN / "config.json", {"problem.objectives": names})
    arrays, about = files.read_arrays(path)
    about["run"]["problem"]["objectives"] = names
    files.write_arrays(path, arrays, about)
    with inside(place):
        assert main(["evaluate", RUN, "--trust", "--episodes", "2"]) == 0
    assert (place / "ran").exists()
    shown = capsys.readouterr().out
    assert all(name in shown for name in (RUN, *names))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run whose numbers are invented."""
    return invented(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A finished run with its policies."""
    return trained(tmp_path_factory.mktemp("small") / "run")


def fifo(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/null")


def below(path):
    path.mkdir()


READ = ("config.json", "provenance.json", "history.safetensors", "policy.safetensors")


@pytest.mark.parametrize("put", [fifo, device, below], ids=lambda put: put.__name__)
@pytest.mark.parametrize("name", READ)
def test_what_is_no_regular_file_is_refused_at_once(name, put, whole, capsys, tmp_path):
    path = shutil.copytree(whole, tmp_path / "run") / name
    path.unlink()
    put(path)
    with limited(30):
        assert main(["report", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"moac: {path} is damaged: it is not a regular file.\n"


@pytest.mark.parametrize("name", ["figures", "checkpoint", ".lock"])
def test_a_link_in_a_run_leads_nothing_elsewhere(name, small, tmp_path):
    """`resume` would write its figure, its checkpoints or the number of its process there."""
    run, elsewhere = shutil.copytree(small, tmp_path / "run"), tmp_path / "elsewhere"
    for part in ("policy.safetensors", "history.safetensors", "metrics.jsonl"):
        (run / part).unlink()
    shutil.rmtree(run / name, ignore_errors=True)
    elsewhere.mkdir()
    (elsewhere / "12").write_text("12")
    (run / name).symlink_to(elsewhere / "12" if name == ".lock" else elsewhere)
    with pytest.raises(ValueError, match=f"{run / name} is a symbolic link"):
        package.resume(run, model())
    assert (elsewhere / "12").read_text() == "12"
    assert [path.name for path in elsewhere.iterdir()] == ["12"]


def test_links_in_place_of_files_are_replaced_and_not_followed(small, tmp_path, capsys):
    run, elsewhere = shutil.copytree(small, tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (run / "report.html").unlink(missing_ok=True)
    (run / "report.html").symlink_to(elsewhere)
    (run / f".report.html.{os.getpid()}.tmp").symlink_to(elsewhere)
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().err == ""
    assert elsewhere.read_text() == "kept"
    assert not (run / "report.html").is_symlink()
    assert (run / "report.html").read_text().startswith("<!")


DEEP = json.loads("[" * 500 + "]" * 500)


WRONG = {
    "10^400 trials": {"trials": 10**400},
    "10^400 iterations": {"config.num_iterations": 10**400},
    "a step of 10^400": {"config.actor_step_size": 10**400},
    "nested weights": {"config.weights": DEEP},
    "a nested name": {"problem.name": DEEP},
    "no text as env": {"problem.env": 7},
    "a list as env": {"problem.env": ["fishwood-v0"]},
    "numbers as parts": {"own": [1]},
    "lists as parts": {"own": [[]]},
    "numbers as objectives": {"problem.objectives": [1, 2]},
    "no trials": {"trials": 0},
    "a seed beyond 32 bits": {"seed": 2**40},
    "a list as options": {"problem.env": "fishwood-v0", "problem.encoder": [], "problem.options": [1], "own": [3]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_configuration_that_cannot_be_is_one_line(wrong, whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / "run")
    rewrite(run / "config.json", WRONG[wrong])
    for command in ("report", "resume", "evaluate", "watch"):
        assert main([command, str(run)]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert err.startswith("moac: ")
        assert str(run) in err
        assert len(err) < 5000


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("theta", np.zeros(3, np.float32)),
        ("theta", np.zeros((), np.float32)),
        ("theta", np.zeros((3, 2, 2, 1), np.float32)),
        ("theta", np.zeros((3, 0, 2), np.float32)),
        ("theta", np.zeros((3, 2, 2), np.int64)),
        ("features", np.zeros(3, np.float64)),
        ("observation_shift", np.zeros(3, np.float64)),
    ],
)
def test_parameters_of_another_shape_are_damage(name, array, small, tmp_path):
    run = shutil.copytree(small, tmp_path / "run")
    arrays, about = files.read_arrays(run / "policy.safetensors")
    files.write_arrays(run / "policy.safetensors", arrays | {name: array}, about)
    with pytest.raises(files.DamagedError, match=f"policy.safetensors is damaged: `{name}` has shape"):
        package.load(run)


@pytest.mark.parametrize("name", ["stopped", "random_iteration", "theta_random"])
@pytest.mark.parametrize("array", [np.zeros((3, 1), np.int64), np.zeros((), np.int64), np.zeros(3, bool)])
def test_what_only_resuming_reads_is_checked_there(name, array, small, tmp_path):
    run = shutil.copytree(small, tmp_path / "run")
    arrays, about = files.read_arrays(run / "policy.safetensors")
    files.write_arrays(run / "policy.safetensors", arrays | {name: array}, about)
    with pytest.raises(files.DamagedError, match=f"policy.safetensors is damaged: `{name}` has shape"):
        package.resume(run, model())


@pytest.mark.parametrize("made_by", [7, "x", [1], None, {}])
def test_metadata_of_another_shape(made_by, small, tmp_path):
    run = shutil.copytree(small, tmp_path / "run")
    arrays, about = files.read_arrays(run / "policy.safetensors")
    files.write_arrays(run / "policy.safetensors", arrays, about | {"run": made_by})
    with pytest.raises(ValueError, match=str(run)):
        package.load(run)
