"""What policies earn in whole episodes of the real environment."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from moac.config import Average, Setting
from moac.envs import acting
from moac.envs.copies import Copy, packed, rewards_of
from moac.envs.fleet import Plan
from moac.envs.randomness import seeded_globally
from moac.envs.walks import Noise
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
        see: from what the environment shows to what the policy sees.
        actor: the policy.
        plan: the environment's, which says how actions are taken.
    """

    see: Callable[[Any], Any]
    actor: acting.Actor
    plan: Plan

    @classmethod
    def of(cls, plan: Plan, trained: TrainedPolicy) -> Player:
        """One trial of trained policies, of an environment or of its exact model."""
        policy, theta = trained.policy, trained.own_theta
        if plan.box is not None:
            return cls(trained.see, acting.of_continuous(policy, theta), plan)
        if trained.scales is not None:
            return cls(trained.see, acting.of_vectors(policy, theta), plan)
        states = plan.encoder.num_states if trained.observations is None else len(trained.observations)
        return cls(trained.see, acting.of_states(policy, theta, (states or 0, plan.num_actions)), plan)

    def act(self, seen: list[Any], generators: list[np.random.Generator]) -> Any:
        """What the environment is given after each of some observations; each has random numbers of its own."""
        k, uniform = 0 if self.plan.box is None else self.plan.box.size, [g.random() for g in generators]
        normal = np.stack([g.standard_normal(k) for g in generators]) if k else None
        return self.plan.given(self.actor.act(np.stack(seen), Noise(np.array(uniform), normal)))


def play(
    environment: Environment, trained: TrainedPolicy, seeds: list[int], gamma: tuple[float, ...], longest: int = LONGEST
) -> Episodes:
    """One episode per seed, side by side: in this process, or in a worker where a step has a time limit."""
    if environment.step_timeout is not None:
        return environment.asked("play", trained, seeds, gamma, longest)
    return episodes(environment.plan, trained, seeds, gamma, longest)


def episodes(plan: Plan, trained: TrainedPolicy, seeds: list[int], gamma: tuple[float, ...], longest: int) -> Episodes:
    """The same in this process."""
    with seeded_globally(seeds[0]):
        return _play(Player.of(plan, trained), seeds, gamma, longest)


def _play(player: Player, seeds: list[int], gamma: tuple[float, ...], longest: int) -> Episodes:
    plan, E = player.plan, len(seeds)
    copies = [Copy(plan.maker, number, seed) for number, seed in enumerate(seeds)]
    generators = [np.random.default_rng([_STREAM, seed]) for seed in seeds]
    rewards: list[list[bytes]] = [[] for _ in seeds]
    truncated, active = np.zeros(E, dtype=bool), list(range(E))
    while active:
        seen = [_seen(player, copies[k], len(rewards[k])) for k in active]
        actions = player.act(seen, [generators[k] for k in active])
        ended = {k: _step(copies[k], action, rewards[k], longest) for k, action in zip(active, actions, strict=True)}
        truncated[[k for k in active if ended[k] == "truncated"]] = True
        active = [k for k in active if not ended[k]]
    for copy in copies:
        copy.env.close()
    tables = [
        rewards_of([copy], rows, len(rows), plan.num_objectives)[0] for copy, rows in zip(copies, rewards, strict=True)
    ]
    weight = [np.power(gamma, np.arange(len(table))[:, None]) for table in tables]
    return Episodes(
        np.stack([table.sum(axis=0, dtype=np.float64) for table in tables]),
        np.stack([(w * table).sum(axis=0) for w, table in zip(weight, tables, strict=True)]),
        np.array([len(table) for table in tables]),
        truncated,
    )


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


def _seen(player: Player, copy: Copy, done: int) -> Any:
    try:
        return player.see(copy.observation)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise copy.failure(str(error).rstrip("."), done) from None
