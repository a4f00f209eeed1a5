"""Chunks by measured time: none is long, whatever an iteration costs, and results do not depend on them."""

import itertools

import jax
import numpy as np
import pytest

from moac import Config, envs, momdp, training
from moac.training import Pace, result
from tests.helpers.environments import Line

SIZES = {"num_iterations": 23, "num_critic_steps": 1, "critic_batch_size": 4, "actor_batch_size": 4}
CONFIG = Config(**SIZES, num_evaluations=2, weighting="uniform")
PROBLEMS = {
    "compiled": momdp.library.random_ergodic(jax.random.key(3), num_states=5, num_actions=3, num_objectives=2),
    "hosted": envs.make(Line, num_envs=2, evaluation_episodes=2),
}
"""One of each, since each compiles programs of its own."""


def chunks(cost, fixed=0.0):
    """Iterations and seconds of one chunk after the other, where an iteration costs so much and a chunk as well."""
    own = Pace()
    while True:
        iterations = own.longest
        seconds = iterations * cost + fixed
        own.adapt(iterations, seconds)
        yield iterations, seconds


@pytest.mark.parametrize("cost", [1e-6, 1e-4, 0.01, 0.3, 0.7, 5.0])
@pytest.mark.parametrize("fixed", [0.0, 0.01])
def test_chunks_grow_to_half_a_second_and_not_beyond(cost, fixed):
    first = list(itertools.islice(chunks(cost, fixed), 40))
    assert first[0][0] == 1
    assert all(iterations == 1 or seconds <= 1 for iterations, seconds in first)
    assert first[-1][0] == 1 or first[-1][1] > 0.2


def test_a_first_chunk_that_was_compiled_does_not_slow_the_others():
    own = Pace()
    own.adapt(1, 30.0)
    for _ in range(10):
        own.adapt(own.longest, own.longest * 1e-5)
    assert own.longest * 1e-5 > 0.2


def test_iterations_that_become_slower_make_the_next_chunk_shorter():
    own = Pace(longest=1000)
    own.adapt(1000, 10.0)
    assert own.longest == 50


def test_a_chunk_cut_short_by_an_evaluation_says_little():
    own = Pace(longest=1000)
    own.adapt(2, 0.01)
    assert own.longest == 1000
    own.adapt(2, 4.0)
    assert own.longest == 1


@pytest.mark.parametrize("driver", PROBLEMS)
def test_what_is_learned_does_not_depend_on_the_chunks(driver, monkeypatch):
    run = result.prepare(PROBLEMS[driver], CONFIG, 3, 5)
    found = {}
    for seconds in (0.0, 1e9):
        monkeypatch.setattr(training, "SECONDS", seconds)
        snapshots = list(training.iterate(run))
        found[seconds] = jax.tree.leaves((snapshots[-1].trials.state.theta, snapshots[-1].history.arrays()))
        iterations = [snapshot.iteration for snapshot in snapshots]
        assert iterations == (list(range(1, 24)) if seconds == 0 else [1, 5, 21, 23])
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("driver", PROBLEMS)
def test_a_snapshot_keeps_its_trials_while_the_run_goes_on(driver, monkeypatch):
    """They are copied to the host when somebody asks, which may be later."""
    monkeypatch.setattr(training, "SECONDS", 0.0)
    run = result.prepare(PROBLEMS[driver], CONFIG, 3, 5)
    at_once = [snapshot.trials.state.theta for snapshot in training.iterate(run)]
    later = [snapshot.trials.state.theta for snapshot in list(training.iterate(run))]
    np.testing.assert_array_equal(at_once, later)
    assert (at_once[0] != at_once[-1]).any()


@pytest.mark.parametrize("count", [3, 64, 130])
def test_a_snapshot_has_its_trials_and_no_others_in_blocks_or_joined(count):
    """The last block is padded while it trains; on the host it is not."""
    snapshot = training.first(result.prepare(PROBLEMS["compiled"], CONFIG, count, 5))
    assert sum(len(block.stopped) for block in snapshot.blocks()) == count
    leaves = zip(*map(jax.tree.leaves, snapshot.blocks()), strict=True)
    for parts, whole in zip(leaves, jax.tree.leaves(snapshot.trials), strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        assert whole.flags.writeable
    few = training.first(result.prepare(PROBLEMS["compiled"], CONFIG, 3, 5)).trials
    np.testing.assert_array_equal(snapshot.trials.state.key[:3], few.state.key)
