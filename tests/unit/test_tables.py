"""benchmarks/tables.py: the documents' tables follow the record."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tables(monkeypatch, tmp_path):
    """The script, on a copy of the record."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("tables")
    record = shutil.copy(ROOT / "benchmarks" / "recorded.json", tmp_path)
    monkeypatch.setattr(sys.modules["_recorded"], "PATH", Path(record))
    yield module
    for name in ("tables", "_recorded", "_timing"):
        sys.modules.pop(name, None)


def test_the_documents_have_the_tables_of_the_record(tables):
    assert tables.main(["--check"]) == 0


def test_another_record_makes_other_tables(tables, tmp_path):
    row = [
        "four-room",
        "(0, 0)",
        5_000,
        3,
        "2.5 [1.5, 3.5], 1.25 to 3.75; 9 [8, 10] above (1, 1)",
        "3",
        "PQL 1.5",
        "2",
        "",
        "7 + 8",
    ]
    header = [
        "environment",
        "above",
        "steps",
        "seeds",
        "hypervolume",
        "bar",
        "best peer",
        "ceiling",
        "settings",
        "CPU s",
    ]
    learned = ["minecart-deterministic: where methods end", ["method", "steps", "ore", "hypervolume", "ended"]]
    found = [
        {"title": "One network for every preference", "header": header, "rows": [row]},
        {
            "title": learned[0],
            "header": learned[1],
            "rows": [["MOAC", 9_000, "1 [0, 2]", "-1.5e+03 [-1.6e+03, -1.4e+03]", 1]],
        },
    ]
    (tmp_path / "experiment.json").write_text(json.dumps({"tables": found}))
    tables.record_run(tmp_path)
    shown = tables.TABLES["one-network-all"]()
    assert "| four-room, 5 k | 2.5 [1.5, 3.5] | 1.25 to 3.75 | 3 | **missed:** 3 | PQL 1.5 | 7 + 8 |" in shown
    assert "MPMOQLearning" not in shown and "deep-sea-treasure, 100 k" in shown
    assert "−1,500 [−1,600, −1,400]" in tables.TABLES["methods"]()
    stale = "<!-- table: methods -->\nold\n<!-- end -->"
    assert tables.written(tables.written(stale)) == tables.written(stale) != stale
