"""Checkpoints beside the training: when they are taken, that the last is complete, and what a full disk does."""

import os
import threading
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from moac import Config, training
from moac.runs import checkpoints
from moac.runs.checkpoints import Writer
from moac.runs.directory import RunDirectory
from tests.helpers.hand_made import run_of, same, snapshot_of


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path / "run", run_of())


@pytest.fixture
def clock(monkeypatch):
    """Its seconds pass when a test says so."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


class Disk:
    """One that stands still until it is let go, and may be full then."""

    def __init__(self):
        self.reached, self.let_go, self.full = threading.Event(), threading.Event(), False
        self.at_once, self._at_work, self._fsync = 0, 0, os.fsync

    def fsync(self, descriptor):
        self._at_work += 1
        self.at_once = max(self.at_once, self._at_work)
        self.reached.set()
        assert self.let_go.wait(60)
        self._at_work -= 1
        if self.full:
            raise OSError(28, "No space left on device")
        self._fsync(descriptor)


@pytest.fixture
def disk(monkeypatch):
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    yield made
    made.let_go.set()


def newest(directory):
    found = directory.checkpoints().newest(run_of())
    return None if found is None else found.iteration


def offer(writing, iteration):
    writing.offer(snapshot_of(run_of(), iteration))


def settle(writing):
    """Return when the thread has done what it was given."""
    writing._pool.submit(int).result(60)


def test_the_training_goes_on_while_one_is_written_and_no_other_is_taken(directory, clock, disk):
    writing = Writer(directory.checkpoints(), 10, None)
    for clock.now in (6, 7, 9):
        offer(writing, clock.now)
    assert disk.reached.wait(60)
    assert newest(directory) is None
    disk.let_go.set()
    settle(writing)
    assert newest(directory) == 6
    writing.finish(snapshot_of(run_of(), 9))
    assert newest(directory) == 9
    assert disk.at_once == 1


def offer_and_wait(writing, iteration, disk):
    """Offer a snapshot, for which the training must wait until the disk is let go."""
    thread = threading.Thread(target=offer, args=(writing, iteration), daemon=True)
    thread.start()
    assert disk.reached.wait(60)
    thread.join(0.2)
    assert thread.is_alive()
    disk.let_go.set()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("every", "moments", "complete"), [(10, (6, 11), 6), (10, (6, 17), 17), (0, (1,), 1), (10, (12,), 12)]
)
def test_the_training_waits_where_the_complete_one_is_too_old(every, moments, complete, directory, clock, disk):
    writing = Writer(directory.checkpoints(), every, None)
    for clock.now in moments[:-1]:
        offer(writing, clock.now)
    clock.now = moments[-1]
    offer_and_wait(writing, clock.now, disk)
    assert newest(directory) >= complete
    writing.finish(snapshot_of(run_of(), clock.now))
    assert newest(directory) == moments[-1]


def test_its_age_counts_from_when_its_state_was_taken(directory, clock, disk):
    writing = Writer(directory.checkpoints(), 10, None)
    clock.now = 6
    offer(writing, 6)
    clock.now = 9
    disk.let_go.set()
    settle(writing)
    for event in (disk.let_go, disk.reached):
        event.clear()
    clock.now = 17
    offer_and_wait(writing, 17, disk)
    assert newest(directory) == 17


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((2.0, 0.7, 0.4), range(1, 13)), ((2.0, 0.5, 0.0), range(2, 13, 2)), ((2.0, 0.5, 0.6), range(2, 13)),
     ((2.0, 1.5, 0.3), range(1, 13)), ((2.0, 3.0, 0.5), range(1, 13)), ((1e9, 1.0, 0.4), ())],
)  # fmt: skip
def test_the_state_of_the_newest_complete_one_is_never_too_old(numbers, expected, directory, clock, monkeypatch):
    """Of every so many seconds, where a chunk and a checkpoint take so long: the iterations that are taken."""
    (every, chunk, cost), run, taken, ages = numbers, run_of(), {0: 0.0}, []
    writing = Writer(directory.checkpoints(), every, None)
    monkeypatch.setattr(checkpoints, "_timed", lambda write: write() or cost)
    for iteration in range(1, 13):
        clock.now = iteration * (chunk + 1e-9)
        stored, asked = snapshot_of(run, iteration), []
        blocks = lambda stored=stored, asked=asked: asked.append(clock.now) or stored.blocks()  # noqa: E731
        writing.offer(training.Snapshot(iteration, blocks, stored.history))
        if asked:
            settle(writing)
            ages.append(clock.now + cost - list(taken.values())[-1])
            taken[iteration] = clock.now
    writing.finish(None)
    assert list(taken)[1:] == list(expected)
    assert max(ages[:1], default=0) <= every + chunk  # what a checkpoint costs is not known yet
    assert max(ages[1:], default=0) <= max(every, chunk + cost) + 1e-6


def test_what_is_written_is_the_state_when_it_was_taken(directory, clock, disk):
    config = Config(num_iterations=6, num_critic_steps=1, critic_batch_size=2, actor_batch_size=3, num_evaluations=6)
    run, writing, copies = run_of(config), Writer(directory.checkpoints(), 10, None), {}
    for snapshot in training.iterate(run):
        clock.now = 6 if snapshot.iteration == 1 else 7
        writing.offer(snapshot)
        copies[snapshot.iteration] = jax.tree.map(np.array, snapshot.trials)
    disk.let_go.set()
    settle(writing)
    assert same(directory.checkpoints().newest(run).trials, copies[1])
    writing.finish(snapshot)
    assert same(directory.checkpoints().newest(run).trials, copies[6])
    assert not same(copies[1], copies[6])


def test_a_full_disk_is_told_at_the_next_chunk_and_the_last_is_tried_again(directory, clock, disk):
    disk.let_go.set()
    writing, path = Writer(directory.checkpoints(), 10, None), directory.path / "checkpoint" / "0000000007.safetensors"
    clock.now = 6
    offer(writing, 6)
    settle(writing)
    disk.full, clock.now = True, 12
    offer(writing, 7)
    settle(writing)
    with pytest.raises(OSError, match="No space left") as error:
        offer(writing, 8)
    assert error.value.filename == str(path)
    assert newest(directory) == 6
    with pytest.raises(OSError, match="No space left"):
        writing.finish(snapshot_of(run_of(), 8))
    assert [path.name for path in path.parent.iterdir()] == ["0000000006.safetensors"]


def test_a_disk_that_was_full_at_the_end_is_told_and_the_last_is_stored(directory, clock, disk):
    writing, clock.now, disk.full = Writer(directory.checkpoints(), 10, None), 6, True
    offer(writing, 6)
    disk.let_go.set()
    settle(writing)
    disk.full = False
    with pytest.raises(OSError, match="No space left"):
        writing.finish(snapshot_of(run_of(), 9))
    assert newest(directory) == 9


def test_what_is_stored_already_is_not_written_again(directory, disk):
    disk.let_go.set()
    for snapshot in (None, snapshot_of(run_of(), 9)):
        Writer(directory.checkpoints(), 0, 9).finish(snapshot)
    assert not disk.reached.is_set()
