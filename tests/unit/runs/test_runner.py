"""Training into a run directory: checkpoints and metrics while it goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import moac
from moac import Config, files, training
from moac.runs import runner
from moac.runs.directory import RunDirectory, load, reopen, save
from moac.runs.runner import lengthen
from moac.training.result import Result
from tests.helpers.hand_made import MODEL, K, run_of, same, snapshot_of


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path / "run", run_of())


def test_interrupted_training_leaves_a_checkpoint(directory, monkeypatch):
    run = run_of()

    def interrupted(run, snapshot, stop_every):
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
        training, "iterate", lambda run, snapshot, stop_every: iter([snapshot_of(run, 3, 1), snapshot_of(run, 9, 2)])
    )
    runner.train(
        directory, run_of(), show=lambda _: seen.append((directory.path / "metrics.jsonl").read_text().count("\n"))
    )
    assert seen == [1, 2]


def test_a_run_that_has_all_its_iterations_is_not_written_again(directory, monkeypatch):
    monkeypatch.setattr(training, "iterate", lambda run, snapshot, stop_every: iter(()))
    final = snapshot_of(run_of(), 9)
    assert runner.train(directory, run_of(), final) is final
    assert directory.checkpoints().newest(run_of()) is None


SMALL = Config(num_iterations=6, num_critic_steps=1, critic_batch_size=2, actor_batch_size=3, num_evaluations=3)


def ended(path, config, keep_every=None):
    run = run_of(config)
    directory = RunDirectory.create(path, run, keep_every=keep_every)
    return continued(directory, run)


def continued(directory, run):
    outcome = Result.of(run, runner.train(directory, run, directory.checkpoints().newest(run)))
    directory.finish(outcome)
    return outcome


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A run of ten iterations from the start."""
    path = tmp_path_factory.mktemp("longer") / "run"
    return path, ended(path, replace(SMALL, num_iterations=10))


def test_a_finished_run_goes_on_as_if_it_had_been_longer_from_the_start(longer, tmp_path):
    path, whole = tmp_path / "run", longer[1]
    before = ended(path, SMALL)
    (path / "certificate.json").touch()  # of these policies
    (path / "card-test.json").touch()
    directory, run = reopen(path, MODEL)
    with directory.held():
        assert lengthen(directory, run, 6) == (directory, run) and (path / "certificate.json").exists()
        directory, run = lengthen(directory, run, 10)
        assert not (path / "certificate.json").exists() and not (path / "card-test.json").exists()
        with pytest.raises(ValueError, match="has not finished"):
            load(path)
        outcome = continued(*reopen(path, MODEL))
    assert same(outcome.policy.theta, whole.policy.theta)
    assert same(outcome.random_iterate_policy.theta, whole.random_iterate_policy.theta)
    assert same((outcome.returns, outcome.random_iteration), (whole.returns, whole.random_iteration))
    assert directory.description == RunDirectory(longer[0]).description
    assert outcome.history.iteration.tolist() == [1, 4, 6, 10]  # of three, and of three among ten: 1, 6 and 10
    assert same(load(path, iteration=6).theta, before.policy.theta)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [5, 20, 30, 50]


def test_a_saved_result_goes_on_too(longer, tmp_path):
    save(moac.train(MODEL, SMALL, trials=K, seed=4), tmp_path / "run")
    outcome = continued(*lengthen(*reopen(tmp_path / "run", MODEL), 10))
    assert same(outcome.policy.theta, longer[1].policy.theta)


@pytest.mark.parametrize("file", ["history.safetensors", "config.json"])
def test_a_kill_while_a_run_is_lengthened_loses_nothing(file, longer, tmp_path, monkeypatch):
    ended(tmp_path / "run", SMALL)
    directory, run = reopen(tmp_path / "run", MODEL)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", interrupt) if file.startswith("history") else None
        patched.setattr(files, "write_json", interrupt)
        lengthen(directory, run, 10)
    assert same(continued(*reopen(tmp_path / "run", MODEL)).policy.theta, load(tmp_path / "run", iteration=6).theta)
    outcome = continued(*lengthen(*reopen(tmp_path / "run", MODEL), 10))
    assert same(outcome.policy.theta, longer[1].policy.theta)


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_policies_are_kept_every_so_often_and_change_nothing(longer, tmp_path):
    outcome = ended(tmp_path / "run", replace(SMALL, num_iterations=10), keep_every=4)
    for name in ("history.safetensors", "metrics.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (longer[0] / name).read_bytes()
    assert same(outcome.policy.theta, longer[1].policy.theta)
    assert sorted(path.name for path in (tmp_path / "run" / "policies").iterdir()) == [
        "0000000004.safetensors",
        "0000000008.safetensors",
    ]
    eight = ended(tmp_path / "eight", replace(SMALL, num_iterations=8))
    assert same(load(tmp_path / "run", iteration=8).theta, eight.policy.theta)


def test_what_cannot_be_lengthened(directory, monkeypatch):
    run = run_of()
    with pytest.raises(ValueError, match=r"`iterations` must be at least 9.*got 8"):
        lengthen(directory, run, 8)
    with pytest.raises(ValueError, match="`num_iterations` must be a whole number"):
        lengthen(directory, run, 10.5)
    assert lengthen(directory, run, 9) == (directory, run)
    directory.finish(Result.of(run, snapshot_of(run, 9)))
    with pytest.raises(ValueError, match="it has no checkpoint"):
        lengthen(directory, run, 10)
    monkeypatch.setattr(runner.settings, "length_dependent", lambda config: ("falling_step",))
    with pytest.raises(ValueError, match="its `falling_step` depends on the number of iterations"):
        lengthen(directory, run, 10)
    assert RunDirectory(directory.path).config.num_iterations == 9
    assert directory.finished
