"""Whole episodes of the real environment under a trained policy: what they return, and how they look."""

from __future__ import annotations

import math
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from moac.config import Average, Setting
from moac.envs import acting
from moac.envs.rollout import Copy, Interface, check_flags, described, packed, rewards_of, seeded_globally
from moac.training.trained import TrainedPolicy
from moac.types import Evaluation, SourceError

if TYPE_CHECKING:
    from moac.envs.environment import Environment

LONGEST = 10_000
"""An episode is followed for at most so many steps."""
_UNKNOWN = 1_000
"""What an episode is taken to cost where nothing is known: no time limit, and nothing played."""
_MARGIN = 1.5
"""An episode is taken to have at most so many times the steps of the longest one so far."""
_NEGLIGIBLE = 1e-4  # while training, discounted episodes are followed until their rewards count for less than this
_STREAM = 0x6D6F6163  # sets the seeds of evaluation apart from those of training


@dataclass(frozen=True, eq=False)
class Episodes:
    """E episodes, one after the other as their seeds are."""

    returns: Float[np.ndarray, "E M"]  # [E, M] Σ rⁱ
    discounted: Float[np.ndarray, "E M"]  # [E, M] Σ (γⁱ)ᵗ rⁱ
    lengths: Int[np.ndarray, " E"]  # [E] steps
    truncated: Bool[np.ndarray, " E"]  # [E] whether the episode was cut short, by a time limit or by us

    @property
    def steps(self) -> int:
        """Environment steps of all episodes together."""
        return int(self.lengths.sum())

    @classmethod
    def joined(cls, parts: Sequence[Episodes]) -> Episodes:
        """The episodes of all parts, one after the other."""
        columns = [np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)]
        return cls(*columns)


@contextmanager
def reused() -> Generator[list[Copy]]:
    """Copies of one environment, empty at first, that several calls of `play` share: to make them may take long."""
    copies: list[Copy] = []
    try:
        yield copies
    finally:
        for copy in copies:
            copy.close()


def play(
    environment: Environment,
    trained: TrainedPolicy,
    seeds: list[int],
    gamma: tuple[float, ...],
    longest: int = LONGEST,
    copies: list[Copy] | None = None,
) -> Episodes:
    """One episode per seed, side by side: in this process, or in a worker where a step has a time limit."""
    if environment.step_timeout is not None:
        return environment.play(trained, seeds, gamma, longest)
    with nullcontext(copies) if copies is not None else reused() as shared:
        return episodes(environment.interface, trained, seeds, gamma, longest, shared)


@dataclass(frozen=True)
class Following:
    """How episodes are followed and counted."""

    gamma: tuple[float, ...]  # of the discounted returns
    longest: int = LONGEST  # steps after which an episode is left


