"""No test can hang: it fails with the stacks of its threads, under xdist too, and those after it run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGING = """
import threading

def waits_for_ever():
    threading.Event().wait()

def test_hangs():
    waits_for_ever()

def test_is_well():
    pass
"""


def test_every_test_has_a_time_limit(request):
    assert 0 < float(request.config.getini("timeout")) <= 600
    assert request.config.getini("timeout_method") == "signal"


@pytest.mark.slow
def test_a_slow_test_has_a_longer_one(request):
    assert request.node.get_closest_marker("timeout").args[0] > float(request.config.getini("timeout"))


def test_a_test_that_hangs_fails_and_the_rest_runs(tmp_path):
    (tmp_path / "test_hanging.py").write_text(HANGING)
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-o", "timeout=3", "-n", "1"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "1 failed, 1 passed" in ended.stdout
    assert "waits_for_ever" in ended.stdout
    assert "Timeout" in ended.stdout
