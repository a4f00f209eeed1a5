"""The copies that live in one process, those of every chain, and how they are asked to walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from moac.envs import acting, replay
from moac.envs.abreast import Abreast
from moac.envs.copies import Copy, Maker
from moac.envs.randomness import seeded_globally, used_globally
from moac.envs.replay import Past, Standing
from moac.envs.sights import States, Vectors
from moac.envs.states import Atlas, StateWalker
from moac.envs.walks import Draws, Walks
from moac.policies.encoding import ActionBox, Encoder, Scale
from moac.types import Params, Policy


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """What every copy of an environment has in common.

    Attributes:
        maker: of the copies.
        encoder: of what they show.
        num_actions: A; 0 where actions are vectors.
        num_objectives: M.
        box: how continuous actions are taken; None for A actions.
    """

    maker: Maker
    encoder: Encoder
    num_actions: int
    num_objectives: int
    box: ActionBox | None = None

    @property
    def looped(self) -> bool:
        """Whether copies walk one after the other: states and indices of actions need no array per step."""
        return self.encoder.num_states is not None and self.box is None

    def given(self, actions: np.ndarray[Any, Any]) -> Any:
        """Actions of a policy as the environment takes them, one after the other."""
        return actions.tolist() if self.box is None else self.box(actions)


@final
@dataclass(frozen=True, eq=False)
class Order:
    """A walk that is asked for.

    Attributes:
        chain: whose copies.
        policy: the policy.
        theta: its parameters, as NumPy arrays.
        scale: of vectors; None for states.
        draws: its random numbers.
    """

    chain: int
    policy: Policy
    theta: Params
    scale: Scale | None
    draws: Draws


@final
class Fleet:
    """Copies by chain."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._atlas = plan, Atlas(plan.encoder)
        self._copies: dict[int, list[Copy]] = {}
        self._strays: set[int] = set()

    def open(self, chain: int, numbers: list[int], seeds: list[int]) -> None:
        """Make the copies of a chain, each reset with its seed."""
        pairs = zip(numbers, seeds, strict=True)
        with seeded_globally(seeds[0]):
            self._copies[chain] = [Copy(self._plan.maker, number, seed) for number, seed in pairs]

    def walk(self, order: Order) -> Walks:
        """The next steps of a chain's copies."""
        seed = order.draws.seed
        with seeded_globally(seed):
            walks = self._walk(order)
            if order.chain not in self._strays and used_globally(seed):
                self._strays.add(order.chain)
        return walks

    def _walk(self, order: Order) -> Walks:
        plan, copies = self._plan, self._copies[order.chain]
        if plan.looped:
            table = acting.of_states(order.policy, order.theta, (plan.encoder.num_states or 0, plan.num_actions))
            return StateWalker(self._atlas, table, plan.num_objectives).walk(copies, order.draws)
        act = acting.of_vectors if plan.box is None else acting.of_continuous
        sight = States(plan.encoder) if order.scale is None else Vectors(plan.encoder, order.scale)
        return Abreast(sight, act(order.policy, order.theta), plan.given, plan.num_objectives).walk(copies, order.draws)

    def play(self, *order: Any) -> Any:
        """Whole episodes of copies of their own: `evaluation.episodes`."""
        from moac.envs import evaluation

        return evaluation.episodes(self._plan, *order)

    def standing(self, chain: int) -> list[Standing] | None:
        """Where a chain's copies stand; None where the environment drew from what belongs to no copy."""
        if chain in self._strays:
            return None
        return [replay.standing(copy, self._seen(copy)) for copy in self._copies[chain]]

    def revive(self, chain: int, pasts: list[Past]) -> bool:
        """Bring a chain's new copies to where others stood; whether every one of them got there."""
        pairs = zip(self._copies[chain], pasts, strict=True)
        with seeded_globally(0):
            there = all(replay.revived(copy, past, self._plan.given, self._seen) for copy, past in pairs)
            return there and not used_globally(0)

    def _seen(self, copy: Copy) -> Any:
        """What a copy shows, as a state or as numbers."""
        encoder, shown = self._plan.encoder, copy.observation
        if copy.walked:
            return self._atlas.states[shown] if self._plan.looped else shown
        return encoder.flat(shown) if encoder.num_states is None else encoder.state(shown)

    def close(self, chain: int) -> None:
        """Close the environments of a chain."""
        self._strays.discard(chain)
        for copy in self._copies.pop(chain, []):
            copy.env.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """A method by its name, as a worker process is asked."""
        return getattr(self, name)(*arguments)
