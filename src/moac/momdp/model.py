"""Finite multi-objective MDPs as tables of outcomes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from moac.arguments import Numbers, checked
from moac.choices import LARGEST_REWARD, counted
from moac.config import Setting
from moac.types import Batch, Evaluation, Key, Params, Policy, Sampling, Source, Spec

_ROW_SUM_TOLERANCE = 1e-9
_SHAPES = {
    "P": "[S, A, S]",
    "r": "[S, A, M] or [S, A, S, M]",
    "terminal": "[S, A, S]",
    "probability": "[S, A, O]",
    "reward": "[S, A, O, M]",
    "start": "[S]",
}
"""What the axes of a table are."""


@dataclass(frozen=True, eq=False)
class FiniteMOMDP(Source):
    """A finite MOMDP (S, A, P, r) with r ∈ R^M, stored sparsely as O outcomes per state and action.

    On termination the chain restarts from `start`. There is no time limit. Build one with `from_outcomes` or
    `from_dense`; both refuse an invalid model and name the offending index.
    """

    next_state: Int[np.ndarray, "S A O"]  # successor of each outcome
    probability: Float[np.ndarray, "S A O"]  # of each outcome given (s, a), float64
    reward: Float[np.ndarray, "S A O M"]  # of each outcome, float64
    terminated: Bool[np.ndarray, "S A O"]  # whether the outcome ends the episode
    start_distribution: Float[np.ndarray, " S"]  # of the first state
    observations: np.ndarray[Any, Any] | None = None  # what the real environment shows; None where it is the index
    objective_names: tuple[str, ...] = ()
    name: str = "model"  # in messages

    def __repr__(self) -> str:
        named = {"state": self.num_states, "action": self.num_actions, "objective": self.num_objectives}
        sizes = ", ".join(counted(count, noun) for noun, count in named.items())
        return f"FiniteMOMDP({self.name}, {sizes})"

    @property
    def num_states(self) -> int:
        """S."""
        return self.next_state.shape[0]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.next_state.shape[1]

    @property
    def num_outcomes(self) -> int:
        """O, the largest number of outcomes that a state and action have."""
        return self.next_state.shape[2]

    @property
    def num_objectives(self) -> int:
        """M."""
        return self.reward.shape[3]

    @property
    def fingerprint(self) -> str:
        """A short hash of the tables and observations, not the names: one fingerprint is one model."""
        digest = hashlib.sha256()
        shown = () if self.observations is None else (self.observations,)
        for table in (self.next_state, self.probability, self.reward, self.terminated, self.start_distribution, *shown):
            digest.update(f"{table.shape} {table.dtype}".encode())
            digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()[:16]

    @classmethod
    @checked
    def from_outcomes(
        cls,
        next_state: Numbers,
        probability: Numbers,
        reward: Numbers,
        terminated: Numbers,
        start: Numbers | None = None,
        observations: Numbers | None = None,
    ) -> FiniteMOMDP:
        """A model from its table of outcomes.

        Args:
            next_state: [S, A, O] integers in [0, S).
            probability: [S, A, O], each row over O sums to 1. Unused outcomes have probability 0.
            reward: [S, A, O, M].
            terminated: [S, A, O] booleans.
            start: [S] distribution of the first state; None is uniform.
            observations: [S, …] the environment's observation of each state, or None.
        """
        probability = _table("probability", probability, 3)
        _check_rows("probability", probability)
        num_states = len(probability)
        seen = None if observations is None else np.array(observations)
        if seen is not None and seen.shape[:1] != (num_states,):
            raise ValueError(f"`observations` must have one entry per state ({num_states}), got shape {seen.shape}.")
        model = cls(
            next_state=_states("next_state", next_state, probability.shape),
            probability=probability,
            reward=_rewards("reward", reward, 4, probability.shape),
            terminated=_flags("terminated", terminated, probability.shape),
            start_distribution=_start(start, num_states),
            observations=seen,
        )
        return model.named(tuple(f"objective {i + 1}" for i in range(model.num_objectives)))

    @classmethod
    @checked
    def from_dense(
        cls, P: Numbers, r: Numbers, start: Numbers | None = None, terminal: Numbers | None = None
    ) -> FiniteMOMDP:
        """A model from dense transition probabilities.

        Args:
            P: [S, A, S'], rows sum to 1.
            r: [S, A, M], or [S, A, S', M] when the reward depends on the successor.
            start: [S] distribution of the first state; None is uniform.
            terminal: [S, A, S'] chance in [0, 1] that this transition ends the episode; None is never.
        """
        chance = _table("P", P, 3)
        S, A, successors = chance.shape
        if successors != S:
            raise ValueError(f"`P` must have shape [S, A, S], got {chance.shape}.")
        if np.ndim(r) != 4:
            r = _rewards("r", r, 3, (S, A))
            r = np.broadcast_to(r[:, :, None, :], (S, A, S, r.shape[2]))
        r = _rewards("r", r, 4, chance.shape)
        ends = np.zeros_like(chance) if terminal is None else _table("terminal", terminal, 3, chance.shape)
        refuse("terminal", ends, (ends < 0) | (ends > 1), "be a chance in [0, 1]")
        _check_rows("P", chance)
        every, no = np.broadcast_to(np.arange(S), chance.shape), np.zeros(chance.shape, bool)
        twice = ((every, every), (chance * (1 - ends), chance * ends), (r, r), (no, ~no))  # goes on, ends
        next_state, probability, reward, terminated = (np.concatenate(pair, axis=2) for pair in twice)
        order = np.argsort(probability == 0, axis=2, kind="stable")  # possible outcomes first
        possible = order[:, :, : int((probability > 0).sum(axis=2).max())]  # as many as the busiest (s, a) needs
        return cls.from_outcomes(
            np.take_along_axis(next_state, possible, axis=2),
            np.take_along_axis(probability, possible, axis=2),
            np.take_along_axis(reward, possible[..., None], axis=2),
            np.take_along_axis(terminated, possible, axis=2),
            start,
        )

    @property
    def spec(self) -> Spec:
        """The description of the model that training takes."""
        return _source().spec(self)

    @property
    def compiled(self) -> bool:
        """True: samples are drawn inside the compiled program."""
        return True

    @property
    def shape(self) -> Any:
        """The sizes that programs are compiled for: models that share them share programs."""
        return _source().Shape(self.num_states, self.num_actions, self.num_objectives)

    @property
    def data(self) -> Any:
        """The tables that are sampled, which compiled programs take as an argument."""
        return _source().tables(self)

    def bound(self, data: Any) -> Any:
        """A source that samples `data` in place of the model's own tables."""
        return self.shape.bound(data)

    def start(self, key: Key) -> Any:
        """The chain at a first state."""
        return self.data.start(key)

    def sample(self, chain: Any, policy: Policy, theta: Params, key: Key, sizes: Sampling) -> tuple[Any, Batch, Batch]:
        """The next N·D + B transitions of the chain under θ."""
        return self.data.sample(chain, policy, theta, key, sizes)

    def evaluate(self, policy: Policy, theta: Params, setting: Setting) -> Evaluation:
        """The exact value of the policies `theta` (leading axis K)."""
        return _source().evaluate(self, policy, theta, setting)

    def prepare(self, policy: Policy, setting: Setting) -> None:
        """Evaluate a policy of parameters 0, so that the first evaluation finds everything compiled and cached."""
        self.evaluate(policy, _source().zeros(policy), setting)

    @checked
    def named(self, objective_names: tuple[str, ...], name: str | None = None) -> FiniteMOMDP:
        """The same model with names for its objectives, and for itself."""
        if len(objective_names) != self.num_objectives:
            raise ValueError(f"`objective_names` must be {self.num_objectives} names, got {len(objective_names)}.")
        return replace(self, objective_names=objective_names, name=self.name if name is None else name)


def _source() -> Any:
    """The module that samples and evaluates models; imported late, since it imports this one."""
    from moac.momdp import sampling

    return sampling


def _table(name: str, values: Any, num_axes: int, leading: tuple[int, ...] = ()) -> Float[np.ndarray, "..."]:
    """`values` copied as finite float64 with `num_axes` axes, the first of them `leading`."""
    table = np.array(values, np.float64)
    if table.ndim != num_axes or 0 in table.shape:
        raise ValueError(f"`{name}` must have shape {_SHAPES[name]}, none of them 0, got {table.shape}.")
    if table.shape[: len(leading)] != leading:
        raise ValueError(f"`{name}` must have leading shape {leading}, got {table.shape}.")
    refuse(name, table, ~np.isfinite(table), "be finite")
    return table


def _rewards(name: str, values: Any, num_axes: int, leading: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """`values` as a table of rewards whose squares training can sum."""
    table = _table(name, values, num_axes, leading)
    refuse(name, table, np.abs(table) > LARGEST_REWARD, f"be within ±{LARGEST_REWARD:.0e}")
    return table


def _like(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    table = np.array(values)
    if table.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, got {table.shape}.")
    return table


def _states(name: str, values: Any, shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
    table = _like(name, values, shape)
    if not np.issubdtype(table.dtype, np.integer):
        raise ValueError(f"`{name}` must hold integers, got {table.dtype}.")
    refuse(name, table, (table < 0) | (table >= shape[0]), f"be a state in [0, {shape[0]})")
    return table.astype(np.int32)


def _flags(name: str, values: Any, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."]:
    table = _like(name, values, shape)
    refuse(name, table, (table != 0) & (table != 1), "be true or false")
    return table.astype(bool)


def _start(start: Any, num_states: int) -> Float[np.ndarray, " S"]:
    if start is None:
        return np.full(num_states, 1.0 / num_states)
    table = _table("start", start, 1, (num_states,))
    refuse("start", table, table < 0, "not be negative")
    if abs(table.sum() - 1.0) > _ROW_SUM_TOLERANCE:
        raise ValueError(f"`start` must sum to 1, got {table.sum():.12g}.")
    return table / table.sum()


def _check_rows(name: str, table: Float[np.ndarray, "S A O"]) -> None:
    refuse(name, table, table < 0, "not be negative")
    total = table.sum(axis=2)
    for s, a in np.argwhere(np.abs(total - 1.0) > _ROW_SUM_TOLERANCE)[:1]:
        raise ValueError(f"`{name}` must sum to 1 over its last axis, got {total[s, a]:.12g} at index ({s}, {a}).")


def refuse(name: str, table: np.ndarray[Any, Any], bad: np.ndarray[Any, Any], rule: str) -> None:
    """Raise for the first bad entry, naming its index and value."""
    for index in np.argwhere(bad)[:1]:
        where = tuple(int(i) for i in index)
        raise ValueError(f"`{name}` must {rule}, got {table[where]} at index {where}.")
