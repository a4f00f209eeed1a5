"""Sums over each user's rows, from which every estimate follows; those of a log's shards add up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from moac.arguments import checked
from moac.choices import CONFIDENCE, Range, at_least, check_fields, shown
from moac.offline.ncis.rows import Logged

CAPS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, math.inf)
"""The caps of the sweep."""
_ENOUGH = Range("at least 100 for an interval", lambda x: x >= 100)
"""Draws."""
_BLOCK = 4_000_000
"""Numbers of the reward model that are in memory at once."""


@checked
@dataclass(frozen=True)
class Options:
    """How an estimate is made; all of it is declared before a number is seen."""

    cap: float = 10.0  # c of w = min(c, π/π_b); infinity is SNIPS
    caps: tuple[float, ...] = CAPS  # others, to see how much the answer depends on it; infinity is always among them
    draws: int = 1000  # of the bootstrap over users
    level: float = 0.95  # of intervals
    seed: int = 0  # of the draws
    # False: intervals are of these very policies' mean. True: training seeds are resampled beside the users, for what
    # the method would give with other seeds; with few of them such intervals are too short.
    resample_seeds: bool = False

    def __post_init__(self) -> None:
        for cap in (self.cap, *self.caps):
            if not cap > 0:
                raise ValueError(f"`cap` must be positive, got {cap}.")
        check_fields(self, {"level": CONFIDENCE, "draws": _ENOUGH, "seed": at_least(0)})

    @property
    def all_caps(self) -> tuple[float, ...]:
        """Those of the sweep and the one in use, ascending; the last is infinity."""
        return tuple(sorted({float(cap) for cap in (self.cap, *self.caps, math.inf)}))


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over each user's rows, for one policy with weights w = min(c, π/π_b) under several caps c.

    `a + b` are the sums of both shards: the same numbers bit for bit where each user's rows are in one shard, and up to
    rounding where they are in several. Moments and counts are those of the cap in use.
    """

    user: Any  # [U] in ascending order
    count: Float[np.ndarray, " U"]  # rows
    raw: Float[np.ndarray, " U"]  # Σ π/π_b, without a cap
    capped: Float[np.ndarray, " U"]  # rows with π/π_b > c
    largest: Float[np.ndarray, " U"]  # max w
    square: Float[np.ndarray, " U"]  # Σ w²
    square_reward: Float[np.ndarray, "U 2 M"]  # Σ w² r and Σ w² r²
    positives: Float[np.ndarray, "U 3 M"]  # Σ 1{r ≠ 0}, Σ w 1{r ≠ 0} and Σ w² 1{r ≠ 0}
    weight: Float[np.ndarray, "U C"]  # Σ w, for each cap
    reward: Float[np.ndarray, "U C M"]  # Σ w r, for each cap
    adjusted: Float[np.ndarray, "U M"] | None = None  # Σ of the doubly robust terms; None without a reward model

    @property
    def values(self) -> Float[np.ndarray, "C M"]:
        """V_i = Σ w r_i / Σ w under each cap."""
        return self.reward.sum(axis=0) / self.weight.sum(axis=0)[:, None]

    @property
    def distinct(self) -> int:
        """How many of the caps, from the first, differ: those above the largest weight are all alike."""
        return 1 + int((self.weight == self.weight[:, -1:]).all(axis=0).argmax())

    def __add__(self, other: Sums) -> Sums:
        if (self.adjusted is None) != (other.adjusted is None):
            raise ValueError("shards must all have a reward model, or none of them.")
        user, index = np.unique(np.concatenate([self.user, other.user]), return_inverse=True)
        mine, theirs = index[: len(self.user)], index[len(self.user) :]
        merged: dict[str, Any] = {"user": user}
        for field in fields(self)[1:]:
            a, b = getattr(self, field.name), getattr(other, field.name)
            if a is not None:
                total = np.zeros((len(user), *a.shape[1:]))
                total[mine] = a
                total[theirs] = np.maximum(total[theirs], b) if field.name == "largest" else total[theirs] + b
                merged[field.name] = total
        return Sums(**merged)


def of_rows(
    users: tuple[Any, Int[np.ndarray, " N"]],
    reward: Float[np.ndarray, "N M"],
    weight: Float[np.ndarray, " N"],
    caps: Sequence[float],
    cap: float,
    adjusted: Float[np.ndarray, "N M"] | None = None,
) -> Sums:
    """The sums of rows with ratios `weight` = π/π_b; `caps` are those of `Sums.weight`, `cap` is the one in use."""
    user, index = users  # in ascending order [U], and of each row [N]
    raw, signals = weight, np.ascontiguousarray(reward.T)
    w, fires = np.minimum(cap, raw), (signals != 0).astype(np.float64)
    product = np.empty(len(raw))

    def total(values: Any = None) -> Any:
        return np.bincount(index, values, len(user)).astype(np.float64)

    def totals(weights: Any, columns: Any) -> Any:
        return np.stack([total(np.multiply(weights, one, out=product)) for one in columns], axis=-1)

    def under(c: float) -> tuple[Any, Any]:
        capped = np.minimum(c, raw)
        return total(capped), totals(capped, signals)

    top = raw.max()  # caps above it are all alike
    distinct = {c: under(c) for c in {min(c, top) for c in caps}}
    swept = [distinct[min(c, top)] for c in caps]
    largest = np.zeros(len(user))
    np.maximum.at(largest, index, w)
    return Sums(
        user=user,
        count=total(),
        raw=total(raw),
        capped=total(raw > cap),
        largest=largest,
        square=total(w**2),
        square_reward=np.stack([totals(w**2, signals), totals(w**2, signals**2)], axis=1),
        positives=np.stack([totals(1.0, fires), totals(w, fires), totals(w**2, fires)], axis=1),
        weight=np.stack([weight for weight, _ in swept], axis=1),
        reward=np.stack([reward for _, reward in swept], axis=1),
        adjusted=None if adjusted is None else totals(1.0, adjusted.T),
    )


