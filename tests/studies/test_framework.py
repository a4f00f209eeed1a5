"""Specs, the runner and the claims of the paper's experiments."""

import contextlib
import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

from moac import momdp, statistics
from moac.config import Discounted
from moac.report.pages import experiment as experiment_page
from moac.runs import runner
from moac_studies import framework, training

TINY = """
title = "Tiny"
study = "training"
seed = 5
summary = "s"
why = "w"
[parameters.figure]
env = "fishwood-v0"
trials = 3
main = "η = 1/t"
methods = ["η = 1/t"]
[parameters.config]
setting = { name = "discounted", discount = 0.9 }
num_iterations = 4
num_critic_steps = 1
critic_batch_size = 4
actor_batch_size = 4
num_evaluations = 2
[parameters.methods]
"η = 1/t" = { momentum = "1/t", weighting = "uniform" }
[parameters.sensitivity]
of = "η = 1/t"
trials = 2
actor_batch_size = [4]
[quick.config]
num_iterations = 2
"""


TRAINED = [name for name in framework.names() if framework.load(name).module == "training"]


@pytest.mark.parametrize("name", framework.names())
def test_every_shipped_study_parses(name):
    full, quick = framework.load(name), framework.load(name, quick=True)
    assert importlib.util.find_spec(f"moac_studies.{full.module}") is not None
    assert full.parameters.keys() == quick.parameters.keys()
    assert full.parameters != quick.parameters
    assert (full.quick, quick.quick) == (False, True)


STUDY = """
title = "t"
study = "critic_rate"
seed = 0
summary = "s"
why = "w"
[parameters.part]
trials = 2
[quick.part]
trials = 1
"""


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (("seed = 0", "sead = 0"), "'sead' is unknown or missing"),
        (("[quick.part]", "[quick.other]"), "must name one of part"),
    ],
)
def test_a_wrong_study_is_refused(edit, complaint):
    with pytest.raises(ValueError, match=complaint):
        framework.parse("tiny", STUDY.replace(*edit))


def test_a_workspace_keeps_what_was_measured(tmp_path):
    said, calls = [], []
    work = framework.Workspace(tmp_path / "tasks", said.append)

    def measure():
        calls.append(1)
        return {"x": np.arange(3.0)}

    for seed in (0, 0, 1):
        np.testing.assert_array_equal(work.keep("part", {"seed": seed}, measure)["x"], np.arange(3.0))
    assert len(calls) == len(said) == 2


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("quick", [False, True])
def test_a_figure_runs_the_methods_that_its_summary_names(name, quick):
    study = framework.load(name, quick)
    tasks = training.method_tasks(study)
    assert study.parameters["figure"]["main"] in [task.label for task in tasks]
    assert {task.trials for task in tasks} == {64 if quick else 500}
    assert bool(training.sensitivity_tasks(study)) != quick
    assert f"{64 if quick else 500} trials of {300 if quick else 1500} iterations" in study.summary
    *_, listed = study.summary.partition("Methods: ")
    assert listed.removesuffix(".").split("; ") == [task.label for task in tasks]
    assert ("500" in study.summary) != quick


@pytest.mark.parametrize("name", TRAINED)
def test_a_full_figure_runs_every_method_of_its_file(name):
    parameters = framework.load(name).parameters
    assert parameters["figure"]["methods"] == list(parameters["methods"])


@pytest.mark.parametrize("name", framework.names())
def test_reasons_for_settings_are_those_of_the_full_run(name):
    full, quick = framework.load(name), framework.load(name, quick=True)
    assert quick.why == f"Of the full run: {full.why}"


def test_fishwood_has_as_many_iterations_as_its_reasons_say():
    study = framework.load("fishwood-discounted")
    assert f"over {training.method_tasks(study)[0].config.num_iterations} iterations" in study.why


