"""Specs, the runner and the claims of the paper's experiments."""

import contextlib
import json

import numpy as np
import pytest

from moac import momdp, statistics
from moac.config import Discounted
from moac.report.pages import experiment as experiment_page
from moac.runs import runner
from moac_studies import claims, reproduce, spec, studies

TINY = """
title = "Tiny"
env = "fishwood-v0"
trials = 3
seed = 5
main = "η = 1/t"
summary = "s"
why = "w"
[config]
setting = { name = "discounted", discount = 0.9 }
num_iterations = 4
num_critic_steps = 1
critic_batch_size = 4
actor_batch_size = 4
num_evaluations = 2
[methods]
"η = 1/t" = { momentum = "1/t" }
[sensitivity]
of = "η = 1/t"
trials = 2
actor_batch_size = [4]
[quick]
num_iterations = 2
"""


def silent(task, run, iteration):
    del task, run, iteration

    class Nothing(contextlib.AbstractContextManager):
        def __exit__(self, *error):
            return None

        def show(self, snapshot):
            del snapshot

    return Nothing()


STUDIES = [name for name in spec.names() if isinstance(spec.load(name), spec.Study)]
TRAINED = [name for name in spec.names() if name not in STUDIES]


@pytest.mark.parametrize("name", STUDIES)
def test_every_shipped_study_parses(name):
    full, quick = spec.load(name), spec.load(name, quick=True)
    assert full.parameters.keys() == quick.parameters.keys()
    assert full.parameters != quick.parameters
    assert (full.quick, quick.quick) == (False, True)


STUDY = """
title = "t"
study = "critic"
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
        spec.parse("tiny", STUDY.replace(*edit))


def test_an_unknown_study_is_refused_with_the_known_ones(tmp_path):
    study = spec.parse("tiny", STUDY.replace('"critic"', '"crytic"'))
    with pytest.raises(ValueError, match="must be one of critic, actor"):
        reproduce.run_study(study, tmp_path, print)


def test_a_workspace_keeps_what_was_measured(tmp_path):
    said, calls = [], []
    work = studies.Workspace(tmp_path / "tasks", said.append)

    def measure():
        calls.append(1)
        return {"x": np.arange(3.0)}

    for seed in (0, 0, 1):
        np.testing.assert_array_equal(work.arrays("part", {"seed": seed}, measure)["x"], np.arange(3.0))
    assert len(calls) == len(said) == 2


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("quick", [False, True])
def test_every_shipped_experiment_parses(name, quick):
    experiment = spec.load(name, quick)
    assert experiment.main in [task.label for task in experiment.methods]
    assert experiment.trials == (64 if quick else 500)
    assert bool(experiment.sensitivity) != quick


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("quick", [False, True])
def test_a_summary_speaks_of_what_is_run(name, quick):
    experiment = spec.load(name, quick)
    assert f"{64 if quick else 500} trials of {300 if quick else 1500} iterations" in experiment.summary
    *_, listed = experiment.summary.partition("Run: ")
    assert listed.removesuffix(".").split("; ") == [task.label for task in experiment.methods]
    assert ("500" in experiment.summary) != quick


@pytest.mark.parametrize("name", spec.names())
def test_reasons_for_settings_are_those_of_the_full_run(name):
    full, quick = spec.load(name), spec.load(name, quick=True)
    assert quick.why == f"Of the full run: {full.why}"


def test_fishwood_has_as_many_iterations_as_its_reasons_say():
    experiment = spec.load("fishwood-discounted")
    assert f"over {experiment.methods[0].config.num_iterations} iterations" in experiment.why


@pytest.mark.parametrize("quick", [False, True])
def test_the_summary_of_fronts_names_problems_and_seeds_that_are_run(quick):
    study = spec.load("fronts", quick)
    measuring = study.parameters["measuring"]
    assert f"{measuring['seeds']} seeds" in study.summary
    named = [name for name in study.parameters["problems"] if name in study.summary]
    assert named == measuring["problems"]


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (('summary = "s"', 'summary = "{trails}"'), "'trails'"),
        (("trials = 3\nseed", "trial = 3\nseed"), "'trial' is unknown or missing"),
        (('why = "w"\n', ""), "'why' is unknown or missing"),
        (("num_critic_steps = 1", "num_critic_stops = 1"), "`num_critic_stops` is not a field"),
        (("num_iterations = 4", "num_iterations = 0"), "`num_iterations` must be"),
    ],
)
def test_a_wrong_spec_is_refused(edit, complaint):
    with pytest.raises(ValueError, match=complaint):
        spec.parse("tiny", TINY.replace(*edit))


def test_an_unknown_experiment_lists_the_known():
    with pytest.raises(ValueError, match="fishwood-discounted"):
        spec.load("nope")


def test_quick_replaces_settings():
    assert spec.parse("tiny", TINY, quick=True).methods[0].config.num_iterations == 2


def test_finished_tasks_are_kept_and_interrupted_ones_continue(tmp_path):
    model, experiment = momdp.library.fishwood(), spec.parse("tiny", TINY)
    task = experiment.methods[0]
    first = runner.complete(task, experiment, model, tmp_path / "a", silent)
    again = runner.complete(task, experiment, model, tmp_path / "a", silent)
    np.testing.assert_array_equal(first.history.returns, again.history.returns)

    class StopError(Exception):
        pass

    def interrupting(task, run, iteration):
        shown = silent(task, run, iteration)
        shown.show = lambda snapshot: (_ for _ in ()).throw(StopError) if snapshot.iteration >= 1 else None
        return shown

    with pytest.raises(StopError):
        runner.complete(task, experiment, model, tmp_path / "b", interrupting)
    resumed = runner.complete(task, experiment, model, tmp_path / "b", silent)
    np.testing.assert_array_equal(first.history.returns, resumed.history.returns)
    np.testing.assert_array_equal(first.policy.theta, resumed.policy.theta)


def test_anything_that_changes_the_result_changes_the_folder():
    model, experiment = momdp.library.fishwood(), spec.parse("tiny", TINY)
    other = spec.parse("tiny", TINY.replace("seed = 5", "seed = 6"))
    task = experiment.methods[0]
    assert runner.key(task, experiment, model) != runner.key(task, other, model)
    assert runner.key(task, experiment, model) != runner.key(task, experiment, momdp.library.fishwood(0.2))


def test_an_experiment_leaves_a_folder_that_its_page_reads(tmp_path, monkeypatch):
    monkeypatch.setitem(claims._CLAIMS, "tiny", claims._CLAIMS["fishwood-discounted"])
    model, experiment = momdp.library.fishwood(), spec.parse("tiny", TINY)
    reproduce.run(experiment, model, tmp_path, silent)
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
    assert isinstance(spec.load("fishwood-discounted").methods[0].config.setting, Discounted)
