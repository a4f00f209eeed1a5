"""Without the package of an extra, a command that needs it ends with one line: the very pip command."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.helpers.extras import MISSING, SWEEP

PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # an import of these fails
from moac.cli.main import main
for words in sys.argv[2:]:
    assert main(words.split()) == 2, words
"""


def test_a_missing_extra_is_one_line_with_the_pip_command(finished, environment, tmp_path):
    (tmp_path / "run").symlink_to(finished.path)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    packages, commands = zip(*MISSING.values(), strict=True)
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM, ",".join(packages), *commands]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    for extra, line in zip(MISSING, ended.stderr.splitlines(), strict=True):
        assert line.endswith(f": pip install 'moac[{extra}]'.")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "sweep.toml"}


def test_every_extra_is_tried():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(MISSING) == set(project["optional-dependencies"]) - {"dev"}
