"""Training into a run directory: checkpoints and metrics while it goes on."""

import pytest

from moac import training
from moac.runs import runner
from moac.runs.directory import RunDirectory
from tests.helpers.hand_made import run_of, snapshot_of


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path / "run", run_of())


def test_interrupted_training_leaves_a_checkpoint(directory, monkeypatch):
    run = run_of()

    def interrupted(run, snapshot):
        yield snapshot_of(run, 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "iterate", interrupted)
    shown = []
    with pytest.raises(KeyboardInterrupt):
        runner.train(directory, run, every=1e9, show=shown.append)
    assert [snapshot.iteration for snapshot in shown] == [3]
    assert directory.checkpoints().newest(run).iteration == 3


def test_numbers_are_there_while_it_trains(directory, monkeypatch):
    seen = []
    monkeypatch.setattr(
        training, "iterate", lambda run, snapshot: iter([snapshot_of(run, 3, 1), snapshot_of(run, 9, 2)])
    )
    runner.train(
        directory, run_of(), show=lambda _: seen.append((directory.path / "metrics.jsonl").read_text().count("\n"))
    )
    assert seen == [1, 2]


def test_a_run_that_has_all_its_iterations_is_not_written_again(directory, monkeypatch):
    monkeypatch.setattr(training, "iterate", lambda run, snapshot: iter(()))
    final = snapshot_of(run_of(), 9)
    assert runner.train(directory, run_of(), final) is final
    assert directory.checkpoints().newest(run_of()) is None
