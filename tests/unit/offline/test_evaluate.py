"""What cannot be evaluated on a log, how a log gets its estimator, and what is saved."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import moac
from moac.kuairand import generate
from moac.offline import choose, evaluate, ncis
from moac.report.pages import evaluation as pages
from tests.helpers.log_policies import MODEL, tabulated
from tests.helpers.logs import tilted

FLAT = tilted(MODEL, 0.8)


@pytest.fixture(scope="module")
def dataset():
    return generate.log(3_000, 1, model=MODEL, num_users=300).dataset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"split": np.zeros_like(d.split)}, "has 0 validation users"),
        (lambda d: {"split": np.where(np.arange(d.num_users) == d.user[0], 1, 0)}, "has 1 validation user:"),
        (lambda d: {"propensity": None}, "has no propensities"),
        (lambda d: {"propensity": np.zeros(d.num_rows)}, r"`propensity` must be in \(0, 1\], got 0.0 in row"),
        (lambda d: {"action": d.action + 12}, r"`action` of generated must be in \[0, 12\)"),
        (lambda d: {"reward": np.zeros_like(d.reward)}, "no signal of generated ever occurs"),
        (lambda d: {"action_ids": np.arange(13)}, "policy 'flat' has 12 actions, generated has 13"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(dataset, change, message):
    method = tabulated(dataset, FLAT)
    with pytest.raises(ValueError, match=message) as error:
        evaluate.evaluate(replace(dataset, **change(dataset)), {"flat": method})
    assert "\n" not in str(error.value)


def test_a_choice_is_refused_before_anything_is_trained(dataset, monkeypatch):
    silent = replace(dataset, reward=np.zeros_like(dataset.reward))
    monkeypatch.setattr("moac.search.candidates.choose", lambda *_: "chosen")
    with pytest.raises(ValueError, match="no signal of generated ever occurs among validation users"):
        moac.choose(silent)
    for options, told in (
        ({"preferences": -1}, "`preferences` must be a whole number of at least 0, got -1"),
        ({"pulls": (1.0, 1.0)}, "`pulls` must be different numbers of at least 0"),
        ({"pulls": (1.0,), "behaviour_pull": 2.0}, "`pulls` and `behaviour_pull` must not both be given"),
        ({"trials": 0}, "`trials` must be a whole number of at least 1"),
        ({"seed": -1}, "`seed` must be a whole number in"),
    ):
        with pytest.raises(ValueError, match=re.escape(told)):
            moac.choose(dataset, **options)
    assert moac.choose(dataset) == "chosen"


@pytest.mark.parametrize("names", [[], ["Behavior-Clone"]])
def test_methods_need_names_of_their_own(dataset, names):
    with pytest.raises(ValueError, match="`methods` must name"):
        evaluate.evaluate(dataset, dict.fromkeys(names, tabulated(dataset, FLAT)))


def test_a_log_is_handed_its_estimator(dataset):
    policy, theta = tabulated(dataset, FLAT, FLAT)
    able = evaluate.with_estimator(dataset)
    assert evaluate.with_estimator(dataset) is able and evaluate.with_estimator(able) is able
    estimated = able.evaluate(policy, theta, None)
    assert (estimated.kind, estimated.returns.shape) == ("ncis", (2, dataset.num_signals))
    with pytest.raises(ValueError, match=r"moac\.offline\.evaluate\.with_estimator"):
        dataset.evaluate(policy, theta, None)


def test_an_evaluation_and_a_choice_are_in_memory_until_they_are_saved(dataset, tmp_path):
    found = evaluate.evaluate(dataset, {"flat": tabulated(dataset, FLAT)}, "test", about={"trial": 1})
    assert repr(found).startswith("OfflineEvaluation('generated', ") and "\n" not in repr(found)
    assert (found.accesses.entries, found.accesses.missing) == ((), "the data has no folder")
    replace(found, page=lambda each: f"<p>{each.data}</p>").save(tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "card-test.json").read_text()) == found.card()
    assert (tmp_path / "kept" / "evaluation-test.html").read_text() == "<p>generated</p>"
    choice = choose.choose(found, ["Click=-50%"])
    assert repr(choice) == f"Choice({choice.chosen!r} of flat)"
    kept = json.loads((choice.save(tmp_path, {"flat": "runs/flat"}) / "choice.json").read_text())
    assert (kept["chosen"], kept["protected"], kept["test"]) == (choice.chosen, ["Click=-50%"], found.card())
    assert kept["candidates"][0]["run"] == "runs/flat"


@pytest.mark.parametrize("separated", [True, False])
def test_the_page_warns_of_an_order_that_depends_on_the_cap(dataset, separated):
    found = evaluate.evaluate(dataset, {"flat": tabulated(dataset, FLAT)}, "validation")
    flip = ncis.Flip("Click", "flat", "Behavior-Clone", 1.0, 10.0, separated)
    sweep = replace(found.report.sweep, flips=(flip,))
    notice = pages.of_evaluation(replace(found, report=replace(found.report, sweep=sweep))).notice
    assert (str(flip) in (notice or "")) == separated