@pytest.mark.parametrize("quick", [False, True])
def test_the_summary_of_fronts_names_problems_and_seeds_that_are_run(quick):
    study = framework.load("fronts", quick)
    measuring = study.parameters["measuring"]
    assert f"{measuring['seeds']} seeds" in study.summary
    named = [name for name in study.parameters["problems"] if name in study.summary]
    assert named == measuring["problems"]


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (('summary = "s"', 'summary = "{trails}"'), "'trails'"),
        (("seed = 5", "sead = 5"), "'sead' is unknown or missing"),
        (('why = "w"\n', ""), "'why' is unknown or missing"),
        (("num_critic_steps = 1", "num_critic_stops = 1"), "`num_critic_stops` is not a field"),
        (("num_iterations = 4", "num_iterations = 0"), "`num_iterations` must be"),
    ],
)
def test_a_wrong_file_is_refused(edit, complaint):
    with pytest.raises((KeyError, ValueError), match=complaint):
        training.method_tasks(framework.parse("tiny", TINY.replace(*edit)))


def test_an_unknown_experiment_lists_the_known():
    with pytest.raises(ValueError, match="fishwood-discounted"):
        framework.load("nope")


def test_quick_replaces_settings():
    (task,) = training.method_tasks(framework.parse("tiny", TINY, quick=True))
    assert task.config.num_iterations == 2


def test_finished_tasks_are_kept_and_interrupted_ones_continue(tmp_path):
    model = momdp.library.for_environment("fishwood-v0")
    (task,) = training.method_tasks(framework.parse("tiny", TINY))
    first = runner.complete(task, model, tmp_path / "a")
    again = runner.complete(task, model, tmp_path / "a")
    np.testing.assert_array_equal(first.history.returns, again.history.returns)

    class StopError(Exception):
        pass

    def interrupting(task, run, iteration):
        return contextlib.nullcontext(
            lambda snapshot: (_ for _ in ()).throw(StopError) if snapshot.iteration >= 1 else None
        )

    with pytest.raises(StopError):
        runner.complete(task, model, tmp_path / "b", interrupting)
    resumed = runner.complete(task, model, tmp_path / "b")
    np.testing.assert_array_equal(first.history.returns, resumed.history.returns)
    np.testing.assert_array_equal(first.policy.theta, resumed.policy.theta)


def test_anything_that_changes_the_result_changes_the_folder():
    model = momdp.library.fishwood()
    (task,) = training.method_tasks(framework.parse("tiny", TINY))
    assert runner.key(task, model) != runner.key(replace(task, seed=task.seed + 1), model)
    assert runner.key(task, model) != runner.key(task, momdp.library.fishwood(0.2))


def test_an_experiment_leaves_a_folder_that_its_page_reads(tmp_path, monkeypatch):
    monkeypatch.setitem(training._CLAIMS, "tiny", training._CLAIMS["fishwood-discounted"])
    framework.run(framework.parse("tiny", TINY), tmp_path)
    page = experiment_page.of_experiment(tmp_path)
    assert page.title == "Tiny"
    assert len(page.figures) == 6
    assert all("3 trials" in figure.caption for figure in page.figures[:-1])
    assert [f"{count} trials" in table.caption for table, count in zip(page.tables, (3, 2), strict=False)] == [
        True,
        True,
    ]
    assert dict(page.facts)["iterations"] == 4
    assert "Methods" in [table.title for table in page.tables]
    assert {"η_1 = 1 makes the initial weights irrelevant."}.isdisjoint(c.claim for c in page.claims)  # not run here
    (null,) = [c for c in page.claims if "conflict" in c.claim]
    assert null.verdict == "holds"
    broken = json.loads((tmp_path / "experiment.json").read_text()) | {"format": 99}
    (tmp_path / "experiment.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match="newer"):
        experiment_page.of_experiment(tmp_path)


def test_means_have_students_interval():
    value = statistics.mean([1.0, 2.0, 3.0])
    assert value.trials == 3
    assert (value.value, value.low) == (2.0, pytest.approx(2 - 4.302653 / 3**0.5, rel=1e-5))
    assert np.isnan(statistics.mean([1.0]).low)
    assert np.isnan(statistics.mean([np.nan]).value)


def test_the_setting_of_the_null_test_is_one_discount():
    assert isinstance(training.method_tasks(framework.load("fishwood-discounted"))[0].config.setting, Discounted)