@dataclass(eq=False)
class Budget:
    """Environment steps that episodes may take, and how long they have turned out to be."""

    left: float = math.inf
    longest: int = 0  # steps of the longest episode so far; 0 before the first
    typical: float = 0.0  # mean length of episodes in training; 0 where it is not known
    taken: int = 0  # environment steps so far

    def fitting(self, limit: float) -> int:
        """How many episodes fit, of which none has more steps than `limit`.

        The longest one so far tells what an episode may cost. Before the first, at most one fits.
        """
        if math.isinf(self.left):
            return sys.maxsize
        cost = limit if limit < LONGEST else _UNKNOWN
        seen = self.longest or self.typical
        if seen > 0:
            cost = min(limit, _MARGIN * seen)
        fitting = int(max(self.left, 0.0) // cost)
        if self.longest == 0:
            return min(fitting, 1)
        return fitting

    def pay(self, episodes: Episodes) -> None:
        """Take off the steps of episodes that were played."""
        self.left -= episodes.steps
        self.taken += episodes.steps
        self.longest = max(self.longest, int(episodes.lengths.max()))

    def part(self, count: int) -> Budget:
        """An equal part for one of several policies."""
        return Budget(self.left / count, self.longest, self.typical)


def play_within(
    environment: Environment,
    trained: TrainedPolicy,
    seeds: list[int],
    following: Following,
    budget: Budget,
    copies: list[Copy],
) -> Episodes:
    """The first of these episodes, as many as the budget allows, and at least one."""
    limit = min(environment.interface.limit, following.longest)
    parts: list[Episodes] = []
    done = 0
    while done < len(seeds):
        fitting = budget.fitting(limit)
        if fitting == 0 and parts:
            break
        some = seeds[done : done + max(fitting, 1)]
        played = play(environment, trained, some, following.gamma, following.longest, copies)
        budget.pay(played)
        parts.append(played)
        done += len(some)
    return Episodes.joined(parts)


def episodes(
    interface: Interface,
    trained: TrainedPolicy,
    seeds: list[int],
    gamma: tuple[float, ...],
    longest: int,
    copies: list[Copy],
) -> Episodes:
    """The same in this process, in copies of which those that are missing are made."""
    interface = _drawing(interface, trained)
    with seeded_globally(seeds[0]):
        copies += [Copy(interface, number, seeds[number]) for number in range(len(copies), len(seeds))]
    with seeded_globally(seeds[0]):  # again: what copies draw as they are made does not count
        playing = copies[: len(seeds)]
        for copy, seed in zip(playing, seeds, strict=True):
            copy.begin(interface, seed)
        tables, truncated = _played(interface, trained, playing, seeds, longest)
    weight = [np.power(gamma, np.arange(len(table))[:, None]) for table in tables]
    return Episodes(
        np.stack([table.sum(axis=0, dtype=np.float64) for table in tables]),
        np.stack([(w * table).sum(axis=0) for w, table in zip(weight, tables, strict=True)]),
        np.array([len(table) for table in tables]),
        truncated,
    )


def _drawing(interface: Interface, trained: TrainedPolicy) -> Interface:
    """The interface for a policy: episodes draw preferences evenly where it takes them, and none where it has one."""
    return replace(interface, draw=acting.UNIFORM if trained.conditioned_on else None)


def _played(
    interface: Interface,
    trained: TrainedPolicy,
    copies: list[Copy],
    seeds: list[int],
    longest: float,
    frames: list[Any] | None = None,
) -> tuple[list[Float[np.ndarray, "T M"]], Bool[np.ndarray, " E"]]:
    """Rewards of each copy's episode, and whether it was cut short; one call acts for all that still go on.

    `frames` takes a picture of each step.
    """
    actor = _actor(interface, trained)
    generators = [np.random.default_rng([_STREAM, seed]) for seed in seeds]
    rewards: list[list[bytes]] = [[] for _ in seeds]
    truncated, active = np.zeros(len(seeds), dtype=bool), list(range(len(seeds)))
    while active:
        seen = [copies[k].read(trained.see, copies[k].observation, len(rewards[k])) for k in active]
        noise = acting.noise([generators[k] for k in active], interface.box)
        for k, action in zip(list(active), interface.given(actor(np.stack(seen), *noise)), strict=True):
            terminated, over = _step(copies[k], action, rewards[k], longest)
            truncated[k] = over and not terminated
            if terminated or over:
                active.remove(k)
            if frames is not None:
                frames.append(_picture(copies[k]))
    pairs = zip(copies, rewards, strict=True)
    return [rewards_of([copy], rows, len(rows), interface.num_objectives)[0] for copy, rows in pairs], truncated


def _actor(interface: Interface, trained: TrainedPolicy) -> acting.Actor:
    """One trial of trained policies, of an environment or of its exact model."""
    policy, theta, states = trained.policy, trained.trial_theta, trained.observations.num_states
    if interface.box is not None or states is None:
        return acting.of_policy(policy, theta, interface.box is not None)
    return acting.of_table(acting.table(policy, theta, states, interface.num_actions))


def _step(copy: Copy, action: Any, rewards: list[bytes], longest: float) -> tuple[bool, bool]:
    """One step: whether the episode has come to its end, and whether it is over because its time is."""
    try:
        copy.observation, reward, terminated, truncated, _ = copy.env.step(action)
        rewards.append(packed(reward))
        if terminated or truncated:
            check_flags(terminated, truncated)
    except BaseException as error:
        raise copy.raised(error, len(rewards)) from error
    return bool(terminated and not truncated), bool(truncated or len(rewards) >= min(copy.limit, longest))


def is_enough(environment: Environment, budget: Budget, trained: TrainedPolicy, setting: Setting) -> bool:
    """Whether an episode of each trial fits into the budget."""
    following = _following(setting.discounts(environment.spec.num_objectives))
    limit = min(environment.interface.limit, following.longest)
    return budget.part(trained.num_trials).fitting(limit) > 0


def while_training(environment: Environment, trained: TrainedPolicy, setting: Setting, budget: Budget) -> Evaluation:
    """Mean over a few episodes of each trial: discounted return, or reward per step.

    As many episodes are played as the budget allows, and at least one.
    """
    K = trained.num_trials
    following = _following(setting.discounts(environment.spec.num_objectives))
    returns: list[Any] = []
    with reused() as copies:
        for k in range(K):
            seeds = seeds_of(k, environment.evaluation_episodes)
            own = budget.part(K - k)
            played = play_within(environment, trained.of_trial(k), seeds, following, own, copies)
            budget.pay(played)
            if isinstance(setting, Average):
                returns.append(played.returns.sum(axis=0) / played.steps)
            else:
                returns.append(played.discounted.mean(axis=0))
    steps = budget.taken + environment.unreported_steps()
    unknown = (np.full(K, np.nan),) * 3
    return Evaluation(np.stack(returns), *unknown, kind="episodes", steps=steps, longest_episode=budget.longest)


def _following(gamma: tuple[float, ...]) -> Following:
    """Until rewards no longer count."""
    if max(gamma) == 1:
        return Following(gamma)
    negligible = math.ceil(math.log(_NEGLIGIBLE) / math.log(max(gamma)))
    return Following(gamma, min(LONGEST, negligible))


def seeds_of(stream: int, count: int) -> list[int]:
    """Distinct seeds of episodes, the same for the same stream, and none that training uses."""
    drawn = np.random.SeedSequence([_STREAM, stream]).generate_state(count, np.uint64)
    return [int(seed) % 2**31 for seed in drawn]


@dataclass(frozen=True, eq=False)
class Recording:
    """Some episodes."""

    # of each episode, pictures [h, w, 3], the first before the first step
    frames: list[list[UInt8[np.ndarray, "h w 3"]]]
    returns: list[list[float]]  # [E, M] undiscounted

    @property
    def lengths(self) -> list[int]:
        """[E] steps."""
        return [len(pictures) - 1 for pictures in self.frames]


def record(environment: Environment, trained: TrainedPolicy, count: int, seed: int, most_frames: int) -> Recording:
    """Whole episodes with seeds that follow each other, until there are so many, or enough pictures."""
    interface = _drawing(environment.interface, trained)
    copy, recording = _rendering(interface, environment.spec.name), Recording([], [])
    try:
        for number in range(seed, seed + count):
            left = most_frames - sum(map(len, recording.frames))
            if left <= 0:
                break
            with seeded_globally(number):
                copy.restart(seed=number)
                recording.frames.append([_picture(copy)])
                (table,), _ = _played(interface, trained, [copy], [number], left, recording.frames[-1])
            recording.returns.append(table.sum(axis=0, dtype=np.float64).tolist())
    finally:
        copy.close()
    return recording


def _rendering(interface: Interface, name: str) -> Copy:
    """A copy that renders pictures; a ValueError says why there is none."""
    try:
        make = partial(interface.make, render_mode="rgb_array")
        copy = Copy(replace(interface, make=make), 0, 0)
        if "rgb_array" not in (copy.env.metadata.get("render_modes") or ()):
            raise NotImplementedError("it renders no pictures (rgb_array)")
        _picture(copy)
    except Exception as error:  # drivers fail in ways of their own
        first = error.__cause__ if isinstance(error, SourceError) else None
        raise ValueError(f"{name} cannot be watched: {described(first or error)}.") from None
    return copy


def _picture(copy: Copy) -> UInt8[np.ndarray, "h w 3"]:
    try:
        return np.asarray(copy.env.render(), dtype=np.uint8)[..., :3]
    except BaseException as error:
        raise copy.raised(error, 0, "render") from error
