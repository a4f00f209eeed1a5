"""Runs, snapshots and results made by hand: nothing is trained or compiled."""

import jax
import jax.numpy as jnp
import numpy as np

from moac import Config, momdp, training
from moac.training import result
from moac.training.run import History

K, S, A, M = 2, 5, 3, 2
CONFIG = Config(num_iterations=9, num_critic_steps=1, critic_batch_size=2, actor_batch_size=2)
MODEL = momdp.library.random_ergodic(jax.random.key(0), num_states=S, num_actions=A, num_objectives=M)


class OwnPolicy:
    """Parameters in two leaves."""

    def init(self, key):  # noqa: ARG002
        return {"bias": jnp.zeros(A), "table": jnp.zeros((S, A))}

    def sample(self, theta, observation, key):
        return jax.random.categorical(key, theta["table"][observation] + theta["bias"])

    def log_prob(self, theta, observation, action):
        return jax.nn.log_softmax(theta["table"][observation] + theta["bias"])[action]


def run_of(config=CONFIG, given=None, model=MODEL):
    return result.prepare(model, config, K, 4, given)


def history_of(length):
    cube, square = np.full((K, length, M), 0.5), np.full((K, length), 0.25)
    return History(np.arange(1, length + 1), cube, cube, cube, *(square,) * 5, np.arange(length))


def snapshot_of(run, iteration, length=3):
    rng = np.random.default_rng(iteration)
    arrays = jax.tree.map(lambda leaf: rng.integers(0, 9, leaf.shape).astype(leaf.dtype), training.template(run))
    return training.Snapshot.of(iteration, arrays, history_of(length))


def outcome_of(run, iteration=9):
    return result.Result.of(run, snapshot_of(run, iteration))


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))
