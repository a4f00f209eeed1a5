"""benchmarks/tables.py: the documents' tables follow the record."""

import ast
import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from moac_studies import framework, learning, one_network

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


def test_what_a_study_has_finished_makes_other_tables(tables, tmp_path):
    """Two seeds with volumes of 2 and 4 above the reference, and trials that all earn the same."""
    record = importlib.import_module("record_studies")
    sys.modules.pop("record_studies")
    work = framework.Workspace(tmp_path / "tasks", print)
    study = framework.load("fronts")
    room = {**study.parameters["shared"], **study.parameters["networks"]["four-room"]}
    about = {"archived": np.arange(1), "cpu": np.array([7.0])}
    about |= {"steps": np.array([5_000]), "evaluation_steps": np.array([2_000])}
    for seed, high in ((1000, 2.0), (1001, 4.0)):
        points = np.array([[0.9, 0.9, high - 0.1]])
        work.keep(f"four-room-{seed}", one_network.job(room, seed), lambda points=points: {"points": points, **about})
    study = framework.load("learning")
    for name, point in (("mo-hopper-2obj", (-4.0, 1.5)), ("mo-lunar-lander", (0.0, -100.0, 0.0, 0.0))):
        rows = {key: row for _, key, *row in learning.rows_of(name, learning.tables(study)[name], study)}
        for method in ("uniform weights", "uniform weights, raw, defaults")[: 1 + (name == "mo-lunar-lander")]:
            work.keep(*rows[method], lambda point=point: {"discounted": np.tile(point, (10, 1))})
    before = tables.TABLES["methods"]()
    record.main([str(tmp_path)])
    shown = tables.TABLES["one-network-all"]()
    row = next(line for line in shown.splitlines() if "four-room-v0" in line)
    assert row.startswith("| `moac explore four-room-v0 --steps 100352 --discount 0.99 --reference -0.1 -0.1 -0.1` |")
    assert "| 3 [−9.71, 15.7] | 2 to 4 | 2 | 5,000 + 2,000 | **missed:** 7.5 | MPMOQLearning 1.25 [" in row
    assert row.endswith("| 7 |") and "deep-sea-treasure-v0" in shown
    row = next(line for line in tables.TABLES["methods-mujoco"]().splitlines() if "| uniform weights |" in line)
    assert row.endswith("| −2.5 |") and "151 [143, 160]" in row  # the other environment is as it was
    changed = [pair for pair in zip(before.splitlines(), tables.TABLES["methods"]().splitlines(), strict=True)
               if pair[0] != pair[1]]  # fmt: skip
    assert [old.replace("117 [115, 120]", "100") for old, _ in changed] == [new for _, new in changed]
    stale = "<!-- table: methods -->\nold\n<!-- end -->"
    assert tables.written(tables.written(stale)) == tables.written(stale) != stale


def test_defaults_stand_beside_settings_that_were_chosen(tables):
    rows = tables.TABLES["one-network"]().splitlines()
    tuned, defaults = (next(row for row in rows if name in row).split(" | ")[2] for name in ("fruit-tree", "four-room"))
    assert tuned.startswith("12,010 [") and defaults == "the same"
    assert not any("mo-mountaincarcontinuous-v0 --steps 102400 --discount 0.99 --ref" in row for row in rows)


def test_what_benchmarks_import_from_the_library_is_there():
    """They are no part of the suite, so a name that moved would be missed until somebody measures."""
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for node in (each for each in nodes if isinstance(each, ast.ImportFrom) and each.module):
            if node.module.split(".")[0] in ("moac", "moac_studies"):
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                for name in missing:  # a module, or nothing
                    importlib.import_module(f"{node.module}.{name}")
