"""`moac docs`, and pages that texts of the package name."""

import json
import re
import subprocess
import sys
from pathlib import Path

from moac.cli.main import main

SOURCES = Path(__file__).parents[3] / "src"


def said(capsys, *words):
    assert main(["docs", *words]) == 0
    return capsys.readouterr().out


def test_pages_are_listed_and_printed(capsys):
    assert "rules             Weighting rules\n" in said(capsys)
    page = Path(json.loads(said(capsys, "rules", "--json"))["page"])
    assert said(capsys, "rules") == page.read_text()
    assert main(["docs", "ruls"]) == 2
    assert capsys.readouterr().err == "moac: `PAGE` must be one that moac docs lists, got 'ruls'. Did you mean rules?\n"


def test_pages_are_named_by_the_command_that_prints_them(capsys):
    pages = json.loads(said(capsys, "--json"))["pages"]
    texts = {path: path.read_text() for path in SOURCES.rglob("*") if path.suffix in (".py", ".toml", ".html", ".json")}
    named = {name for text in texts.values() for name in re.findall(r"moac docs ([a-z]+[a-z-]*)", text)}
    assert {"rules", "errata", "sweeps"} <= named - {"lists"} <= set(pages)
    assert [path for path, text in texts.items() if re.search(r"docs/[a-z-]+\.md", text)] == []


def test_the_reference_is_signatures_and_docstrings(capsys):
    told = said(capsys, "reference")
    assert ":::" not in told and "options:\n" not in told
    directives = (SOURCES.parent / "docs" / "reference.md").read_text()
    for name in re.findall(r"^::: ([\w.]+)", directives, re.MULTILINE):
        assert f"\n### {name.rpartition('.')[2]}\n\n    {name.rpartition('.')[2]}(" in told
    assert "    trials: int = 1,\n" in told  # of train
    assert "K, the number of independent runs." in told
    assert "\n#### TrainedPolicy.of_trial\n\n    of_trial(trial: int) -> TrainedPolicy\n" in told
    assert "\n#### FiniteMOMDP.from_dense\n" in told


def test_the_reference_imports_no_jax():
    code = "import sys; from moac.cli.main import main; main(['docs', 'reference']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
