"""Specs, the runner and the claims of the paper's experiments."""

import contextlib
import json

import numpy as np
import pytest

from moac import momdp, statistics
from moac.config import Discounted
from moac.report.pages import experiment as experiment_page
from moac.runs import runner
from moac.training.history import History
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


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
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
    assert "Methods" in [table.title for table in page.tables]
    assert {"η_1 = 1 makes the initial weights irrelevant."}.isdisjoint(c.claim for c in page.claims)  # not run here
    (null,) = [c for c in page.claims if "conflict" in c.claim]
    assert null.verdict == "holds"
    broken = json.loads((tmp_path / "experiment.json").read_text()) | {"format": 99}
    (tmp_path / "experiment.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match="newer"):
        experiment_page.of_experiment(tmp_path)


def history(returns, norm=None):
    """A history of K trials with these returns [K, L, M]."""
    table = np.asarray(returns, float)
    K, L, M = table.shape
    flat = np.ones((K, L)) if norm is None else np.asarray(norm, float)
    weights = np.full((K, L, M), 1 / M)
    return History(np.arange(1, L + 1), table, weights, weights, flat, flat, flat, flat, flat)


def trials(first, last, noise=0.01, count=50):
    shake = np.random.default_rng(0).normal(0, noise, (count, 2, len(first)))
    shake -= shake.mean(axis=0)
    return np.stack([np.broadcast_to(first, (count, len(first))), np.broadcast_to(last, (count, len(last)))], 1) + shake


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ([1, 1, 1], "holds"),
        ([1, 1, -1], "holds in part"),
        ([-1, -1, -1], "does not hold"),
        ([0, 0, 0], "does not hold"),
    ],
)
def test_the_verdict_on_improvement_follows_the_data(last, verdict):
    claim = claims._all_improve(history(trials([0, 0, 0], last)), ("a", "b", "c"))
    assert claim.verdict == verdict


@pytest.mark.parametrize(
    ("levels", "verdict"), [((1, 2, 3), "holds"), ((1, 3, 2), "holds in part"), ((3, 2, 1), "does not hold")]
)
def test_the_verdict_on_speed_follows_the_data(levels, verdict):
    noise = np.random.default_rng(1).normal(0, 0.01, (50, 2))
    labels = ("η = 1/√t", "η = 1/t", "η = 1/t²")
    data = {label: history(np.zeros((50, 2, 2)), level + noise) for label, level in zip(labels, levels, strict=True)}
    assert claims._larger_is_faster(data, labels, "gap", "x").verdict == verdict


def test_steady_means_within_a_share_of_what_policies_can_differ_by():
    still, moved = history(trials([0, 0], [0.01, 0])), history(trials([0, 0], [0.5, 0]))
    assert claims._steady(still, ("a", "b"), np.ones(2)).verdict == "holds"
    assert claims._steady(moved, ("a", "b"), np.ones(2)).verdict == "holds in part"


def test_means_have_students_interval():
    value = statistics.mean([1.0, 2.0, 3.0])
    assert (value.value, value.low) == (2.0, pytest.approx(2 - 4.302653 / 3**0.5, rel=1e-5))
    assert np.isnan(statistics.mean([1.0]).low)
    assert np.isnan(statistics.mean([np.nan]).value)


def test_the_setting_of_the_null_test_is_one_discount():
    assert isinstance(spec.load("fishwood-discounted").methods[0].config.setting, Discounted)


@pytest.mark.parametrize("name", TRAINED)
def test_a_full_run_judges_every_claim(name):
    """A claim is left out only where its method was not run: never because a label is misspelt."""
    experiment, model = spec.load(name), momdp.library.for_environment(spec.load(name).env)
    data = {task.label: history(np.ones((3, 2, model.num_objectives))) for task in experiment.methods}
    arguments = (data, model.objective_names, np.ones(model.num_objectives))
    assert len(claims.of(name, *arguments)) == len(claims._CLAIMS[name](*arguments))
