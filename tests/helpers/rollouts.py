"""Rollouts of small environments under an untrained policy."""

import jax
import numpy as np

import moac
from moac import envs
from moac.training import result
from moac.types import Sampling
from tests.helpers.environments import Line

SIZES = Sampling(num_critic_steps=3, critic_batch_size=8, actor_batch_size=16, average=False, survival=None)
KEY = np.array([1, 2], np.uint32)


def sampled(environment, sizes=SIZES, theta=None, times=1):
    """Batches of an untrained policy, all transitions in one row, of the last of several iterations."""
    run = result.prepare(environment, moac.Config(num_iterations=1, learner="paper"), 1, 0)
    theta = run.parts.policy.init(None) if theta is None else theta
    chain = environment.start(KEY)
    for k in range(times):
        chain, critic, actor = environment.sample(chain, run.parts.policy, theta, np.array([k, 5], np.uint32), sizes)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), critic)
    return jax.tree.map(lambda a, b: np.concatenate([a, b]), flat, actor)


def places(observation):
    """Where on the line: a state, or a vector scaled to [0, 1]."""
    return observation if observation.ndim == 1 else observation[:, 0] * 4


def copies(array, n):
    """[n, T] of what stands side by side."""
    return np.asarray(array).reshape(-1, n, *np.shape(array)[1:]).swapaxes(0, 1)


def always_right(kind):
    """Logits of a table, or weights of the features of a vector: tiles, of which some are 1 everywhere."""
    rows = (
        5
        if kind is Line
        else result.prepare(envs.make(kind), moac.Config(learner="paper"), 1, 0).parts.policy.init(None).shape[0]
    )
    return np.array([[0.0, 50.0]] * rows, np.float32)
