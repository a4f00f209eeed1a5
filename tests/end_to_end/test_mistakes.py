"""What a newcomer does wrong ends with exit code 2 and one line, and leaves nothing behind."""

import os
import shutil
import subprocess

import pytest

from moac import files
from moac.cli.main import COMMANDS as NAMES
from moac.cli.main import main
from tests.end_to_end.conftest import MOAC
from tests.helpers.log_runs import built_run

ENV = "resource-gathering-v0"
COMMANDS = f"the command must be one of {', '.join(dict.fromkeys(name.split()[0] for name in NAMES))}, got"
DATA_NAMED = "`--data` is not an option of moac offline train: give DATA without a name before it."

TYPED = {
    "": f"{COMMANDS} nothing. See moac --help.",
    "trian": f"{COMMANDS} 'trian'. Did you mean train?",
    "--trials 3": f"{COMMANDS} '--trials'. See moac --help.",
    "train": "`ENV` must be given: moac train ENV. See moac train --help.",
    "train --json": "`ENV` must be given: moac train ENV. See moac train --help.",
    f"train {ENV} fishwood-v0": "'fishwood-v0' is one argument too many for moac train. See moac train --help.",
    "offline train --data x --out y": DATA_NAMED,
    "offline train d --data x --out y": DATA_NAMED,
    "resume --run-path x": "`--run-path` is not an option of moac resume: give RUN without a name before it.",
    f"train {ENV} --iteratons 3": "`--iteratons` is not an option of moac train. Did you mean --iterations?",
    f"train {ENV} --gpu": "`--gpu` is not an option of moac train. See moac train --help.",
    f"train {ENV} -x 3": "`-x` is not an option of moac train. See moac train --help.",
    f"train {ENV} --trials": "`--trials` must be followed by a value.",
    f"train {ENV} --trials many": "`--trials` must be a whole number, got 'many'.",
    f"train {ENV} --iterations 1.5": "`--iterations` must be a whole number, got '1.5'.",
    f"train {ENV} --num_iterations=1e3": "`--num_iterations` must be a whole number, got '1e3'.",
    f"train {ENV} --actor-step-size big": "`--actor-step-size` must be a number, got 'big'.",
    f"train {ENV} --discount .9 high": "`--discount` must be numbers, got 'high'.",
    f"train {ENV} --setting averaged": "`--setting` must be one of discounted, average, got 'averaged'.",
    f"train {ENV} --json=yes": "`--json` must be given without a value, got 'yes'.",
    f"train {ENV} --out": "`--out` must be followed by a value.",
    "data build log.csv --signals -returned,click": "`--signals` must be followed by a value; one that begins with a "
    "minus needs an equals sign: --signals=-returned,click.",
    "resume": "`RUN` must be given: moac resume RUN. See moac resume --help.",
}

