"""The wheel, installed into an empty environment without the tools of development, does what the README says."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.extras import MISSING, SWEEP

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ["--help"],
    ["--version"],
    ["docs", "rules"],
    ["train", "fishwood-v0", "--iterations", "20", "--out", "run"],
    ["explore", "fishwood-v0", "--iterations", "20", "--preferences", "4", "--out", "archive"],
    ["explore", "four-room-v0", "--steps", "4096", "--preferences", "3", "--episodes", "2", "--out", "front"],
    ["reproduce", "fishwood-discounted", "--quick", "--out", "study"],
]


def run(*words: object, **options: object) -> str:
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert ended.returncode == 0, f"{words}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", folder)
    (wheel,) = distributions.glob("*.whl")
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    return folder / "bin"


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(distributions):
    (wheel,) = distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"moac", "moac_studies"}
    assert any(name.endswith("specs/fronts.toml") for name in names)
    assert any(name.endswith("py.typed") for name in names)


@pytest.mark.slow
def test_commands_work_from_the_wheel(installed, tmp_path):
    for words in COMMANDS:
        run(installed / "moac", *words, cwd=tmp_path)
    assert all((tmp_path / name / "report.html").exists() for name in ("run", "archive", "front", "study"))


@pytest.mark.slow
def test_a_missing_extra_is_named_from_the_wheel(installed, tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    run(installed / "moac", "train", "fishwood-v0", "--iterations", "2", "--out", "run", cwd=tmp_path)
    for extra, (_, words) in MISSING.items():
        ended = subprocess.run([installed / "moac", *words.split()], capture_output=True, text=True, cwd=tmp_path)
        assert ended.returncode == 2, words
        assert ended.stderr.endswith(f": pip install 'moac[{extra}]'.\n")


@pytest.mark.slow
def test_the_readmes_example_prints_twice_what_it_says(installed, tmp_path):
    """How many policies are archived depends on rounding, and so on the machine."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    told = re.findall(r"^print\(.+\)  # (.+)$", snippet, re.MULTILINE)
    for _ in range(2):
        printed = run(installed / "python", "-c", snippet, cwd=tmp_path).splitlines()
        for line, text in zip(printed, told, strict=True):
            assert rounded(text).startswith(rounded(line))


def rounded(text):
    """Without the numbers that count archived policies."""
    return re.sub(r"\d+ policies|point \d+", "", text)