@dataclass(frozen=True, eq=False)
class Shard:
    """Sums of several policies over the same rows. `a + b` is as if both shards had been one log."""

    signal_names: tuple[str, ...]
    caps: tuple[float, ...]  # of the sweep, ascending, infinity last
    cap: float  # in use
    policies: Mapping[str, tuple[Sums, ...]]  # for each name the sums of each training seed's policy

    def __add__(self, other: Shard) -> Shard:
        for what, a, b in (
            ("signals", self.signal_names, other.signal_names),
            ("caps", (self.cap, self.caps), (other.cap, other.caps)),
            ("policies", *({name: len(seeds) for name, seeds in s.policies.items()} for s in (self, other))),
        ):
            if a != b:
                raise ValueError(f"shards must have the same {what}, got {a} and {b}.")
        merged = {
            name: tuple(mine + theirs for mine, theirs in zip(seeds, other.policies[name], strict=True))
            for name, seeds in self.policies.items()
        }
        return Shard(self.signal_names, self.caps, self.cap, merged)

    @property
    def at(self) -> int:
        """The place of the cap in use among the caps."""
        return self.caps.index(self.cap)

    @property
    def first(self) -> Sums:
        """The sums of any policy: users and counts are the same for all."""
        return next(iter(self.policies.values()))[0]

    def check_support(self) -> None:
        """Raise where a policy takes none of the logged actions."""
        for name, seeds in self.policies.items():
            if any(not one.raw.any() for one in seeds):
                raise ValueError(f"policy {name!r} gives probability 0 to every logged action: no estimate.")


@checked
def accumulate(log: Logged, policies: Mapping[str, Any], q: Any = None, options: Options | None = None) -> Shard:
    """Sum the policies' weighted rewards over the rows of `log`; shards of a log are added afterwards.

    Arguments as in `ncis.evaluate`; with `q` the policies give all actions' probabilities. Of the options caps matter.
    """
    chosen = options or Options()
    if not policies:
        raise ValueError("`policies` must name at least one policy.")

    def of_policy(name: str, policy: Any) -> Sums:
        ratio = log.importance_ratio(name, policy)
        adjusted = None if q is None else _doubly_robust(log, name, policy, np.minimum(chosen.cap, ratio), q)
        return of_rows(log.users, log.reward, ratio, chosen.all_caps, float(chosen.cap), adjusted)

    sums = {name: tuple(of_policy(f"`policies[{name!r}]`", p) for p in seeds_of(own)) for name, own in policies.items()}
    return Shard(log.signal_names, chosen.all_caps, float(chosen.cap), sums)


@checked
def total(shards: Iterable[Shard]) -> Shard:
    """The sums over all shards of a log, neighbours first: each user's sums are copied few times."""
    parts: list[Any] = list(shards)
    if not parts or not all(isinstance(part, Shard) for part in parts):
        raise ValueError(f"`shards` must hold at least one part of a log and nothing else, got {shown(parts)}.")
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) & ~1 :]
    return parts[0]


@checked
def values(shard: Shard) -> dict[str, Float[np.ndarray, " M"]]:
    """V_i = Σ w r_i / Σ w of each policy, mean over training seeds: the estimate without an interval."""
    shard.check_support()
    return {name: np.mean([one.values[shard.at] for one in seeds], axis=0) for name, seeds in shard.policies.items()}


def seeds_of(given: Any) -> tuple[Any, ...]:
    """One policy, or the policies of several seeds."""
    several = isinstance(given, list | tuple) and len(given) > 0 and all(getattr(one, "ndim", 0) > 0 for one in given)
    return tuple(given) if several else (given,)


def _doubly_robust(
    log: Logged, name: str, policy: Any, weight: Float[np.ndarray, " N"], q: Any
) -> Float[np.ndarray, "N M"]:
    """Each row's term, whose mean is the doubly robust estimate (Dudík, Langford, Li 2011).

        Σ_a π(a|s) q(s, a) + w (r − q(s, a_logged)).

    Without a cap it is right on average where the propensities or the reward model are; with one, where q is. q must
    not have been fitted on these rows.
    """
    table = np.asarray(policy, dtype=np.float64)
    if table.ndim != 2 or log.action is None:
        raise ValueError(f"a doubly robust estimate needs all actions' probabilities [N, K] of {name}, and `action`.")
    shape = (*table.shape, log.reward.shape[1])
    if not callable(q) and np.shape(q) != shape:
        raise ValueError(f"`q` must have shape {list(shape)}, got {list(np.shape(q))}.")
    terms = np.empty(log.reward.shape)
    step = max(1, _BLOCK // (shape[1] * shape[2]))
    for begin in range(0, len(table), step):
        rows = np.arange(begin, min(begin + step, len(table)))
        values = np.asarray(q(rows) if callable(q) else np.asarray(q)[rows], dtype=np.float64)
        wanted = (len(rows), *shape[1:])
        if values.shape != wanted or not np.isfinite(values).all():
            raise ValueError(f"`q` must give finite numbers of shape {list(wanted)}, got {list(values.shape)}.")
        logged = values[np.arange(len(rows)), log.action[rows]]
        expected = (table[rows, None] @ values)[:, 0]
        terms[rows] = expected + weight[rows, None] * (log.reward[rows] - logged)
    return terms