MEANT = {
    "--discount 1.5": "`discount` must be in (0, 1), got 1.5.",
    "--discount 0": "`discount` must be in (0, 1), got 0.0.",
    "--discount -0.5": "`discount` must be in (0, 1), got -0.5.",
    "--discount nan": "`discount` must be in (0, 1), got nan.",
    "--discount": "`discount` must hold at least one value, got none.",
    "--discount .9 .8": "`discount` must be one value or one per objective (3), got 2.",
    "--iterations 0": "`num_iterations` must be a whole number of at least 1, got 0.",
    "--iterations -3": "`num_iterations` must be a whole number of at least 1, got -3.",
    "--num-critic-steps 0": "`num_critic_steps` must be a whole number of at least 1, got 0.",
    "--critic-batch-size 0": "`critic_batch_size` must be a whole number of at least 1, got 0.",
    "--actor-batch-size 0": "`actor_batch_size` must be a whole number of at least 1, got 0.",
    "--num-evaluations 0": "`num_evaluations` must be a whole number of at least 1, got 0.",
    "--actor-step-size 0": "`actor_step_size` must be positive and finite, got 0.0.",
    "--actor-step-size nan": "`actor_step_size` must be positive and finite, got nan.",
    "--critic-step-size inf": "`critic_step_size` must be positive and finite, got inf.",
    "--critic-step-size -1": "`critic_step_size` must be positive and finite, got -1.0.",
    "--average-step-size 2": "`average_step_size` must be in (0, 1], got 2.0.",
    "--momentum 2/t": "`momentum` must be one of 1/t, 1/sqrt(t), 1/t^2, 0, 1, const:<value in [0, 1]>, got '2/t'.",
    "--momentum const:2": "`momentum` must be in [0, 1], got 2.",
    "--momentum const:nan": "`momentum` must be in [0, 1], got nan.",
    "--momentum const:a": "`momentum` must be const:<value in [0, 1]>, got 'const:a'.",
    "--weights 1 1 1": "`weights` must be non-negative and sum to 1, got [1.0, 1.0, 1.0].",
    "--weights 2 -1 0": "`weights` must be non-negative and sum to 1, got [2.0, -1.0, 0.0].",
    "--weights nan 1 0": "`weights` must be non-negative and sum to 1, got [nan, 1.0, 0.0].",
    "--weights .5 .5": "`weights` must hold one weight per objective (3), got 2.",
    "--weights 1 0 0 --weighting uniform": "`weights` must be None with weighting='uniform', got [1.0, 0.0, 0.0].",
    "--weighting fixed": "`weights` must be given with weighting='fixed', one per objective, got None.",
    "--weighting fixd": "`weighting` must be one of min-norm, preferred, fixed, uniform, first-batch, capped, "
    "capped:<cap>, cagrad, cagrad:<c>, pcgrad, imtl-g, nash-mtl, upgrad, fairgrad, fairgrad:<alpha>, moco, modo, "
    "sdmgrad, chebyshev, chebyshev:<urgency>, got 'fixd'. Did you mean fixed?",
    "--policy cnn": "`policy` must be one of table, linear, mlp, gaussian, items, got 'cnn'.",
    "--features random:0": "`features` must be one of one-hot, one-hot-reference, random:<d>, "
    "tile, tile:<n>, fourier:<order>, rbf:<n>, raw, plain, got 'random:0'.",
    "--setting average --discount .9": "`discount` must be left out in the average setting, got [0.9].",
    "--setting average --visitation discounted": "`visitation` must be stationary in the average setting, got "
    "'discounted'.",
    "--trials 0": "`trials` must be a whole number of at least 1, got 0.",
    "--seed -1": "`seed` must be a whole number in [0, 2^32), got -1.",
    "--seed 4294967296": "`seed` must be a whole number in [0, 2^32), got 4294967296.",
    "--checkpoint-every nan": "`checkpoint_every` must be at least 0 seconds, got nan.",
    "--checkpoint-every -1": "`checkpoint_every` must be at least 0 seconds, got -1.0.",
}


def refused(capsys, *arguments):
    assert main(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert err.startswith("moac: ")
    return err.removeprefix("moac: ").removesuffix("\n")


@pytest.mark.parametrize("typed", TYPED)
def test_what_cannot_be_parsed(typed, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, *typed.split()) == TYPED[typed]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", MEANT)
def test_what_makes_no_sense(options, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, "train", ENV, *options.split(), "--out", "deep/run") == MEANT[options]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("env", "near"), [("resorce-gathering-v0", f" Did you mean {ENV}?"), ("chess", "")])
def test_unknown_environment(env, near, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, "train", env)
    assert message == f"`ENV` must be an id that moac envs lists, got '{env}'.{near}"
    assert list(tmp_path.iterdir()) == []


