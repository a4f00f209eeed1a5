"""Policies and logs for tests of what trained policies are worth."""

from dataclasses import dataclass, replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import moac
from moac.kuairand import generate
from moac.offline.behaviour import BehaviourModel, Member, Options, identity
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.run import History
from moac.training.trained import TrainedPolicy

MODEL = generate.UserModel.of(seed=0, num_videos=12)
HIDDEN = (4,)


@dataclass(frozen=True)
class ByKindAndTab:
    """A policy of generated logs: θ [Z, C, V] are logits of a user's kind and a request's tab."""

    kinds: int
    tabs: int
    num_actions: int

    def log_prob(self, theta, x, action):
        kind = jnp.argmax(x[: self.kinds])
        tab = jnp.argmax(x[self.kinds : self.kinds + self.tabs])
        return jax.nn.log_softmax(theta[kind, tab])[action]


def tabulated(dataset, *tables):
    """A method whose training seeds are the tables [Z, C, V] of probabilities."""
    (tabs,) = dataset.tables.context_sizes
    kinds = dataset.tables.users.shape[1]
    return ByKindAndTab(kinds, tabs, dataset.num_actions), np.log(np.stack(tables))[:, :, :tabs].astype(np.float32)


def without(dataset, signal):
    """The same rows, in which a signal never fires."""
    reward = np.array(dataset.reward)
    reward[:, dataset.signal_names.index(signal)] = 0
    return replace(dataset, reward=reward)


def modelled(dataset, seed=0):
    """The dataset with the propensities of a network that nobody has fitted."""
    policy = SoftmaxMLP(Plain(dataset.num_features), HIDDEN, dataset.num_actions)
    rng, widths = np.random.default_rng(seed), (dataset.num_features, *HIDDEN, dataset.num_actions)
    shapes = [(rows + 1, columns) for rows, columns in pairwise(widths)]
    draws = [tuple(np.float32(rng.normal(0, shape[0] ** -0.5, shape)) for shape in shapes) for _ in range(3)]
    members = tuple(Member(own, 1.0, 0, (0.0, 0.0)) for own in draws)
    return dataset.with_behaviour(
        BehaviourModel(policy, members, Options(hidden=HIDDEN, max_rounds=2), identity(dataset))
    )


def moved(filled, by, trials=2):
    """Behavior-Clone with its weights moved at random, as a method of several seeds."""
    rng, policy = np.random.default_rng(5), filled.behaviour.policy
    stacked = tuple(np.stack([W] * trials) for W in filled.behaviour.clone)
    return policy, tuple((W + by * rng.standard_normal(W.shape)).astype(np.float32) for W in stacked)


def saved(filled, folder):
    """The folder of a run on a log whose policies are moved ones: everything but the training is real."""
    config = moac.Config(num_iterations=3, num_critic_steps=1, critic_batch_size=8, actor_batch_size=8)
    run = result.prepare(filled, config, trials=2, seed=0)
    policy, theta = moved(filled, 0.1)
    trained = TrainedPolicy.of(policy, theta, filled.spec, None, config.setting)
    M = filled.num_signals
    cube, square = np.full((2, 2, M), 1 / M), np.ones((2, 2))
    history = History(np.array([1, 3]), cube, cube, cube, *[square] * 5, np.zeros(2), kind="ncis")
    RunDirectory.create(folder, run).finish(
        result.Result(run, 3, history, trained, trained, np.ones(2, int), np.zeros(2, int))
    )
    return folder
