"""Runs side by side, with answers known by hand."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from moac import statistics
from moac.config import Discounted
from moac.report.pages import comparison as page
from moac.search import compare
from moac.search.compare import Compared, Comparison
from tests.helpers.run_folders import invented, rewrite

FIRST = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
"""Returns of three trials at the end, two objectives."""


def compared(name, ends, fingerprint="same", seed=0, setting=None):
    returns = np.stack([np.zeros_like(ends), ends], axis=1)
    steps = np.array([10, 20])
    return Compared(name, ("model", fingerprint), ("a", "b"), setting or Discounted(0.9), "exact", seed, steps, returns)


def test_one_trial_beside_several_has_no_interval():
    for pair in (([1.0, 2.0, 6.0], [1.0]), ([1.0], [1.0, np.nan])):
        found = compare.apart(*pair)
        assert (found.value, found.trials) == (np.mean(pair[0]) - 1, 1) and np.isnan([found.low, found.high]).all()


def test_trials_are_paired_where_their_randomness_is_shared():
    a, b = compared("A", FIRST), compared("B", FIRST + np.array([[0.5, 0.0], [0.6, 0.0], [0.7, 0.0]]))
    more = Comparison((a, b)).difference(1)
    assert vars(more[0]) == pytest.approx(vars(statistics.mean([0.5, 0.6, 0.7])))
    assert (more[1].low, more[1].high) == (0.0, 0.0)
    for other in (replace(b, seed=1), replace(b, problem=("model", "other")), replace(b, returns=b.returns[:2])):
        apart = Comparison((a, other)).difference(1)[0]
        assert not other.pairs_with(a)
        assert apart.high - apart.low > 4 * (more[0].high - more[0].low)
    unpaired = Comparison((a, replace(b, seed=1))).difference(1)[0]
    assert unpaired.value == pytest.approx(0.6)
    spread = np.sqrt((FIRST[:, 0].var(ddof=1) + b.returns[:, -1, 0].var(ddof=1)) / 3)
    assert (unpaired.high - 0.6) / spread == pytest.approx(2.777, abs=5e-3)  # 97.5 % of Student, 4 degrees


def test_what_cannot_be_compared_is_said():
    a, b = compared("A", FIRST), compared("B", FIRST, setting=Discounted(0.5))
    comparison = Comparison((a, replace(b, steps=np.array([10, 40]))))
    assert np.isnan(comparison.difference(1)[0].value)
    assert not any(line.get("paired") for line in comparison.table)
    assert len(comparison.notes) == 2 and "another setting" in comparison.notes[0] and "40" in comparison.notes[1]
    assert repr(comparison) == "Comparison(A, B; a, b)"
    three = replace(a, steps=np.array([5, 10, 20]), returns=np.repeat(a.returns, [1, 2], axis=1))
    for pair in ((a, three), (three, a)):  # they end together, however often each was evaluated
        assert Comparison(pair).notes == ()


def test_folders_are_compared_and_saved(tmp_path):
    one, two = invented(tmp_path / "one"), invented(tmp_path / "two")
    comparison = compare.compare([one, two])
    assert [run.name for run in comparison.runs] == ["one", "two"]
    assert comparison.runs[0].steps.tolist() == [1 * (1 * 2 + 3), 4 * (1 * 2 + 3)]
    assert [line["paired"] for line in comparison.table if line["run"] == "two"] == [True, True]
    out = page.save(comparison, tmp_path / "out")
    told = json.loads((out / "comparison.json").read_text())
    assert [run["name"] for run in told["runs"]] == ["one", "two"] and told["ends"][0]["return"]["value"] == 2.0
    about = {"problem": comparison.runs[0].problem[0], "returns_kind": "exact", "env_steps": 20}
    assert told["runs"][0].items() >= about.items() and told["runs"][0]["seed"] == comparison.runs[0].seed
    assert " − " in (out / "report.html").read_text() and (out / "figures" / "curves.png").exists()


def test_a_comparison_says_the_seeds_and_what_else_differs(tmp_path):
    runs = [invented(tmp_path / name) for name in ("one", "two")]
    told = json.loads((runs[1] / "config.json").read_text())
    rewrite(runs[1] / "config.json", {"seed": told["seed"] + 1, "config.actor_step_size": 0.125})
    comparison = compare.compare(runs)
    first = comparison.runs[0]
    changed = {"seed": [first.seed, first.seed + 1], "actor_step_size": [first.config["actor_step_size"], 0.125]}
    assert comparison.options_that_differ == changed
    report = (page.save(comparison, tmp_path / "out") / "report.html").read_text()
    assert re.search(rf"<d[td]>seed</d[td]>\s*<d[td]>{first.seed}, {first.seed + 1}</d", report)
    assert "What differs" in report and "actor step size" in report
    alike = Comparison((first, first))
    assert alike.options_that_differ == {} and page.differing(alike).rows == ()


def test_a_drawing_has_a_panel_for_each_objective_and_a_line_for_each_run():
    figure = page.drawing(Comparison((compared("A", FIRST), compared("B", FIRST))))
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "b"]
    assert all(len(ax.lines) == 2 and ax.lines[0].get_xdata().tolist() == [10, 20] for ax in figure.axes)
    assert figure.axes[0].lines[0].get_ydata()[-1] == pytest.approx(7 / 3)


def test_runs_that_do_not_fit_are_refused(tmp_path):
    one, two = invented(tmp_path / "one"), invented(tmp_path / "two")
    with pytest.raises(ValueError, match="`runs` must hold at least two"):
        compare.compare([one])
    with pytest.raises(ValueError, match="`names` must hold one name for each of 2"):
        compare.compare([one, two], ["x", "x"])
    assert [run.name for run in compare.compare([one, one]).runs] == ["1 one", "2 one"]
    rewrite(two / "config.json", {"problem.objectives": ["x", "y"]})
    with pytest.raises(ValueError, match="`runs` must have the same objectives"):
        compare.compare([one, two])
