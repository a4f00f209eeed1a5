"""Policies weighed on a log, or on a shard of it: sums that add up, and the estimates they hold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar, final

import numpy as np
from jaxtyping import Float

from moac.offline.ncis import doubly_robust, sums
from moac.offline.ncis.options import Options
from moac.offline.ncis.rows import Logged
from moac.offline.ncis.sums import Sums
from moac.runs.executors import Executor, Serial, results

T = TypeVar("T")


@final
@dataclass(frozen=True, eq=False)
class Shard:
    """Sums of several policies over the same rows. `a + b` is as if both shards had been one log.

    Attributes:
        signal_names: M of them.
        caps: of the sweep, ascending, infinity last.
        cap: in use.
        policies: for each name the sums of each training seed's policy.
    """

    signal_names: tuple[str, ...]
    caps: tuple[float, ...]
    cap: float
    policies: Mapping[str, tuple[Sums, ...]]

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
        """Where the cap in use is among the caps."""
        return self.caps.index(self.cap)

    @property
    def first(self) -> Sums:
        """Of any policy: users and counts are the same for all."""
        return next(iter(self.policies.values()))[0]


def accumulate(log: Logged, policies: Mapping[str, Any], q: Any = None, options: Options | None = None) -> Shard:
    """Weigh the policies on the rows of `log`; shards of a log are added afterwards.

    Args:
        log: rows.
        policies: by name, π(a|s) of the logged action [N] or of all actions [N, K]; a list or tuple of such arrays are
            one method's training seeds.
        q: reward model for doubly robust estimates, q(s, a) as [N, K, M] or as a function of row indices [n] that gives
            [n, K, M]; the policies then have all actions' probabilities.
        options: caps are what matters here.
    """
    chosen = options or Options()
    if not policies:
        raise ValueError("`policies` must name at least one policy.")
    caps = chosen.all_caps
    found = {
        name: tuple(_one(log, f"policy {name!r}", one, q, chosen) for one in _seeds(given))
        for name, given in policies.items()
    }
    return Shard(log.signal_names, caps, float(chosen.cap), found)


def over(weigh: Callable[[T], Shard], parts: Sequence[T], executor: Executor | None = None) -> Shard:
    """The sums over all parts of a log, each weighed where the executor runs it, added in the order of `parts`.

    Args:
        weigh: a function of a module: reads a part, by its path, and calls `accumulate`. What goes between processes is
            a path and the sums of users, never rows.
        parts: paths, or whatever `weigh` takes.
        executor: None works here, one part after the other.
    """
    if not parts:
        raise ValueError("`parts` must hold at least one part of a log.")
    found = results((executor or Serial()).map(weigh, parts))
    return reduce(operator.add, found)


def values(shard: Shard) -> dict[str, Float[np.ndarray, " M"]]:
    """V_i = Σ w r_i / Σ w of each policy, mean over training seeds: the estimate without an interval."""
    supported(shard)
    return {name: np.mean([of(one)[shard.at] for one in seeds], axis=0) for name, seeds in shard.policies.items()}


def of(one: Sums) -> Float[np.ndarray, "C M"]:
    """V_i of one policy under each cap."""
    return one.reward.sum(axis=0) / one.weight.sum(axis=0)[:, None]


def supported(shard: Shard) -> None:
    """Raise where a policy takes none of the logged actions."""
    for name, seeds in shard.policies.items():
        if any(not one.raw.any() for one in seeds):
            raise ValueError(f"policy {name!r} gives probability 0 to every logged action: nothing can be estimated.")


def _one(log: Logged, name: str, policy: Any, q: Any, options: Options) -> Sums:
    weight = log.weight(name, policy)
    adjusted = None if q is None else doubly_robust.terms(log, name, policy, np.minimum(options.cap, weight), q)
    return sums.of_rows(log.people, log.reward, weight, options.all_caps, float(options.cap), adjusted)


def _seeds(given: Any) -> tuple[Any, ...]:
    """One policy, or the policies of several seeds."""
    several = isinstance(given, list | tuple) and len(given) > 0 and all(getattr(one, "ndim", 0) > 0 for one in given)
    return tuple(given) if several else (given,)
