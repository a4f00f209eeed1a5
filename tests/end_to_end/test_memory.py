"""A process that uses many models, logs and environments holds no more memory than after ten of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.held import KINDS
from tests.helpers.limits import THOROUGH

MOST = 100
"""MB by which it may grow."""
COUNTS = {"models": 200} if THOROUGH else {}
"""How many of a kind; 50 of the others."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_what_was_used(kind):
    words = [sys.executable, "-m", "tests.helpers.held", kind, str(COUNTS.get(kind, 50))]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    held = json.loads(done.stdout.splitlines()[-1])
    assert held["after all"] - held["after ten"] < MOST
