"""What `moac train` says of a run, with arrays made by hand."""

import numpy as np
import pytest
from scipy.stats import t as student

from moac import Average, Config, momdp
from moac.cli import console, process, train
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.run import History

K, L, M = 4, 3, 3
METER = train.Meter(process.Interrupts())
MODEL = momdp.library.resource_gathering()


def outcome_of(config=None, trials=K, stopped=None, value=0.1):
    run = result.prepare(MODEL, config, trials, 0)
    cube, square = np.full((trials, L, M), value), np.full((trials, L), value)
    history = History(np.array([1, 5, 9]), cube, cube, cube, *(square,) * 5, np.zeros(L))
    theta = np.zeros((trials, MODEL.num_states, MODEL.num_actions), np.float32)
    policy = result.TrainedPolicy(run.parts.policy, theta, MODEL.spec.observations)
    stopped = np.zeros(trials, int) if stopped is None else np.array(stopped)
    return result.Result(run, 9, history, policy, policy, np.ones(trials, int), stopped)


def test_interval_is_students():
    values = np.random.default_rng(0).normal(size=(20, M))
    (low, high), *_ = train.interval(values)
    expected = student.interval(0.95, 19, values[:, 0].mean(), values[:, 0].std(ddof=1) / np.sqrt(20))
    np.testing.assert_allclose((low, high), expected)
    assert train.interval(values[:1]) is None


def test_summary_counts_stopped_trials(tmp_path, capsys):
    outcome = outcome_of(stopped=[0, 7, 0, 3], config=Config(num_iterations=9))
    outcome.history.returns[1] = np.nan
    directory = RunDirectory.create(tmp_path / "run", outcome.run)
    summary = train.summary(directory.path, outcome, 2.0, 5)
    assert summary["stopped_trials"] == 2
    assert summary["returns"] == pytest.approx([0.1] * M)
    assert summary["env_steps"] == 9 * outcome.run.env_steps_per_iteration
    assert summary["env_steps_per_second"] == 2.5 * outcome.run.env_steps_per_iteration
    directory.finish(outcome)
    train.told(directory.path, outcome, METER).show()
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 of 4 trials stopped, the first at iteration 3" in shown


def test_report_without_any_finite_number(tmp_path, capsys):
    outcome = outcome_of(value=np.nan, trials=1, config=Config(setting=Average()))
    directory = RunDirectory.create(tmp_path / "run", outcome.run)
    directory.finish(outcome)
    told = train.told(directory.path, outcome, METER)
    told.show()
    console.print_json(told.record)
    assert '"returns": [null, null, null]' in capsys.readouterr().out
