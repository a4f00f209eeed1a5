"""The run directory, with results made by hand: nothing is trained or compiled here."""

import json
import os
import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import Config, api, momdp, training, weighting
from moac.runs import checkpoints, description, runner
from moac.runs import directory as run_directory
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.history import History
from tests.helpers.limits import limited

K, S, A, M = 2, 5, 3, 2
CONFIG = Config(num_iterations=9, num_critic_steps=1, critic_batch_size=2, actor_batch_size=2)
MODEL = momdp.library.random_ergodic(jax.random.key(0), num_states=S, num_actions=A, num_objectives=M)


def run_of(config=CONFIG, own=None, model=MODEL):
    return result.prepare(model, config, K, 4, own)


def history_of(length):
    cube, square = np.full((K, length, M), 0.5), np.full((K, length), 0.25)
    return History(np.arange(1, length + 1), cube, cube, cube, *(square,) * 5)


def snapshot_of(run, iteration, length=3):
    rng = np.random.default_rng(iteration)
    arrays = jax.tree.map(lambda leaf: rng.integers(0, 9, leaf.shape).astype(leaf.dtype), training.template(run))
    return training.Snapshot.of(iteration, arrays, history_of(length))


def outcome_of(run, iteration=9, own=None):
    return result.Result.of(run, snapshot_of(run, iteration), own)


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


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


def test_the_main_thread_which_hears_of_signals_does_not_wait_for_the_disk(directory, monkeypatch):
    waiting, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (waiting.append(threading.current_thread()), real(file)))
    directory.checkpoints().write(snapshot_of(run_of(), 4))
    assert waiting
    assert threading.main_thread() not in waiting


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


def test_a_folder_in_which_a_run_was_killed_as_it_began(tmp_path):
    for left in ([], ["checkpoint"], ["checkpoint", "provenance.json", ".config.json.7.tmp", ".lock"]):
        folder = tmp_path / f"{len(left)}"
        folder.mkdir()
        for name in left:
            (folder / name).mkdir() if name == "checkpoint" else (folder / name).write_text("half")
        assert RunDirectory.create(folder, run_of()).description["seed"] == 4


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


def test_creating_leaves_nothing_when_it_fails(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(run_directory.files, "write_json", full)
    with pytest.raises(OSError, match=r"No space left"):
        RunDirectory.create(tmp_path / "run", run_of())
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_used(tmp_path):
    assert RunDirectory.create(tmp_path, run_of()).description["trials"] == K


def test_save_load_and_resume(tmp_path):
    outcome = outcome_of(run_of())
    assert run_directory.save(outcome, tmp_path / "run") == tmp_path / "run"
    assert same(run_directory.load(tmp_path / "run", trial=1).theta, outcome.policy.theta)
    assert run_directory.load(str(tmp_path / "run"), trial=1).trial == 1
    again = api.resume(tmp_path / "run", MODEL)
    assert again.iteration == 9
    assert again.config == outcome.config
    assert same(again.history.arrays(), outcome.history.arrays())
    assert same(again.random_iterate_policy.theta, outcome.random_iterate_policy.theta)
    assert same((again.random_iteration, again.stopped), (outcome.random_iteration, outcome.stopped))


def test_saving_twice_into_one_folder(tmp_path):
    run_directory.save(outcome_of(run_of()), tmp_path / "run")
    with pytest.raises(ValueError, match=r"/run exists already: choose a new folder, or continue that run with"):
        run_directory.save(outcome_of(run_of()), tmp_path / "run")


def test_loading_a_trial_that_is_not_there(tmp_path):
    run_directory.save(outcome_of(run_of()), tmp_path / "run")
    with pytest.raises(ValueError, match=r"^`trial` must be in \[0, 2\), got 2.$"):
        run_directory.load(tmp_path / "run", trial=2)


def test_loading_an_unfinished_run(directory):
    with pytest.raises(ValueError, match=r"/run has not finished: continue it with moac resume /.*/run.$"):
        run_directory.load(directory.path)


def test_loading_damaged_policies(tmp_path):
    run_directory.save(outcome_of(run_of()), tmp_path / "run")
    path = tmp_path / "run" / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"policy.safetensors is damaged: "):
        run_directory.load(tmp_path / "run")


