"""Policies on models, their episodes and their certificates' intervals beside the exact gap."""

from functools import partial

import jax
import numpy as np

from moac import momdp, simplex
from moac.momdp import sampling
from moac.policies import SoftmaxTable
from moac.theory.episodes import sampler
from moac.theory.gap import Look
from moac.theory.scores import Scores
from moac.training.trained import TrainedPolicy


def noisy_model(M, opposed=None, scale=1.0):
    """Six states, three actions, rewards with noise; with `opposed` = 0 every policy is stationary."""
    generator = np.random.default_rng(M)
    P, r = generator.dirichlet(np.ones(6), (6, 3)), generator.normal(size=(6, 3, M))
    if opposed is not None:
        r[..., -1] = -r[..., :-1].mean(axis=-1) + opposed * r[..., -1]
    noise = generator.normal(size=(6, 3, 6, M))
    rewards = r[:, :, None] + noise - np.einsum("sat,satm->sam", P, noise)[:, :, None]
    return momdp.FiniteMOMDP.from_dense(P, scale * rewards)


class Case:
    """A policy on a model."""

    def __init__(self, model, setting, scale=0.3, policy=None, theta=None):
        self.model, self.gamma = model, setting.discounts(model.num_objectives)
        self.policy = policy or SoftmaxTable(model.num_states, model.num_actions)
        if theta is None:
            theta = scale * np.random.default_rng(7).normal(size=(model.num_states, model.num_actions))
            theta = theta.astype(np.float32)
        self.one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], theta)
        self.trained = TrainedPolicy(self.policy, self.one, model.spec.observations, 0, setting)
        self.scores = Scores(self.policy, self.trained.trial_theta)
        self.exact = momdp.oracle.of_policy(
            model, sampling.action_probabilities(model, self.policy, self.one)[0], setting
        )

    @property
    def gradient(self):
        """True gradients in θ [M, P]."""
        rows = partial(sampling._theta_gradients, self.policy)
        return sampling._in_blocks(rows, self.one, self.exact.gradient[None])[0, :, :, 0]

    @property
    def gap(self):
        return float(simplex.min_norm(self.gradient).squared_norm)

    def episodes(self, count, seed=0):
        return sampler(self.model, self.trained, self.gamma, seed)(0, count)

    def look(self, count, seed=0):
        return Look(self.scores, self.episodes(count, seed), self.gamma, self.model.spec.reward_bound)

    def covered(self, count, repetitions, natural=False):
        """How many of the 95 % intervals hold the gap, which in the metric is another one each time."""
        hits, G, gap = 0, self.gradient, self.gap
        for seed in range(repetitions):
            look = self.look(count, seed)
            if natural:
                gap = float(simplex.min_norm_from_gram(G @ look.metric.solve(G).T).squared_norm)
            interval = (look.natural if natural else look.theta).interval(0.05)
            hits += interval.low <= gap * (1 + 1e-9) + 1e-14 and gap <= interval.high
        return hits
