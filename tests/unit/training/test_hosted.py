"""Runs on environments that are continued: new episodes, nothing learned is lost."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import Config, envs, training, weighting
from moac.training import result
from tests.helpers.environments import Line, Unbounded

CONFIG = Config(
    num_iterations=6,
    num_critic_steps=1,
    critic_batch_size=4,
    actor_batch_size=4,
    num_evaluations=6,
    evaluation_share=1e3,
)


@lru_cache
def environment(kind):
    """One environment of a kind, since each compiles programs of its own."""
    return envs.make(kind, num_envs=2, evaluation_episodes=1)


def run_on(kind, **given):
    return result.prepare(environment(kind), CONFIG, 2, 5, given)


@lru_cache
def snapshots_on(kind):
    return tuple(training.iterate(run_on(kind)))


def same(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


@pytest.mark.parametrize("kind", [Line, Unbounded], ids=["states", "running scale"])
def test_two_resumes_of_one_snapshot_agree_bit_for_bit(kind):
    third = snapshots_on(kind)[2]
    once, again = (list(training.iterate(run_on(kind), third)) for _ in range(2))
    assert [snapshot.iteration for snapshot in once] == [4, 5, 6]
    assert same(once[-1].trials, again[-1].trials)
    assert same(once[-1].history.arrays(), again[-1].history.arrays())
    assert same(once[-1].history.returns[:, :3], third.history.returns)


def test_what_chains_have_learned_goes_on():
    run, third = run_on(Unbounded), snapshots_on(Unbounded)[2]
    assert third.trials.chain["count"].tolist() == [3 * 8] * 2
    fourth = next(training.iterate(run, third))
    assert fourth.trials.chain["count"].tolist() == [4 * 8] * 2
    assert int(fourth.trials.state.t[0]) == 4


def test_seeds_follow_from_the_iteration(monkeypatch):
    """A trial starts with other episodes than at first, and with others after each iteration and in each stage."""
    run, seen, snapshots = run_on(Unbounded), [], snapshots_on(Unbounded)
    start = run.source.start
    monkeypatch.setattr(
        run.source, "start", lambda key, memory=None: seen.append(np.asarray(key).tolist()) or start(key, memory)
    )
    next(training.iterate(run))
    for snapshot in (snapshots[0], snapshots[3], snapshots[3], snapshots[4].as_start(), snapshots[5].as_start()):
        next(training.iterate(run, snapshot))
    trials = [seen[k : k + 2] for k in range(0, 12, 2)]
    assert trials[2] == trials[3]
    assert len({tuple(key) for pair in trials for key in pair}) == 10


def test_a_trial_that_has_stopped_logs_the_same_after_a_resume():
    """It takes no step, so there are no weights and no gradients; its returns stay what they were."""
    breaks = weighting.Rule(lambda M: (), lambda state, K, t: (state, jnp.where(t == 2, jnp.nan, 0.5) + 0 * K[0]))
    run = run_on(Line, rule=breaks)
    snapshots = list(training.iterate(run))
    assert snapshots[-1].trials.stopped.tolist() == [2, 2]
    assert np.isnan(snapshots[-1].history.min_norm_weights[:, 1:]).all()
    *_, resumed = training.iterate(run, snapshots[2])
    assert same(snapshots[-1].history.arrays(), resumed.history.arrays())
