"""Whole episodes of the real environment under a trained policy: what they return, and how they look."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from moac.config import Average, Setting
from moac.envs import acting
from moac.envs.rollout import Copy, Interface, described, packed, rewards_of, seeded_globally
from moac.training.trained import TrainedPolicy
from moac.types import Evaluation, Params, Policy

if TYPE_CHECKING:
    from moac.envs.environment import Environment

LONGEST = 10_000
"""An episode is followed for at most so many steps."""
_NEGLIGIBLE = 1e-4
"""While training, discounted episodes are followed until their rewards count for less than this."""
_STREAM = 0x6D6F6163
"""Sets the seeds of evaluation apart from those of training."""


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """E episodes, one after the other as their seeds are.

    Attributes:
        returns: [E, M] Σ rⁱ.
        discounted: [E, M] Σ (γⁱ)ᵗ rⁱ.
        lengths: [E] steps.
        truncated: [E] whether the episode was cut short, by a time limit or by us.
    """

    returns: Float[np.ndarray, "E M"]
    discounted: Float[np.ndarray, "E M"]
    lengths: Int[np.ndarray, " E"]
    truncated: Bool[np.ndarray, " E"]


@final
@dataclass(frozen=True, eq=False)
class Player:
    """A policy that plays an environment.

    Attributes:
        see: from an observation of the environment to what the policy sees.
        actor: the policy.
        interface: the environment's, which says how actions are taken.
    """

    see: Callable[[Any], Any]
    actor: acting.Actor
    interface: Interface

    @classmethod
    def of(cls, interface: Interface, trained: TrainedPolicy) -> Player:
        """One trial of trained policies, of an environment or of its exact model."""
        policy, theta, states = trained.policy, trained.trial_theta, trained.observations.num_states
        if interface.box is not None or states is None:
            return cls(trained.see, acting.of_policy(policy, theta, interface.box is not None), interface)
        return cls(trained.see, acting.of_table(acting.table(policy, theta, states, interface.num_actions)), interface)

    def act(self, seen: list[Any], generators: list[np.random.Generator]) -> Any:
        """What the environment is given after each of some observations; each has random numbers of its own."""
        box, uniform = self.interface.box, np.array([g.random() for g in generators])
        normal = None if box is None else np.stack([g.standard_normal(box.size) for g in generators])
        return self.interface.given(self.actor(np.stack(seen), acting.Noise(uniform, normal)))


def play(
    environment: Environment, trained: TrainedPolicy, seeds: list[int], gamma: tuple[float, ...], longest: int = LONGEST
) -> Episodes:
    """One episode per seed, side by side: in this process, or in a worker where a step has a time limit."""
    if environment.step_timeout is not None:
        return environment.play(trained, seeds, gamma, longest)
    return episodes(environment.interface, trained, seeds, gamma, longest)


def episodes(
    interface: Interface, trained: TrainedPolicy, seeds: list[int], gamma: tuple[float, ...], longest: int
) -> Episodes:
    """The same in this process."""
    with seeded_globally(seeds[0]):
        copies = [Copy(interface, number, seed) for number, seed in enumerate(seeds)]
        rewards, truncated = _played(Player.of(interface, trained), copies, seeds, longest)
    for copy in copies:
        copy.env.close()
    pairs = zip(copies, rewards, strict=True)
    tables = [rewards_of([copy], rows, len(rows), interface.num_objectives)[0] for copy, rows in pairs]
    weight = [np.power(gamma, np.arange(len(table))[:, None]) for table in tables]
    return Episodes(
        np.stack([table.sum(axis=0, dtype=np.float64) for table in tables]),
        np.stack([(w * table).sum(axis=0) for w, table in zip(weight, tables, strict=True)]),
        np.array([len(table) for table in tables]),
        truncated,
    )


def _played(
    player: Player, copies: list[Copy], seeds: list[int], longest: int
) -> tuple[list[list[bytes]], Bool[np.ndarray, " E"]]:
    """Rewards of each copy's episode, and whether it was cut short; one call acts for all that still go on."""
    generators = [np.random.default_rng([_STREAM, seed]) for seed in seeds]
    rewards: list[list[bytes]] = [[] for _ in seeds]
    truncated, active = np.zeros(len(seeds), dtype=bool), list(range(len(seeds)))
    while active:
        seen = [copies[k].read(player.see, copies[k].observation, len(rewards[k])) for k in active]
        actions = player.act(seen, [generators[k] for k in active])
        ended = {k: _step(copies[k], action, rewards[k], longest) for k, action in zip(active, actions, strict=True)}
        truncated[[k for k in active if ended[k] == "truncated"]] = True
        active = [k for k in active if not ended[k]]
    return rewards, truncated


