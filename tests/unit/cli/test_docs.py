"""`moac docs`, and pages that texts of the package name."""

import json
import re
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
