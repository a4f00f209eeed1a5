"""One `out` for two calls at a time: one has it, the other is told; a call that fails takes its folders away."""

import errno
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import moac
from moac import files, logs
from moac.kuairand import generate
from moac.runs.directory import RunDirectory
from tests.end_to_end.conftest import MOAC, TRAIN
from tests.helpers import stranger

SHORT = {
    "num_iterations": 3,
    "num_evaluations": 1,
    "num_critic_steps": 1,
    "critic_batch_size": 4,
    "actor_batch_size": 4,
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return stranger.write(tmp_path_factory.mktemp("log") / "log.csv")


@pytest.fixture(scope="module")
def result():
    return moac.train("fishwood-v0", **SHORT)


def training(out, log, result):
    moac.train("fishwood-v0", out=out, **SHORT)


def exploring(out, log, result):
    moac.explore("fishwood-v0", out=out, preferences=2, rules=["fixed"], entropies=[0.0], **SHORT)


def saving(out, log, result):
    result.save(out)


def building(out, log, result):
    logs.build(log, **stranger.OPTIONS, out=out)


def generating(out, log, result):
    generate.write(generate.Parameters(300, num_users=30, num_videos=20), out)


def sweeping(out, log, result):
    moac.sweep({"env": "fishwood-v0", "config": SHORT, "grid": {"actor_step_size": [1.0]}}, out)


def comparing(out, log, result):
    moac.compare(result, result, names=["one", "other"], out=out)


def certifying(out, log, result):
    moac.certify(result, episodes=80, out=out)


def evaluating(out, log, result):
    moac.evaluate(result, episodes=2, out=out)


def exporting(out, log, result):
    moac.export(result, out / "policy.onnx")


ALONE = [training, exploring, saving, building, generating]
"""What has a folder for itself; all else writes single files, each whole."""


def at_once(function, *arguments):
    """What two calls at the same time end with."""
    start = threading.Barrier(2)

    def call():
        start.wait()
        return function(*arguments)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
    return [each.exception() for each in calls]


def names_in(folder):
    """Of all files; how many checkpoints there are is a matter of time."""
    return {path.relative_to(folder) for path in folder.rglob("*") if path.parent.name != "checkpoint"}


@pytest.mark.parametrize("function", ALONE)
def test_of_two_threads_one_has_the_folder_and_the_other_is_told(function, log, result, tmp_path):
    out = tmp_path / "a" / "out"
    errors = [error for error in at_once(function, out, log, result) if error is not None]
    assert [type(error).__mro__[-4] for error in errors] == [ValueError], errors
    assert "is in use by process" in str(errors[0]) or "exist" in str(errors[0])
    function(tmp_path / "whole", log, result)
    assert names_in(out) == names_in(tmp_path / "whole")
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


def test_a_run_that_is_being_trained_is_in_use(tmp_path):
    """The second call comes when the first has begun, whatever that has written by then."""
    told = []

    def again(snapshot):
        with pytest.raises(ValueError, match="out is in use by process") as caught:
            moac.train("fishwood-v0", out=tmp_path / "out", **SHORT)
        told.append(caught.value)

    moac.train("fishwood-v0", out=tmp_path / "out", callback=again, **SHORT)
    assert told
    assert RunDirectory(tmp_path / "out").finished


def test_two_threads_that_write_one_file_both_write_it_whole(tmp_path):
    path = tmp_path / "file.json"

    def write():
        for number in range(200):
            files.write_json(path, [number] * 1000)

    assert at_once(write) == [None, None]
    assert len(set(json.loads(path.read_text()))) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["file.json"]


@pytest.mark.parametrize(
    "function", [*ALONE, sweeping, comparing, certifying, evaluating, exporting], ids=lambda function: function.__name__
)
def test_a_call_that_cannot_write_takes_the_folders_away_that_it_made(function, log, result, tmp_path, monkeypatch):
    out = tmp_path / "mine" / "a" / "b" / "c"
    (tmp_path / "mine").mkdir()
    write = files.replacing

    def full(path):
        if tmp_path not in Path(path).parents:
            return write(path)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(files, "replacing", full)
    monkeypatch.setattr("pathlib.Path.write_text", lambda path, *_: full(path))  # of a generated log
    with pytest.raises((OSError, ValueError), match="No space left on device"):
        function(out, log, result)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


@pytest.mark.slow
def test_of_two_processes_one_trains_and_the_other_is_told(environment, tmp_path):
    command = [*MOAC, *TRAIN, "--out", str(tmp_path / "run")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 2], said
    line = said[codes.index(2)].splitlines()[-1]
    assert "is in use by process" in line or "exists already" in line
    assert RunDirectory(tmp_path / "run").finished
