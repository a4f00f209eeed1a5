"""Tests and their parameters are the same in every process: workers of xdist that disagree run nothing."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTING = """
import os
import re
import sys
import time

sys.set_int_max_str_digits(0)  # parameters are told whole
clock, shift = time.time, float(os.environ["SHIFT"])
time.time = lambda: clock() + shift

def pytest_collection_finish(session):
    with open(os.environ["LISTED"], "w", encoding="utf-8", errors="backslashreplace") as listed:
        for item in session.items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            text = re.sub(r" at 0x[0-9a-f]+", "", repr(parameters))  # of a function by its name
            listed.write(f"{item.nodeid} {' '.join(text.split())}\\n")
"""


def collected(folder, hash_seed, shift):
    """All tests, slow ones too, with their parameters, as a new process with that clock collects them."""
    (folder / "listing.py").write_text(LISTING)
    listed = folder / f"listed-{hash_seed}.txt"
    variables = {"PYTHONHASHSEED": str(hash_seed), "SHIFT": str(shift), "LISTED": str(listed)}
    variables["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path[1:]])
    options = ["-p", "listing", "-p", "no:cacheprovider", "--assert=plain", "--collect-only", "-qq", "-m", ""]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return listed.read_text(encoding="utf-8").splitlines()


def test_two_processes_with_other_clocks_and_hash_seeds_collect_the_same_tests(tmp_path):
    first = collected(tmp_path, hash_seed=1, shift=0)
    second = collected(tmp_path, hash_seed=2, shift=1e8)
    assert len(first) > 1000
    assert [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]] == []
