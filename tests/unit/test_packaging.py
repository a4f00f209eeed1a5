"""The version, and what is said of it, agree."""

import re
import tomllib
from pathlib import Path

import moac

ROOT = Path(__file__).parents[2]


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    released = re.findall(r"^## (\d\S*) \((\S+)\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == moac.__version__ == released[0][0]
    assert f"\nversion: {released[0][0]}\ndate-released: {released[0][1]}\n" in cited
