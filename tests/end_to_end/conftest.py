"""One finished run for all tests here, and the environment of the processes they start."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.limits import THOROUGH

MOAC = [sys.executable, "-c", "import sys; from moac.cli.main import main; sys.exit(main())"]
TRAIN = [
    *("train", "resource-gathering-v0", "--trials", "9", "--iterations", "400", "--num-critic-steps", "2"),
    *("--critic-batch-size", "8", "--actor-batch-size", "16", "--seed", "7", "--checkpoint-every", "0", "--json"),
]

KILLS = 20 if THOROUGH else 6
"""Of every driver, in the slow suite."""
OUTCOME = ("policy.safetensors", "history.safetensors", "metrics.jsonl")
OF_TIME = ("timing.jsonl", ".lock")
"""Seconds; and the lock that a kill leaves where the run had ended and only its summary was missing."""


def files_of(folder):
    """Every file, but for what is a matter of time; so are the checkpoints of a run before its last."""
    stale = {path for place in folder.rglob("checkpoint") for path in sorted(place.iterdir())[:-1]}
    kept = (path for path in folder.rglob("*") if path.is_file() and path not in stale and path.name not in OF_TIME)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def assert_same_run(run, whole):
    """Both folders hold the same files, byte for byte."""
    held, expected = files_of(run), files_of(whole)
    assert held.keys() == expected.keys()
    assert [name for name in held if held[name] != expected[name]] == []


@dataclass(frozen=True)
class Finished:
    path: Path
    stdout: str
    stderr: str

    @property
    def summary(self):
        return json.loads(self.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def environment():
    """Environment variables of a `moac` process, which compiles as its tests do, and into the same cache."""
    return os.environ | {"PYTHONWARNINGS": "error"}


@pytest.fixture(scope="session")
def moac(environment):
    """Run `moac` in its own process and wait."""

    def run(*arguments, **options):
        return subprocess.run(
            [*MOAC, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300, **options
        )

    return run


@pytest.fixture(scope="session")
def finished(moac, tmp_path_factory):
    """A run that was never interrupted."""
    path = tmp_path_factory.mktemp("finished") / "run"
    done = moac(*TRAIN, "--out", path)
    assert done.returncode == 0, done.stderr
    return Finished(path, done.stdout, done.stderr)


@pytest.fixture
def unfinished(finished, tmp_path):
    """The run as it is before its last files are written."""
    run = tmp_path / "run"
    shutil.copytree(finished.path, run)
    for name in (*OUTCOME, "figures"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return run


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes, where the test may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk]).returncode:
        pytest.skip("cannot mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)