def test_existing_run_directory(capsys, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    message = refused(capsys, "train", ENV, "--out", tmp_path)
    assert message == f"{tmp_path} exists already and holds other files (config.json): choose a new folder."
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_folder_that_is_not_empty(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    assert "exists already and holds other files (thesis.tex)" in refused(capsys, "train", ENV, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_unwritable_run_directory(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "run"
    assert refused(capsys, "train", ENV, "--out", below) == f"{below} cannot be written: Not a directory."
    assert refused(capsys, "train", ENV, "--out", "/proc/run").startswith("/proc/run cannot be written: ")


def test_run_directory_is_a_file(capsys, tmp_path):
    (tmp_path / "file").write_text("kept")
    message = refused(capsys, "train", ENV, "--out", tmp_path / "file")
    assert message == f"{tmp_path / 'file'} exists already and is a file: choose a new folder."
    assert (tmp_path / "file").read_text() == "kept"


def test_in_its_own_process(moac, tmp_path):
    done = moac("train", ENV, "--discount", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "`discount` must be in (0, 1)" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def log_run(tmp_path_factory):
    """A small dataset, and a run on it."""
    return built_run(tmp_path_factory.mktemp("log"))


def edit(data, part, name, change):
    """An array of a dataset, changed in place."""
    path = data / "arrays" / f"{part}.safetensors"
    arrays = {each: array.copy() for each, array in files.read_arrays(path)[0].items()}
    change(arrays[name])
    files.write_arrays(path, arrays, {})


def all_train(split):
    split[:] = 0


def one_train(split):
    split[:] = 1
    split[-1] = 0


NO_ROWS = "has no rows of validation users: a behaviour model needs them."
NO_USERS = "has 0 validation users: an interval over users needs at least two."
ONE_USER = "on both sides, got 2 folds of 1 train users: a behaviour model needs a log of more users."
OTHER = "was fitted on other data than"
LOGS = {
    "a split without rows": ("shared", "split", all_train, (NO_USERS, NO_ROWS, OTHER)),
    "a single user": ("shared", "split", one_train, (ONE_USER, ONE_USER, OTHER)),
}


def test_a_run_on_a_log_cannot_be_watched(log_run, capsys):
    assert main(["watch", str(log_run.path)]) == 2
    assert f"moac: {log_run.path} is a run on a log" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", LOGS)
def test_a_log_that_cannot_be_used(wrong, log_run, capsys, tmp_path):
    """`offline train`, `offline compare` and `evaluate`: the last line says what is wrong."""
    part, name, change, messages = LOGS[wrong]
    data = shutil.copytree(log_run.data, tmp_path / "data")
    edit(data, part, name, change)
    run = shutil.copytree(log_run.path, tmp_path / "run")
    before = sorted(run.rglob("*"))
    out = ("--out", tmp_path / "out")
    commands = ("offline", "train", data, *out), ("offline", "compare", data, *out), ("evaluate", run, "--data", data)
    for command, message in zip(commands, messages, strict=True):
        assert main(list(map(str, command))) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert message in said.err.splitlines()[-1]
        assert said.err.splitlines()[-1].startswith("moac: ")
        assert "Traceback" not in said.err
    assert sorted(run.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


def test_a_propensity_of_zero(log_run, capsys, tmp_path):
    """A log's propensities come from the model that the run keeps."""
    run = shutil.copytree(log_run.path, tmp_path / "run")
    arrays, about = files.read_arrays(run / "behaviour.safetensors")
    arrays["propensity"] = arrays["propensity"].copy()
    arrays["propensity"][5] = 0
    files.write_arrays(run / "behaviour.safetensors", arrays, about)
    message = refused(capsys, "evaluate", run, "--data", log_run.data)
    assert message == "`propensity` must be in (0, 1], got 0.0 in row 5."
    begun = tmp_path / "begun"  # by a command that was interrupted
    begun.mkdir()
    shutil.copy(run / "behaviour.safetensors", begun)
    assert main(["offline", "train", str(log_run.data), "--out", str(begun)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"moac: {message}"


@pytest.mark.parametrize("command", [["train", "--help"], ["front", "fishwood-v0", "--json"], ["front", "fishwood-v0"]])
def test_a_reader_that_has_read_enough(command, environment):
    """`moac … | head`: no word of it, and what a shell expects of the code."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*MOAC, *command], env=environment, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
