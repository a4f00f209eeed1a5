"""One finished run for all tests here, and a compilation cache that all their processes share."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

MOAC = [sys.executable, "-c", "import sys; from moac.cli import main; sys.exit(main())"]
TRAIN = [
    *("train", "resource-gathering-v0", "--trials", "3", "--iterations", "400", "--num-critic-steps", "2"),
    *("--critic-batch-size", "8", "--actor-batch-size", "16", "--seed", "7", "--checkpoint-every", "0", "--json"),
]


@dataclass(frozen=True)
class Finished:
    path: Path
    stdout: str
    stderr: str

    @property
    def summary(self):
        return json.loads(self.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Environment variables of a `moac` process."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return os.environ | {"MOAC_CACHE": str(shared / "cache"), "PYTHONWARNINGS": "error"}


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
