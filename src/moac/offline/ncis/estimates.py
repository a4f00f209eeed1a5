"""Estimates with intervals over users, and changes to a baseline on the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis import bootstrap, shards
from moac.offline.ncis.options import Options
from moac.offline.ncis.shards import Shard
from moac.offline.ncis.sums import Sums


@final
@dataclass(frozen=True, eq=False)
class Estimate:
    """A value for each signal, and its interval over users; NaN where some draw of users does not support the policy.

    Attributes:
        value: [M].
        interval: [M, 2].
    """

    value: Float[np.ndarray, " M"]
    interval: Float[np.ndarray, "M 2"]


@final
@dataclass(frozen=True, eq=False)
class Change:
    """From the baseline's value to a policy's, users drawn alike for both.

    Attributes:
        difference: [M] V − V_b, in units of the reward: positive is better, also for a cost.
        difference_interval: [M, 2].
        relative: [M] V / V_b − 1, of the signal: a cost that falls is negative.
        relative_interval: [M, 2].
        p: [M] two-sided p-value of the difference.
        holm: [M] the same, adjusted for M signals.
        significant: [M] `holm` is below 1 − level.
        relative_draws: [B, M] `relative` in each draw of users, the same users for all policies of a report: two
            policies' draws can be subtracted. No part of the plain data.
    """

    difference: Float[np.ndarray, " M"]
    difference_interval: Float[np.ndarray, "M 2"]
    relative: Float[np.ndarray, " M"]
    relative_interval: Float[np.ndarray, "M 2"]
    p: Float[np.ndarray, " M"]
    holm: Float[np.ndarray, " M"]
    significant: Bool[np.ndarray, " M"]
    relative_draws: Float[np.ndarray, "B M"] = field(repr=False)


@final
@dataclass(frozen=True, eq=False)
class Drawn:
    """One method's estimates, and what they are for each draw of users.

    Attributes:
        by_seed: [R, C, M] of each training seed, under each cap.
        draws: [B, C, M] mean over seeds.
        robust: [M] doubly robust, mean over seeds; None without a reward model.
        robust_draws: [B, M].
        mean_weight: [R, B] mean uncapped weight.
    """

    by_seed: Float[np.ndarray, "R C M"]
    draws: Float[np.ndarray, "B C M"]
    robust: Float[np.ndarray, " M"] | None
    robust_draws: Float[np.ndarray, "B M"] | None
    mean_weight: Float[np.ndarray, "R B"]

    @property
    def value(self) -> Float[np.ndarray, "C M"]:
        """Mean over seeds, under each cap."""
        return self.by_seed.mean(axis=0)

    def estimate(self, at: int, level: float) -> Estimate:
        """Under one cap."""
        return Estimate(self.value[at], bootstrap.interval(self.draws[:, at], level))

    def doubly_robust(self, level: float) -> Estimate | None:
        """The second opinion of a reward model."""
        if self.robust is None or self.robust_draws is None:
            return None
        return Estimate(self.robust, bootstrap.interval(self.robust_draws, level))


def draw(shard: Shard, options: Options) -> dict[str, Drawn]:
    """All policies' estimates on the same draws of users."""
    if len(shard.first.user) < 2:
        raise ValueError(
            "an interval over users needs at least two of them, got 1; "
            "`ncis.values(ncis.accumulate(…))` is the estimate without one."
        )
    every = [one for seeds in shard.policies.values() for one in seeds]
    flat = [shard.first.count, *(array for one in every for array in _columns(one))]
    count, *totals = bootstrap.resampled(flat, options.draws, options.seed)
    found, remaining = {}, iter(totals)
    for name, seeds in shard.policies.items():
        own = [[next(remaining) for _ in _columns(one)] for one in seeds]
        found[name] = _drawn(seeds, own, count, options)
    return found


def change(policy: Drawn, baseline: Drawn, at: int, level: float) -> Change:
    """From `baseline` to `policy` under one cap."""
    value, base = policy.value[at], baseline.value[at]
    draws, base_draws = policy.draws[:, at], baseline.draws[:, at]
    p, relative_draws = bootstrap.p_value(draws - base_draws), relative(draws, base_draws)
    return Change(
        difference=value - base,
        difference_interval=bootstrap.interval(draws - base_draws, level),
        relative=relative(value, base),
        relative_interval=bootstrap.interval(relative_draws, level),
        p=p,
        holm=bootstrap.holm(p),
        significant=bootstrap.holm(p) < 1 - level,
        relative_draws=relative_draws,
    )


def _columns(one: Sums) -> list[Any]:
    """What is drawn of a policy: caps that are all alike only once."""
    weight, reward = one.weight[:, : one.distinct], one.reward[:, : one.distinct]
    return [weight, reward, one.raw, *([] if one.adjusted is None else [one.adjusted])]


def _drawn(seeds: Sequence[Sums], totals: Sequence[Sequence[Any]], count: Any, options: Options) -> Drawn:
    shares = np.full((options.draws, len(seeds)), 1 / len(seeds))
    if options.resample_seeds:
        shares = bootstrap.seed_shares(len(seeds), options.draws, options.seed)
    with np.errstate(divide="ignore", invalid="ignore"):  # a draw without support is NaN
        draws = np.stack([_ratio(own[0], own[1], seeds[0].weight.shape[1]) for own in totals])
    adjusted = [one.adjusted.sum(axis=0) / one.count.sum() for one in seeds if one.adjusted is not None]
    adjusted_draws = [own[3] / count[:, None] for own in totals if len(own) > 3]
    return Drawn(
        by_seed=np.stack([shards.of(one) for one in seeds]),
        draws=np.einsum("rbcm,br->bcm", draws, shares),
        robust=np.mean(adjusted, axis=0) if adjusted else None,
        robust_draws=np.einsum("rbm,br->bm", adjusted_draws, shares) if adjusted else None,
        mean_weight=np.stack([own[2] / count for own in totals]),
    )


def _ratio(weight: Any, reward: Any, caps: int) -> Float[np.ndarray, "B C M"]:
    """The last of the distinct caps stands for those above it."""
    found = reward / weight[..., None]
    return found[:, np.minimum(np.arange(caps), found.shape[1] - 1)]


def relative(value: Any, base: Any) -> Any:
    """V / V_b − 1; NaN where the baseline is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(base == 0, np.nan, value / base - 1)
