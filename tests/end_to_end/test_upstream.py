"""The patches in docs/upstream apply to the installed MO-Gymnasium, and their tests need them."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mo_gymnasium
import pytest

PATCHES = sorted((Path(__file__).parents[2] / "docs" / "upstream").glob("*.patch"))
pytestmark = pytest.mark.skipif(
    not importlib.metadata.version("mo-gymnasium").startswith("1.3.") or shutil.which("patch") is None,
    reason="needs MO-Gymnasium 1.3 and the program patch",
)


def failed(folder):
    """How many tests of a folder fail, and how many pass, with the package beside them."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-rA", "tests"]
    ended = subprocess.run(words, cwd=folder, env=os.environ | {"PYTHONPATH": folder}, capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    return [sum(line.startswith(word) for line in lines) for word in ("FAILED", "PASSED")]


@pytest.fixture
def sources(tmp_path):
    package = Path(mo_gymnasium.__file__).parent
    shutil.copytree(package, tmp_path / "mended" / "mo_gymnasium", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "mended"


def applied(sources, *options):
    for patch in PATCHES:
        subprocess.run(["patch", "-p1", "-s", *options, "-i", patch], cwd=sources, check=True)


def test_each_patch_applies(sources):
    assert len(PATCHES) == 3
    applied(sources, "--dry-run", "--fuzz=0")


@pytest.mark.slow
def test_tests_of_the_patches_fail_without_them_and_pass_with_them(sources, tmp_path):
    shutil.copytree(sources, tmp_path / "published")
    applied(sources)
    shutil.copytree(sources / "tests", tmp_path / "published" / "tests")
    assert failed(sources) == [0, 8]
    assert failed(tmp_path / "published") == [8, 0]