def _step(copy: Copy, action: Any, rewards: list[bytes], longest: int) -> str:
    """One step; says whether the episode has ended, and how."""
    try:
        copy.observation, reward, terminated, truncated, _ = copy.env.step(action)
        rewards.append(packed(reward))
    except Exception as error:
        raise copy.raised(error, len(rewards)) from error
    if terminated and not truncated:
        return "terminated"
    over = truncated or len(rewards) >= min(copy.limit, longest)
    return "truncated" if over else ""


def while_training(
    environment: Environment, policy: Policy, theta: Params, setting: Setting, memory: Any
) -> Evaluation:
    """Mean over a few episodes of each policy (leading axis K): discounted return, or reward per step."""
    count = len(jax.tree.leaves(theta)[0])
    gamma = setting.discounts(environment.spec.num_objectives)
    longest = LONGEST if max(gamma) == 1 else min(LONGEST, math.ceil(math.log(_NEGLIGIBLE) / math.log(max(gamma))))
    trained = TrainedPolicy.of(policy, theta, environment.spec, memory, setting)
    rows: list[Any] = []
    for k in range(count):
        seeds = seeds_of(k, environment.evaluation_episodes)
        played = play(environment, trained.of_trial(k), seeds, gamma, longest)
        average = played.returns.sum(axis=0) / played.lengths.sum()
        rows.append(average if isinstance(setting, Average) else played.discounted.mean(axis=0))
    nothing = np.full(count, np.nan)
    return Evaluation(np.stack(rows), nothing, nothing, nothing, kind="episodes")


def seeds_of(stream: int, count: int) -> list[int]:
    """Distinct seeds of episodes, the same for the same stream, and none that training uses."""
    drawn = np.random.SeedSequence([_STREAM, stream]).generate_state(count, np.uint64)
    return [int(seed) % 2**31 for seed in drawn]


@final
@dataclass(frozen=True, eq=False)
class Recording:
    """Some episodes.

    Attributes:
        frames: of each episode, pictures [h, w, 3], the first before the first step.
        returns: [E, M] undiscounted.
    """

    frames: list[list[UInt8[np.ndarray, "h w 3"]]]
    returns: list[list[float]]

    @property
    def lengths(self) -> list[int]:
        """[E] steps."""
        return [len(pictures) - 1 for pictures in self.frames]


def record(environment: Environment, trained: TrainedPolicy, count: int, seed: int, most_frames: int) -> Recording:
    """Whole episodes with seeds that follow each other, until there are so many, or enough pictures."""
    env, limit = _rendering(environment)
    player, recording = Player.of(environment.interface, trained), Recording([], [])
    try:
        for number in range(seed, seed + count):
            left = most_frames - sum(map(len, recording.frames))
            if left <= 0:
                break
            with seeded_globally(number):
                _record(recording, env, player, number, min(limit, left))
    finally:
        env.close()
    return recording


def _rendering(environment: Environment) -> tuple[Any, float]:
    """An environment that renders pictures, and its time limit; a ValueError says why there is none."""
    try:
        env, limit = environment.interface.make(render_mode="rgb_array")
        if "rgb_array" not in (env.metadata.get("render_modes") or ()):
            raise NotImplementedError("it renders no pictures (rgb_array)")
        env.reset(seed=0)
        _picture(env)
    except Exception as error:  # drivers fail in ways of their own
        raise ValueError(f"{environment.spec.name} cannot be watched: {described(error)}.") from None
    return env, limit


def _record(recording: Recording, env: Any, player: Player, seed: int, limit: float) -> None:
    generator = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    frames, total, over = [_picture(env)], 0.0, False
    while not over and len(frames) <= limit:
        (action,) = player.act([player.see(observation)], [generator])
        observation, reward, terminated, truncated, _ = env.step(action)
        frames.append(_picture(env))
        total, over = total + np.asarray(reward, dtype=np.float64), terminated or truncated
    recording.frames.append(frames)
    recording.returns.append(np.atleast_1d(total).tolist())


def _picture(env: Any) -> UInt8[np.ndarray, "h w 3"]:
    return np.asarray(env.render(), dtype=np.uint8)[..., :3]
