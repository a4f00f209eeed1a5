"""Episodes of one policy whose random ends and small deviations leave sums over them unbiased for discounted returns.

An episode survives each step with probability c = max γ, in place of an endless sum; rewards at age t count (γⁱ/c)ᵗ.
Actions are drawn from the policy with probability 1 − ε and uniformly with ε, ε = (1 − c)/4, with importance ratios for
what follows: otherwise actions that a saturated policy never takes would seem harmless. On a log its users stand for
episodes, with the gradients of the off-policy objective that training follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import softmax

from moac import beyond
from moac.envs import Environment, acting
from moac.envs.rollout import Copy, check_flags, packed, rewards_of, seeded_globally
from moac.logs import states
from moac.momdp import FiniteMOMDP
from moac.policies.observations import LogSpec
from moac.training.trained import TrainedPolicy

SPLIT = "validation"
"""Users of a log that training has not seen: the policy does not depend on them."""
_STREAM = 0x63657274  # sets these seeds apart from those of training and evaluation
_COPIES = 32  # copies of an environment that are stepped side by side
_SHARE = 0.25  # of the episodes, about, deviate from the policy once
_RIDGE = 1.0  # of least squares
_PROBED = 2000  # rows of a log whose smallest action probability is computed
_COLUMNS = ("observation", "action", "reward", "weight", "successor", "ended", "rarest", "cut")


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
    rarest: Float[np.ndarray, " N"]  # [N] the smallest action probability; 1 where actions are vectors
    cut: Bool[np.ndarray, " N"]  # [N] whether a time limit ended the episode here
    number: Int[np.ndarray, " N"]  # [N] of the episode, from 0
    count: int  # E
    summed: bool = True  # whether what comes later in an episode counts for a step; on a log V stands for it
    env_steps: int = 0  # steps of an environment that they took; none on a model or a log

    @property
    def x(self) -> tuple[Any, Any]:
        """Observations and actions."""
        return self.observation, self.action

    def part(self, first: int, last: int) -> Episodes:
        """Episodes `first` to `last` − 1."""
        a, b = np.searchsorted(self.number, (first, last))
        rows = {name: getattr(self, name)[a:b] for name in _COLUMNS}
        return replace(self, **rows, number=self.number[a:b] - first, count=last - first)

    def joined(self, more: Episodes) -> Episodes:
        """These episodes followed by more of them."""
        rows = {name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in _COLUMNS}
        number = np.concatenate([self.number, self.count + more.number])
        env_steps = self.env_steps + more.env_steps
        return replace(self, **rows, number=number, count=self.count + more.count, env_steps=env_steps)

    def per_episode(self, values: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, "E ..."]:
        """Sums over the steps of each episode."""
        return np.add.reduceat(values, np.searchsorted(self.number, np.arange(self.count)), axis=0, dtype=np.float64)

    def to_come(self, values: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
        """Sums from each step to the end of its episode."""
        after = np.cumsum(values[::-1], axis=0, dtype=np.float64)[::-1]
        last = np.searchsorted(self.number, self.number, side="right")
        return after - np.concatenate([after, np.zeros((1, values.shape[1]))])[last]

    def errors(self, V: Baseline, gamma: tuple[float, ...]) -> Float[np.ndarray, "N M"]:
        """weightⁱ (rⁱ + γⁱ V(s') − V(s)) of each step."""
        after = np.where(self.ended[:, None], 0.0, V(self.successor))
        return self.weight * (self.reward + np.array(gamma) * after - V(self.observation))

    def advantages(self, V: Baseline, gamma: tuple[float, ...]) -> Float[np.ndarray, "N M"]:
        """Aⁱ_t, the sum of errors from t to the episode's end: E Σ_t A_t ψ_t = ∇Jⁱ for any V."""
        errors = self.errors(V, gamma)
        return self.to_come(errors) if self.summed else errors


@dataclass(frozen=True, eq=False)
class Baseline:
    """V(s) by least squares: a value for each state, or 1, x and x² of vectors, with a small ridge towards the mean."""

    mean: Float[np.ndarray, " M"]
    table: Float[np.ndarray, "d M"]

    @classmethod
    def of(cls, episodes: Episodes, gamma: tuple[float, ...]) -> Baseline:
        """The baseline fitted to the discounted sums that followed each step; it is used on other episodes."""
        if not episodes.summed:
            return cls(np.zeros(len(gamma)), _temporal_differences(episodes, gamma))
        age = np.arange(len(episodes.number)) - np.searchsorted(episodes.number, episodes.number)
        decay = _decay(age, gamma)
        target = episodes.to_come(decay * episodes.reward) / decay
        mean, x = target.mean(axis=0), episodes.observation
        if x.ndim == 1:
            size = int(max(x.max(), episodes.successor.max())) + 1
            total = np.stack([np.bincount(x, column, size) for column in (target - mean).T], axis=1)
            return cls(mean, total / (np.bincount(x, minlength=size)[:, None] + _RIDGE))
        phi = _powers(x)
        gram = phi.T @ phi + _RIDGE * np.eye(phi.shape[1])
        return cls(mean, np.linalg.solve(gram, phi.T @ (target - mean)))

    def __call__(self, x: Any) -> Float[np.ndarray, "n M"]:
        """V(x); the mean for a state that was never visited."""
        if x.ndim > 1:
            return self.mean + _powers(x) @ self.table
        known = x < len(self.table)
        return self.mean + np.where(known[:, None], self.table[np.where(known, x, 0)], 0.0)


def _temporal_differences(episodes: Episodes, gamma: tuple[float, ...]) -> Float[np.ndarray, "d M"]:
    """V of a log, by least squares with importance ratios (Bradtke and Barto, 1996)."""
    phi, after = _powers(episodes.observation), _powers(episodes.successor)
    after, ridge = np.where(episodes.ended[:, None], 0.0, after), _RIDGE * np.eye(phi.shape[1])
    weighted = phi * (episodes.weight[:, :1] / episodes.weight[:, 0].mean())
    columns = zip(gamma, (weighted.T @ episodes.reward).T, strict=True)
    return np.stack([np.linalg.solve(weighted.T @ (phi - g * after) + ridge, b) for g, b in columns], axis=1)


def _powers(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2d+1"]:
    """1, x and x²."""
    x = x.astype(np.float64)
    return np.concatenate([np.ones((len(x), 1)), x, x**2], axis=1)


def _decay(age: Int[np.ndarray, " N"], gamma: tuple[float, ...]) -> Float[np.ndarray, "N M"]:
    """(γⁱ/c)ᵗ."""
    return np.exp(age[:, None] * np.log(np.array(gamma) / max(gamma)))


Sampler = Callable[[int, int], Episodes]
"""(first, count) ↦ episodes of these numbers; the same numbers are the same episodes."""


def sampler(source: Any, trained: TrainedPolicy, gamma: tuple[float, ...], seed: int, cap: float = 10.0) -> Sampler:
    """The sampler of a model, an environment or a log, whose importance ratios are at most `cap`."""
    if isinstance(source.spec.observations, LogSpec):
        return _of_log(source, trained, cap, seed)
    act = _actor(source, trained, max(gamma))

    def sample(first: int, count: int) -> Episodes:
        generator = np.random.default_rng([_STREAM, seed, first, count])
        if isinstance(source, FiniteMOMDP):
            return _gathered(_played(_Model(source, generator), act, max(gamma), range(count)), gamma)
        with seeded_globally(int(generator.integers(2**32))):
            copies = _Copies(source, trained, generator, min(_COPIES, count))
            waves = [range(k, min(k + _COPIES, count)) for k in range(0, count, _COPIES)]
            steps = [step for wave in waves for step in _played(copies, act, max(gamma), wave)]
            copies.close()
        episodes = _gathered(steps, gamma)
        return replace(episodes, env_steps=len(episodes.number) + source.unreported_steps())

    return sample


class _Model:
    """Any number of episodes of a model side by side; it has no time limit."""

    def __init__(self, model: FiniteMOMDP, generator: np.random.Generator) -> None:
        self.generator, self._model = generator, model
        self._outcomes = np.cumsum(model.probability, axis=2)[:, :, :-1]

    def start(self, count: int) -> Any:
        """First observations."""
        start = np.cumsum(self._model.start_distribution)[:-1]
        return np.searchsorted(start, self.generator.random(count), side="right").astype(np.int32)

    def step(self, places: Any, x: Any, a: Any) -> tuple[Any, ...]:
        """Rewards, successors, whether episodes ended, and whether by a time limit."""
        o = (self.generator.random(len(places))[:, None] >= self._outcomes[x, a]).sum(axis=1)
        after, ended = self._model.next_state[x, a, o].astype(np.int32), self._model.terminated[x, a, o]
        return self._model.reward[x, a, o], after, ended, np.zeros(len(places), dtype=bool)


class _Copies:
    """One episode on each copy of the environment at a time; its time limit ends an episode."""

    def __init__(self, environment: Environment, trained: TrainedPolicy, generator: Any, count: int) -> None:
        self.generator, self._see = generator, trained.see
        self._interface = replace(environment.interface, draw=None)
        self._copies = [Copy(self._interface, number, number) for number in range(count)]

    def close(self) -> None:
        """Close the copies."""
        for copy in self._copies:
            copy.close()

    def start(self, count: int) -> Any:
        """First observations."""
        seeds = self.generator.integers(2**31, size=count).tolist()
        return np.stack([c.read(self._see, c.restart(seed=s), 0) for c, s in zip(self._copies, seeds, strict=False)])

    def step(self, places: Any, _: Any, a: Any) -> tuple[Any, ...]:
        """Rewards, successors, whether episodes ended, and whether by a time limit."""
        copies, rows, ends = [self._copies[k] for k in places], list[bytes](), list[tuple[bool, bool]]()
        for copy, action in zip(copies, self._interface.given(a), strict=True):
            try:
                copy.observation, reward, terminated, truncated, _ = copy.env.step(action)
                rows.append(packed(reward))
                if terminated or truncated:
                    check_flags(terminated, truncated)
            except BaseException as error:
                raise copy.raised(error, 0) from error
            copy.elapsed += 1
            over = bool(truncated) or copy.elapsed >= copy.limit
            ends.append((bool(terminated) or over, over and not terminated))
        reward = rewards_of(copies, rows, 1, self._interface.num_objectives)[:, 0]
        after = np.stack([copy.read(self._see, copy.observation, 0) for copy in copies])
        for copy in copies:
            copy.steps += 1
        return reward.astype(np.float64), after, *np.array(ends).T


def _played(world: _Model | _Copies, act: Any, c: float, numbers: range) -> list[tuple[Any, ...]]:
    """The steps of episodes played side by side, one tuple of columns for each time."""
    places, ratio, steps = np.arange(len(numbers)), np.ones(len(numbers)), list[tuple[Any, ...]]()
    x = world.start(len(numbers))
    while len(places):
        a, ratios, rarest = act(x, world.generator)
        ratio = ratio * ratios
        reward, after, ended, cut = world.step(places, x, a)
        age = np.full(len(places), len(steps))
        steps.append((x, a, reward, ratio, after, ended, numbers.start + places, age, rarest, cut))
        on = ~ended & (world.generator.random(len(places)) < c)
        places, x, ratio = places[on], after[on], ratio[on]
    return steps


def _gathered(steps: list[tuple[Any, ...]], gamma: tuple[float, ...]) -> Episodes:
    """The steps sorted by episode."""
    columns = [np.concatenate(column) for column in zip(*steps, strict=True)]
    order = np.argsort(columns[6], kind="stable")
    x, a, reward, ratio, after, ended, number, age, rarest, cut = (column[order] for column in columns)
    weight = ratio[:, None] * _decay(age, gamma)
    return Episodes(x, a, reward, weight, after, ended, rarest, cut, number, int(number[-1]) + 1)


def _actor(source: Any, trained: TrainedPolicy, c: float) -> Callable[[Any, np.random.Generator], tuple[Any, Any, Any]]:
    """The function (observations, generator) ↦ actions, their importance ratios, the smallest action probabilities."""
    policy, theta, box, A = trained.policy, trained.trial_theta, source.spec.action_box, source.spec.num_actions
    if box is not None:
        draw = acting.of_policy(policy, theta, continuous=True)
        return lambda x, g: (draw(x, *acting.noise([g] * len(x), box)), np.ones(len(x)), np.ones(len(x)))
    num_states, epsilon = trained.observations.num_states, _SHARE * (1 - c)
    table = None if num_states is None else acting.table(policy, theta, num_states, A)

    def act(x: Any, generator: np.random.Generator) -> tuple[Any, Any, Any]:
        p = softmax((trained.logits(x, A) if table is None else table[x]).astype(np.float64), axis=1)
        mixed = (1 - epsilon) * p + epsilon / A
        total = np.cumsum(mixed[:, :-1], axis=1)
        a = (generator.random(len(x))[:, None] >= total).sum(axis=1).astype(np.int32)
        row = np.arange(len(a))
        return a, p[row, a] / mixed[row, a], p.min(axis=1)

    return act


def users(dataset: Any) -> Int[np.ndarray, " U"]:
    """The users of a log whose rows are used."""
    return np.unique(dataset.user[dataset.rows(SPLIT)])


def _of_log(dataset: Any, trained: TrainedPolicy, cap: float, seed: int) -> Sampler:
    """Users in random order, each with its rows: E x = E min{C, π/π_b} (rⁱ + γⁱ V(s') − V(s)) ψ."""
    rows, known_users = dataset.rows(SPLIT), users(dataset)
    order, mean = np.random.default_rng(seed).permutation(known_users), len(rows) / len(known_users)

    def sample(first: int, count: int) -> Episodes:
        place = np.full(dataset.num_users, -1)
        place[order[first : first + count]] = np.arange(count)
        number = place[dataset.user[rows]]
        picked = np.argsort(number, kind="stable")[(number < 0).sum() :]
        batch = states.with_features(dataset.data, states.transitions(dataset.data, jnp.asarray(rows[picked])))
        batch = beyond.with_ratios(trained.policy, cap, trained.trial_theta, batch)
        names = ("observation", "action", "reward", "next_observation", "terminated", "weight")
        x, action, reward, after, ended, ratio = (np.asarray(getattr(batch, name)) for name in names)
        weight = np.repeat(ratio[:, None].astype(np.float64) / mean, reward.shape[1], axis=1)
        rarest, cut = np.ones(len(x)), np.zeros(len(x), dtype=bool)
        rarest[:_PROBED] = softmax(trained.logits(x[:_PROBED]), axis=1).min(axis=1)
        return Episodes(x, action, reward, weight, after, ended, rarest, cut, number[picked], count, summed=False)

    return sample
