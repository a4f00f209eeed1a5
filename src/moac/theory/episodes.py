"""Episodes of one policy whose random ends and small deviations leave sums over them unbiased for discounted returns.

An episode survives each step with probability c = max γ, in place of an endless sum; rewards at age t count (γⁱ/c)ᵗ.
Of A actions the policy's own is drawn with probability 1 − ε and any with ε, ε = (1 − c)/4, and what follows counts by
the exact ratio of both: actions that a saturated policy never takes would else be taken for harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import softmax

from moac.envs import Environment, acting
from moac.envs.rollout import Copy, packed, seeded_globally
from moac.momdp import FiniteMOMDP
from moac.momdp.sampling import action_probabilities
from moac.policies import OnHost, log_probs
from moac.training.trained import TrainedPolicy
from moac.types import SourceError

_STREAM = 0x63657274
"""Sets these seeds apart from those of training and evaluation."""
_COPIES = 32
"""Copies of an environment that are stepped side by side."""
_SHARE = 0.25
"""Of the episodes, about, deviate from the policy once."""
_RIDGE = 1.0
_COLUMNS = ("observation", "action", "reward", "weight", "successor", "ended")


@dataclass(frozen=True, eq=False)
class Episodes:
    """E episodes of one policy, N steps in all, one episode after the other."""

    observation: Any  # as the policy sees it, leading axis [N]
    action: Any  # [N, …]
    reward: Float[np.ndarray, "N M"]  # [N, M]
    # [N, M] (γⁱ/c)ᵗ times the ratios of the episode so far; a mean over episodes then is one of the policy
    weight: Float[np.ndarray, "N M"]
    successor: Any  # the next observation, also of the last step
    ended: Bool[np.ndarray, " N"]  # [N] the successor is worth 0
    number: Int[np.ndarray, " N"]  # [N] of the episode, from 0
    count: int  # E
    rarest: float  # the smallest action probability in the visited states; 1 where actions are vectors
    cut: float  # share of episodes that a time limit ended
    summed: bool = True  # whether what comes later in an episode counts for a step; on a log V stands for it

    @property
    def x(self) -> tuple[Any, Any]:
        """Observations and actions."""
        return self.observation, self.action

    def part(self, first: int, last: int) -> Episodes:
        """Episodes `first` to `last` − 1."""
        a, b = np.searchsorted(self.number, (first, last))
        rows = {name: jax.tree.map(lambda x: x[a:b], getattr(self, name)) for name in _COLUMNS}
        return replace(self, **rows, number=self.number[a:b] - first, count=last - first)

    def joined(self, more: Episodes) -> Episodes:
        """These, and more of them."""
        pairs = {name: (getattr(self, name), getattr(more, name)) for name in _COLUMNS}
        rows = {name: jax.tree.map(lambda *x: np.concatenate(x), *pair) for name, pair in pairs.items()}
        total, number = self.count + more.count, np.concatenate([self.number, self.count + more.number])
        cut = (self.cut * self.count + more.cut * more.count) / total
        return replace(self, **rows, number=number, count=total, rarest=min(self.rarest, more.rarest), cut=cut)

    def per_episode(self, values: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, "E ..."]:
        """Sums over the steps of each episode."""
        return np.add.reduceat(values, np.searchsorted(self.number, np.arange(self.count)), axis=0, dtype=np.float64)

    def to_come(self, values: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
        """Sums from each step to the end of its episode."""
        after = np.cumsum(values[::-1], axis=0, dtype=np.float64)[::-1]
        last = np.searchsorted(self.number, self.number, side="right")
        return after - np.concatenate([after, np.zeros((1, values.shape[1]))])[last]

    def advantages(self, V: Baseline, gamma: tuple[float, ...]) -> Float[np.ndarray, "N M"]:
        """Aⁱ_t = Σ_{k ≥ t} weightⁱ_k (rⁱ + γⁱ V(s') − V(s)) to the episode's end: E Σ_t A_t ψ_t = ∇Jⁱ for any V."""
        errors = self._errors(V, gamma)
        return self.to_come(errors) if self.summed else errors

    def innovations(self, V: Baseline, gamma: tuple[float, ...]) -> Float[np.ndarray, "E M"]:
        """Root of the sum of squares of each episode's terms: what it tells beyond V."""
        return np.sqrt(self.per_episode(self._errors(V, gamma) ** 2))

    def _errors(self, V: Baseline, gamma: tuple[float, ...]) -> Float[np.ndarray, "N M"]:
        after = np.where(self.ended[:, None], 0.0, V(self.successor))
        return self.weight * (self.reward + np.array(gamma) * after - V(self.observation))


@dataclass(frozen=True, eq=False)
class Baseline:
    """V(s) by least squares: a value for each state, or 1, x and x² of vectors, with a small ridge towards the mean."""

    mean: Float[np.ndarray, " M"]
    table: Float[np.ndarray, "d M"]

    @classmethod
    def of(cls, episodes: Episodes, gamma: tuple[float, ...]) -> Baseline:
        """Fitted to the discounted sums that followed each step, which other episodes then are compared with."""
        ratio = np.log(np.array(gamma) / max(gamma))
        age = np.arange(len(episodes.number)) - np.searchsorted(episodes.number, episodes.number)
        decay = np.exp(age[:, None] * ratio)
        target = episodes.to_come(decay * episodes.reward) / decay
        mean, x = target.mean(axis=0), episodes.observation
        if x.ndim == 1:
            size = int(max(x.max(), episodes.successor.max())) + 1
            total = np.stack([np.bincount(x, column, size) for column in (target - mean).T], axis=1)
            return cls(mean, total / (np.bincount(x, minlength=size)[:, None] + _RIDGE))
        phi = powers(x)
        gram = phi.T @ phi + _RIDGE * np.eye(phi.shape[1])
        return cls(mean, np.linalg.solve(gram, phi.T @ (target - mean)))

    def __call__(self, x: Any) -> Float[np.ndarray, "n M"]:
        """V; of a state that was never seen the mean."""
        if x.ndim > 1:
            return self.mean + powers(x) @ self.table
        known = x < len(self.table)
        return self.mean + np.where(known[:, None], self.table[np.where(known, x, 0)], 0.0)


def powers(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2d+1"]:
    """1, x and x²."""
    x = x.astype(np.float64)
    return np.concatenate([np.ones((len(x), 1)), x, x**2], axis=1)


def sampler(source: Any, trained: TrainedPolicy, gamma: tuple[float, ...], seed: int) -> Callable[[int, int], Episodes]:
    """(first, count) ↦ episodes of that number; the same numbers are the same episodes."""
    stream = [_STREAM, seed]
    if not isinstance(source, FiniteMOMDP):
        return lambda first, count: _of_environment(source, trained, gamma, [*stream, first, count])
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], trained.trial_theta)
    pi = action_probabilities(source, trained.policy, one)[0]
    return lambda first, count: _of_model(source, pi, gamma, [*stream, first, count])


def _mixed(p: Float[np.ndarray, "n A"], c: float) -> Float[np.ndarray, "n A"]:
    epsilon = _SHARE * (1 - c)
    return (1 - epsilon) * p + epsilon / p.shape[-1]


def _of_model(model: FiniteMOMDP, pi: Float[np.ndarray, "S A"], gamma: tuple[float, ...], seed: list[int]) -> Episodes:
    """From the tables of a model, which has no time limit; all episodes side by side."""
    generator, count, c = np.random.default_rng(seed), seed[-1], max(gamma)
    mixed, outcomes = _mixed(pi, c), model.num_outcomes
    joint = np.cumsum((mixed[:, :, None] * model.probability).reshape(len(pi), -1), axis=1)
    joint /= joint[:, -1:]
    state = np.searchsorted(np.cumsum(model.start_distribution)[:-1], generator.random(count), side="right")
    number, ratio, columns, age = np.arange(count), np.ones(count), list[tuple[Any, ...]](), 0
    while len(number):
        place = (generator.random(len(number))[:, None] >= joint[state, :-1]).sum(axis=1)
        a, o = place // outcomes, place % outcomes
        ratio = ratio * pi[state, a] / mixed[state, a]
        ended, after = model.terminated[state, a, o], model.next_state[state, a, o]
        columns.append((number, state, a, model.reward[state, a, o], ratio, after, ended, np.full(len(a), age)))
        on = ~ended & (generator.random(len(number)) < c)
        number, state, ratio, age = number[on], after[on], ratio[on], age + 1
    flat = [np.concatenate(column) for column in zip(*columns, strict=True)]
    order = np.argsort(flat[0], kind="stable")
    number, x, a, reward, ratio, after, ended, ages = (column[order] for column in flat)
    weight = ratio[:, None] * _decay(ages, gamma)
    visited = (x.astype(np.int32), a.astype(np.int32), reward, weight, after.astype(np.int32), ended)
    return Episodes(*visited, number, count, float(pi[np.unique(x)].min()), 0.0)


def _decay(age: Int[np.ndarray, " N"], gamma: tuple[float, ...]) -> Float[np.ndarray, "N M"]:
    """(γⁱ/c)ᵗ."""
    return np.exp(age[:, None] * np.log(np.array(gamma) / max(gamma)))


def _of_environment(
    environment: Environment, trained: TrainedPolicy, gamma: tuple[float, ...], seed: list[int]
) -> Episodes:
    """Of the real environment, some copies side by side; its time limit ends an episode for good."""
    count, c, interface = seed[-1], max(gamma), environment.interface
    seeds = np.random.SeedSequence(seed).generate_state(count).tolist()
    kept: list[list[tuple[Any, ...]]] = [[] for _ in seeds]
    draw, cut = _actor(environment, trained, c), 0
    with seeded_globally(seeds[0]):
        copies = [Copy(interface, number, seeds[number]) for number in range(min(_COPIES, count))]
        generators = [np.random.default_rng(each) for each in seeds]
        playing, waiting = dict(enumerate(copies)), iter(range(len(copies), count))
        seen = {e: copy.read(trained.see, copy.observation, 0) for e, copy in playing.items()}
        while playing:
            numbers = list(playing)
            actions, ratios, rarest = draw(np.stack([seen[e] for e in numbers]), [generators[e] for e in numbers])
            for k, (e, given) in enumerate(zip(numbers, interface.given(actions), strict=True)):
                copy = playing[e]
                try:
                    copy.observation, reward, terminated, truncated, _ = copy.env.step(given)
                    row = packed(reward)
                except Exception as error:
                    raise copy.raised(error, len(kept[e])) from error
                copy.steps, copy.elapsed = copy.steps + 1, copy.elapsed + 1
                here, seen[e] = seen[e], copy.read(trained.see, copy.observation, 0)
                over = bool(truncated) or copy.elapsed >= copy.limit
                kept[e].append((here, actions[k], row, ratios[k], seen[e], terminated or over, rarest[k]))
                if not (terminated or over) and generators[e].random() < c:
                    continue
                cut += over and not terminated
                del playing[e]
                if (following := next(waiting, None)) is not None:
                    copy.restart(seed=seeds[following])
                    playing[following], seen[following] = copy, copy.read(trained.see, copy.observation, 0)
        for copy in copies:
            copy.env.close()
    return _gathered(environment, kept, gamma, cut / count)


def _gathered(
    environment: Environment, kept: list[list[tuple[Any, ...]]], gamma: tuple[float, ...], cut: float
) -> Episodes:
    """Steps of all episodes as arrays."""
    steps = [step for episode in kept for step in episode]
    here, action, rows, _, after, ended, rarest = zip(*steps, strict=True)
    lengths, M = [len(episode) for episode in kept], environment.spec.num_objectives
    reward = np.stack([np.frombuffer(row, np.float32) for row in rows]).astype(np.float64)
    if reward.shape[1] != M or not np.isfinite(reward).all():
        raise SourceError(f"the environment's rewards must be {M} finite numbers.")
    age = np.concatenate([np.arange(length) for length in lengths])
    path = np.concatenate([np.cumprod([step[3] for step in episode]) for episode in kept])
    x, y, a = (np.stack(column) for column in (here, after, action))
    number = np.repeat(np.arange(len(kept)), lengths)
    weight = path[:, None] * _decay(age, gamma)
    return Episodes(x, a, reward, weight, y, np.array(ended, dtype=bool), number, len(kept), float(min(rarest)), cut)


def _actor(environment: Environment, trained: TrainedPolicy, c: float) -> Callable[[Any, Any], tuple[Any, Any, Any]]:
    """Observations and generators ↦ actions, their ratios of the policy to what was drawn from, smallest chances."""
    box, theta = environment.interface.box, trained.trial_theta
    if box is not None:
        act = acting.of_policy(trained.policy, theta, continuous=True)

        def continuous(x: Any, generators: Any) -> tuple[Any, Any, Any]:
            return act(x, *acting.noise(generators, box)), np.ones(len(x)), np.ones(len(x))

        return continuous
    logits = _logits(trained, environment.interface.num_actions)

    def discrete(x: Any, generators: Any) -> tuple[Any, Any, Any]:
        p = softmax(logits(x).astype(np.float64), axis=1)
        mixed = _mixed(p, c)
        total = np.cumsum(mixed, axis=1)
        uniform = np.array([generator.random() for generator in generators])
        a = (uniform[:, None] >= total[:, :-1] / total[:, -1:]).sum(axis=1)
        row = np.arange(len(a))
        return a.astype(np.int32), p[row, a] / mixed[row, a], p.min(axis=1)

    return discrete


def _logits(trained: TrainedPolicy, num_actions: int) -> Callable[[Any], Any]:
    """Observations [n, …] ↦ logits [n, A]."""
    policy, theta, states = trained.policy, trained.trial_theta, trained.observations.num_states
    if states is not None:
        table = acting.table(policy, theta, states, num_actions)
        return lambda x: table[x]
    if isinstance(policy, OnHost):
        host = jax.tree.map(np.asarray, theta)
        return lambda x: policy.logits(host, x)
    compiled = jax.jit(lambda theta, x: log_probs(policy, theta, x, num_actions))
    return lambda x: np.asarray(compiled(theta, x))
