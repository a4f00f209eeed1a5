"""What stands in examples/ and in the documentation runs."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_exact_front_ends_near_the_hull():
    assert runpy.run_path(str(ROOT / "examples" / "exact_front.py"))["main"](iterations=600, trials=16) < 0.2


def test_own_model_and_rule_trains():
    returns = runpy.run_path(str(ROOT / "examples" / "own_model_and_rule.py"))["main"](iterations=40)
    assert returns.shape == (8, 2)
    assert np.isfinite(returns).all()


def test_an_environment_of_ones_own_trains():
    returns = runpy.run_path(str(ROOT / "examples" / "custom_env.py"))["main"](iterations=60, trials=2)
    assert returns.shape == (2, 2)
    assert (returns[:, 0] > 0.3).all()


def test_a_log_of_ones_own_becomes_a_dataset():
    dataset = runpy.run_path(str(ROOT / "examples" / "custom_log.py"))["main"](iterations=5)
    assert (dataset.num_rows, dataset.num_users, dataset.num_actions) == (6000, 300, 12)
    assert dataset.signal_names == ("order", "minutes", "complaint")
    assert dataset.reward[:, 2].max() == 0  # a cost
    assert sum(len(dataset.rows(split)) for split in ("train", "validation", "test")) == 6000
    assert dataset.action_ids[0].startswith("offer ")


def shortened(source):
    """The same code with a tenth of the iterations: what it prints at full length is stored, or tested by the wheel."""
    return re.sub(r"num_iterations=(\d+)00\b", r"num_iterations=\g<1>0", source)


def test_the_quickstart_notebook_runs_and_has_stored_outputs():
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text())
    cells, names = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"], dict[str, object]()
    for cell in cells:
        exec(shortened("".join(cell["source"])), names)
    assert all(cell["outputs"] for cell in cells[1:])  # the first imports
    assert names["result"].returns.shape == (16, 3)
    assert names["action"] in range(4)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_scripts_stay_short(script):
    assert len(script.read_text().splitlines()) < 60


SNIPPETS = [
    pytest.param(snippet, id=f"{page.stem}-{index}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for index, snippet in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_snippets_of_the_documentation_run(snippet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(snippet, {})


def test_the_example_of_the_readme_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(shortened(snippet), {})
