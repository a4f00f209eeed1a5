"""Checkpoints and parameters as arrays: what is read is what was written, and what is damaged is noticed."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from moac import training
from moac.runs import checkpoints
from moac.runs.directory import RunDirectory
from moac.training.run import History
from tests.helpers.hand_made import K, OwnPolicy, S, run_of, same, snapshot_of
from tests.helpers.limits import limited


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path / "run", run_of())


def test_checkpoint_round_trip(directory):
    run, written = run_of(), snapshot_of(run_of(), 5)
    directory.checkpoints().write(written)
    read = directory.checkpoints().newest(run)
    assert read.iteration == 5
    assert same(read.trials, written.trials)
    assert same(read.history.arrays(), written.history.arrays())


def test_checkpoint_before_anything_is_logged(directory):
    directory.checkpoints().write(replace(snapshot_of(run_of(), 1), history=History.empty()))
    assert len(directory.checkpoints().newest(run_of()).history.iteration) == 0


def test_no_checkpoint_yet(directory):
    assert directory.checkpoints().newest(run_of()) is None


def test_the_last_two_checkpoints_are_kept(directory):
    for iteration in (1, 4, 7, 9):
        directory.checkpoints().write(snapshot_of(run_of(), iteration))
    names = sorted(path.name for path in (directory.path / "checkpoint").iterdir())
    assert names == ["0000000007.safetensors", "0000000009.safetensors"]


def test_a_damaged_checkpoint_falls_back_to_the_one_before(directory):
    for iteration in (4, 7):
        directory.checkpoints().write(snapshot_of(run_of(), iteration))
    last = directory.path / "checkpoint" / "0000000007.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    assert directory.checkpoints().newest(run_of()).iteration == 4


def test_a_checkpoint_that_is_a_fifo_falls_back_at_once(directory):
    for iteration in (4, 7):
        directory.checkpoints().write(snapshot_of(run_of(), iteration))
    last = directory.path / "checkpoint" / "0000000007.safetensors"
    last.unlink()
    os.mkfifo(last)
    with limited(60):
        assert directory.checkpoints().newest(run_of()).iteration == 4


@pytest.mark.parametrize(
    ("text", "other"), [(b'\\"iteration\\": 7', b'\\"iteration\\": 8'), (b'\\"seed\\": 4', b'\\"seed\\": 5')]
)
def test_a_checkpoint_whose_description_was_edited_falls_back_to_the_one_before(text, other, directory):
    for iteration in (4, 7):
        directory.checkpoints().write(snapshot_of(run_of(), iteration))
    first, last = sorted((directory.path / "checkpoint").iterdir())
    assert last.read_bytes().count(text) == 1
    last.write_bytes(last.read_bytes().replace(text, other))
    assert directory.checkpoints().newest(run_of()).iteration == 4
    first.unlink()
    with pytest.raises(ValueError, match=rf"^{last} is damaged: it was changed after"):
        directory.checkpoints().newest(run_of())


def test_a_checkpoint_with_other_shapes(directory):
    broken = snapshot_of(run_of(), 4)
    trials = replace(broken.trials, stopped=np.zeros(K + 1, np.int32))
    broken = training.Snapshot.of(4, trials, broken.history)
    directory.checkpoints().write(broken)
    with pytest.raises(ValueError, match=r"safetensors is damaged: array .stopped is missing or has another shape."):
        directory.checkpoints().newest(run_of())


def test_a_checkpoint_of_another_configuration(directory):
    directory.checkpoints().write(snapshot_of(run_of(), 4))
    described = directory.description
    described["config"]["setting"]["discount"] = 0.5
    other = checkpoints.Checkpoints(directory.path / "checkpoint", described)
    with pytest.raises(ValueError, match=r"edited after the run began: `config.setting.discount` is 0.5, was 0.9."):
        other.newest(run_of())


def test_more_iterations_are_no_other_configuration_unless_a_schedule_depends_on_them(directory, monkeypatch):
    directory.checkpoints().write(snapshot_of(run_of(), 4))
    for length, fits in ((10, True), (8, False), (None, False)):
        described = directory.description | {"config": directory.description["config"] | {"num_iterations": length}}
        other = checkpoints.Checkpoints(directory.path / "checkpoint", described)
        if fits:
            assert other.newest(run_of()).iteration == 4
            monkeypatch.setattr(checkpoints.settings, "length_dependent", lambda config: ("falling_step",))
        with pytest.raises(ValueError, match=r"edited after the run began: `config.num_iterations` is"):
            other.newest(run_of())
        monkeypatch.undo()


def test_the_main_thread_which_hears_of_signals_does_not_wait_for_the_disk(directory, monkeypatch):
    waiting, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (waiting.append(threading.current_thread()), real(file)))
    directory.checkpoints().write(snapshot_of(run_of(), 4))
    assert waiting
    assert threading.main_thread() not in waiting


def test_parameters_in_several_leaves():
    theta = {"bias": np.arange(6.0).reshape(2, 3), "table": np.ones((2, S, 3))}
    stored = {"theta.0": theta["bias"], "theta.1": theta["table"]}
    assert same(checkpoints.parameters(stored, "theta", 2, OwnPolicy()), theta)
    with pytest.raises(ValueError, match=r"theta\.0"):
        checkpoints.parameters(stored, "theta", 3, OwnPolicy())
