"""The run directory, with results made by hand."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from moac import api, locks, momdp, weighting
from moac.runs import directory as run_directory
from moac.runs import problems
from moac.runs.directory import RunDirectory
from moac.training import result
from tests.helpers.hand_made import CONFIG, MODEL, A, K, M, OwnPolicy, S, outcome_of, run_of, same


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path / "run", run_of())


def test_a_folder_in_which_a_run_was_killed_as_it_began(tmp_path):
    for left in ([], ["checkpoint"], ["checkpoint", "provenance.json", ".config.json.7.tmp", ".lock"]):
        folder = tmp_path / f"{len(left)}"
        folder.mkdir()
        for name in left:
            (folder / name).mkdir() if name == "checkpoint" else (folder / name).write_text("half")
        assert RunDirectory.create(folder, run_of()).description["seed"] == 4


def test_creating_leaves_nothing_when_it_fails(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(run_directory.files, "write_json", full)
    with pytest.raises(OSError, match=r"No space left"), locks.folder(tmp_path / "run"):
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


def foreign(path):
    path.mkdir()
    (path / "notes.txt").write_text("mine")


OCCUPIED = {
    "finished": (
        lambda path: run_directory.save(outcome_of(run_of()), path),
        r"finished.*overwrite=True.*--iterations",
    ),
    "stopped": (lambda path: RunDirectory.create(path, run_of()), "stopped: .* moac resume"),
    "foreign": (foreign, r"holds other files \(notes.txt\): choose a new folder"),
    "a file": (lambda path: path.write_text("mine"), "is a file: choose a new folder"),
}


@pytest.mark.parametrize("what", OCCUPIED)
def test_what_is_there_is_named_and_only_a_run_is_replaced(what, tmp_path):
    path, (put, message) = tmp_path / "run", OCCUPIED[what]
    put(path)
    (path / "kept").touch() if path.is_dir() else None
    with pytest.raises(ValueError, match=f"/run exists already.*{message}"):
        run_directory.save(outcome_of(run_of()), path)
    if what in ("finished", "stopped"):
        run_directory.save(outcome_of(run_of(), 7), path, overwrite=True)
        assert RunDirectory(path).policy_arrays()[1]["iteration"] == 7
        assert not (path / "kept").exists()
    else:
        with pytest.raises(ValueError, match=message):
            run_directory.save(outcome_of(run_of()), path, overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_a_run_that_is_in_use_is_not_replaced(directory):
    with directory.held(), pytest.raises(ValueError, match="is in use by process"):
        run_directory.save(outcome_of(run_of()), directory.path, overwrite=True)
    assert not directory.finished


def test_policies_kept_on_the_way(directory):
    for iteration in (3, 6):
        directory.keep(outcome_of(run_of(), iteration))
    directory.finish(outcome_of(run_of()))
    for iteration in (3, 6, None):
        kept = outcome_of(run_of(), iteration or 9)
        assert same(run_directory.load(directory.path, iteration=iteration).theta, kept.policy.theta)
    with pytest.raises(ValueError, match=r"`iteration` must be one of 3, 6, got 4."):
        run_directory.load(directory.path, iteration=4)


def test_nothing_was_kept_on_the_way(directory):
    with pytest.raises(ValueError, match=r"`iteration` must be left out.*`keep_every`.*, got 4."):
        run_directory.load(directory.path, iteration=4)


@pytest.mark.parametrize("wrong", [0, True, 2.0])
def test_how_often_policies_are_kept_is_a_count(wrong, tmp_path):
    with pytest.raises(ValueError, match=f"`keep_every` must be a whole number of at least 1, got {wrong}"):
        RunDirectory.create(tmp_path / "run", run_of(), keep_every=wrong)
    assert list(tmp_path.iterdir()) == []


def test_loading_a_trial_that_is_not_there(tmp_path):
    run_directory.save(outcome_of(run_of()), tmp_path / "run")
    with pytest.raises(ValueError, match=r"^`trial` must be a whole number in \[0, 2\), got 2.$"):
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


def test_parts_of_ones_own(tmp_path):
    own = {"policy": OwnPolicy(), "critic": None, "rule": weighting.uniform()}
    outcome = outcome_of(run_of(given=own))
    run_directory.save(outcome, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["own"] == ["policy", "rule"]
    loaded = run_directory.load(tmp_path / "run", policy=own["policy"])
    assert same(loaded.theta, outcome.policy.theta)
    assert loaded.log_prob(0, 1) <= 0
    again = api.resume(tmp_path / "run", MODEL, policy=own["policy"], rule=own["rule"])
    assert again.run.given == ("policy", "rule")
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


def test_what_a_run_on_a_log_left_as_it_began_is_no_obstacle(tmp_path):
    """Killed between its first file and config.json."""
    for name in problems.LOG_FILES:
        (tmp_path / name).write_bytes(b"torn")
    (tmp_path / "checkpoint").mkdir()
    assert RunDirectory.create(tmp_path, run_of()).path == tmp_path