def test_linear_policies_keep_their_features(tmp_path):
    run = run_of(replace(CONFIG, policy="linear", features="random:4"))
    outcome = outcome_of(run)
    run_directory.save(outcome, tmp_path / "run")
    loaded = run_directory.load(tmp_path / "run")
    assert np.asarray(loaded).shape == (K, 4, A)
    for state in range(S):
        assert loaded.log_prob(state, 1) == pytest.approx(outcome.policy.log_prob(state, 1), rel=1e-6)


class OwnPolicy:
    """Parameters in two leaves."""

    def init(self, key):  # noqa: ARG002
        return {"bias": jnp.zeros(A), "table": jnp.zeros((S, A))}

    def sample(self, theta, observation, key):
        return jax.random.categorical(key, theta["table"][observation] + theta["bias"])

    def log_prob(self, theta, observation, action):
        return jax.nn.log_softmax(theta["table"][observation] + theta["bias"])[action]


def test_parts_of_ones_own(tmp_path):
    own = {"policy": OwnPolicy(), "critic": None, "rule": weighting.uniform()}
    outcome = outcome_of(run_of(own=own), own=own)
    run_directory.save(outcome, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["own"] == ["policy", "rule"]
    loaded = run_directory.load(tmp_path / "run", policy=own["policy"])
    assert same(loaded.theta, outcome.policy.theta)
    assert loaded.log_prob(0, 1) <= 0
    again = api.resume(tmp_path / "run", MODEL, policy=own["policy"], rule=own["rule"])
    assert again.own == ("policy", "rule")
    with pytest.raises(ValueError, match=r"was trained with a policy of its own: give the same, as policy=.$"):
        run_directory.load(tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"was trained with a policy and a rule of its own: give the same, as policy=, "
    ):
        api.resume(tmp_path / "run", MODEL, policy=own["policy"])


def test_named_parts_are_not_ones_own_however_many_runs_came_between(tmp_path):
    outcome = outcome_of(run_of())
    for seed in range(20):
        result.prepare(MODEL, CONFIG, K, 100 + seed)
    run_directory.save(outcome, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["own"] == []
    with pytest.raises(ValueError, match=r"was trained without parts of its own: give no policy, critic or rule.$"):
        run_directory.load(tmp_path / "run", policy=OwnPolicy())


def test_resuming_on_another_problem(directory):
    other = momdp.library.random_ergodic(jax.random.key(1), num_states=S, num_actions=A, num_objectives=M)
    with pytest.raises(ValueError, match=r"was trained on another problem than "):
        api.resume(directory.path, other)


def test_parameters_in_several_leaves():
    theta = {"bias": np.arange(6.0).reshape(2, 3), "table": np.ones((2, S, 3))}
    stored = {"theta.0": theta["bias"], "theta.1": theta["table"]}
    assert same(checkpoints.parameters(stored, "theta", OwnPolicy()), theta)


def test_commit_is_of_these_sources_only(monkeypatch, tmp_path):
    assert description.provenance(3)["seed"] == 3
    monkeypatch.setattr(description, "__file__", str(tmp_path / "a/b/c/d.py"))
    assert description.provenance(3)["commit"] is None


def test_what_a_run_on_a_log_left_as_it_began_is_no_obstacle(tmp_path):
    """Killed between its first file and config.json."""
    for name in run_directory.LOG_FILES:
        (tmp_path / name).write_bytes(b"torn")
    (tmp_path / "checkpoint").mkdir()
    assert RunDirectory.create(tmp_path, run_of()).path == tmp_path
