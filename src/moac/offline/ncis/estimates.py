"""Estimates with intervals over users: the bootstrap, changes to a baseline on the same draws, and the cap sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from moac.arguments import checked
from moac.offline.ncis.sums import Options, Shard, Sums

_ROUNDING = 1e-12
"""Two values that differ by such a share are the same."""
_BLOCK = 4_000_000
"""Numbers of the matrix of draws that are in memory at once: 32 MB."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value for each signal, and its interval over users; NaN where a draw of users does not support the policy."""

    value: Float[np.ndarray, " M"]
    interval: Float[np.ndarray, "M 2"]


@dataclass(frozen=True, eq=False)
class Change:
    """The change from the baseline's value to a policy's, users drawn alike for both."""

    difference: Float[np.ndarray, " M"]  # V − V_b, in units of the reward: positive is better, also for a cost
    difference_interval: Float[np.ndarray, "M 2"]
    relative: Float[np.ndarray, " M"]  # V / V_b − 1, of the signal: a cost that falls is negative
    relative_interval: Float[np.ndarray, "M 2"]
    p: Float[np.ndarray, " M"]  # two-sided p-value of the difference
    holm: Float[np.ndarray, " M"]  # the same, adjusted for M signals
    significant: Bool[np.ndarray, " M"]  # `holm` is below 1 − level
    # In each draw of users, the same for all policies of a report: two policies' draws can be subtracted.
    relative_draws: Float[np.ndarray, "B M"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Drawn:
    """One method's estimates, and what they are for each draw of users."""

    by_seed: Float[np.ndarray, "R C M"]  # of each training seed, under each cap
    draws: Float[np.ndarray, "B C M"]  # mean over seeds
    robust: Float[np.ndarray, " M"] | None  # doubly robust, mean over seeds; None without a reward model
    robust_draws: Float[np.ndarray, "B M"] | None
    mean_weight: Float[np.ndarray, "R B"]  # mean uncapped weight

    @property
    def value(self) -> Float[np.ndarray, "C M"]:
        """Mean over seeds, under each cap."""
        return self.by_seed.mean(axis=0)

    def estimate(self, at: int, level: float) -> Estimate:
        """The estimate under one cap."""
        return Estimate(self.value[at], interval(self.draws[:, at], level))

    def doubly_robust(self, level: float) -> Estimate | None:
        """The second opinion of a reward model."""
        if self.robust is None or self.robust_draws is None:
            return None
        return Estimate(self.robust, interval(self.robust_draws, level))


def draw(shard: Shard, options: Options, noise: Mapping[str, Any] | None = None) -> dict[str, Drawn]:
    """All policies' estimates on the same draws of users; `noise` are draws of the behaviour model's error."""
    if len(shard.first.user) < 2:
        raise ValueError(
            "an interval over users needs at least two of them, got 1; "
            "`ncis.values(ncis.accumulate(…))` is the estimate without one."
        )
    flat = [array for seeds in shard.policies.values() for one in seeds for array in _columns(one)]
    count, *columns = resampled([shard.first.count, *flat], options.draws, options.seed)
    totals = iter(columns)
    drawn = {
        name: _drawn(seeds, [[next(totals) for _ in _columns(one)] for one in seeds], count, options)
        for name, seeds in shard.policies.items()
    }
    moved = {
        name: replace(drawn[name], draws=drawn[name].draws + each[:, None]) for name, each in (noise or {}).items()
    }
    return drawn | moved


def model_noise(influence: Mapping[str, Float[np.ndarray, "T M"]], options: Options) -> dict[str, Any]:
    """Draws [B, M] of what the behaviour model's error does to each policy's values.

    `influence` is what each of the T users that the model was fitted on moves the value by, to first order. These users
    are other ones than those of the estimate, and are drawn on their own, alike for all policies.
    """
    if not influence:
        return {}
    drawn = resampled(list(influence.values()), options.draws, options.seed + 1)
    return {name: x - each.sum(axis=0) for (name, each), x in zip(influence.items(), drawn, strict=True)}


def _columns(one: Sums) -> list[Any]:
    """What is drawn of a policy: caps that are all alike only once."""
    weight, reward = one.weight[:, : one.distinct], one.reward[:, : one.distinct]
    return [weight, reward, one.raw, *([] if one.adjusted is None else [one.adjusted])]


def _drawn(seeds: Sequence[Sums], totals: Sequence[Sequence[Any]], count: Any, options: Options) -> Drawn:
    R = len(seeds)
    shares = np.full((options.draws, R), 1 / R)  # of each training seed in each draw
    if options.resample_seeds:
        rng = np.random.default_rng([options.seed, 1, R])
        shares = (rng.integers(R, size=shares.shape)[:, :, None] == np.arange(R)).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a draw without support is NaN
        draws = np.stack([_ratio(each[0], each[1], seeds[0].weight.shape[1]) for each in totals])
    adjusted = [one.adjusted.sum(axis=0) / one.count.sum() for one in seeds if one.adjusted is not None]
    adjusted_draws = [each[3] / count[:, None] for each in totals if len(each) > 3]
    return Drawn(
        by_seed=np.stack([one.values for one in seeds]),
        draws=np.einsum("rbcm,br->bcm", draws, shares),
        robust=np.mean(adjusted, axis=0) if adjusted else None,
        robust_draws=np.einsum("rbm,br->bm", adjusted_draws, shares) if adjusted else None,
        mean_weight=np.stack([each[2] / count for each in totals]),
    )


def _ratio(weight: Any, reward: Any, caps: int) -> Float[np.ndarray, "B C M"]:
    """The last of the distinct caps stands for those above it."""
    values = reward / weight[..., None]
    return values[:, np.minimum(np.arange(caps), values.shape[1] - 1)]


def resampled(arrays: Sequence[Any], draws: int, seed: int) -> list[Any]:
    """Σ_u n_u x_u [draws, …] for each array of per-user sums x [U, …], with the same n for all of them.

    n is multinomial, as of U users drawn with replacement: the textbook's bootstrap. (Poisson weights need no common U,
    but leave some draws of few users empty; here shards are merged first.) Users are whole: the correlation within a
    user's rows is in the spread. Numerators and denominators are drawn alike, so that a ratio is computed anew in
    each draw. Draw b depends on the seed, b and U alone.
    """
    size = len(arrays[0])
    flat = [np.reshape(array, (size, -1)) for array in arrays]
    sums = [np.empty((draws, array.shape[1])) for array in flat]
    for begin, n in [(0, _counts(size, draws, seed))] if draws * size <= _BLOCK else _blocks(size, draws, seed):
        for out, array in zip(sums, flat, strict=True):
            np.matmul(n, array, out=out[begin : begin + len(n)])
    return [out.reshape(draws, *np.shape(array)[1:]) for out, array in zip(sums, arrays, strict=True)]


@lru_cache(maxsize=1)
def _counts(size: int, draws: int, seed: int) -> Float[np.ndarray, "draws size"]:
    """All of the counts, where they are few: a search for Γ asks for the same draws many times."""
    ((_, n),) = _blocks(size, draws, seed)
    return n


def _blocks(size: int, draws: int, seed: int) -> Iterator[tuple[int, Float[np.ndarray, "b size"]]]:
    """How often each of `size` users is drawn, in blocks of draws; the array is used again for the next block."""
    rng = np.random.default_rng([seed, 0])
    n = np.empty((min(draws, max(1, _BLOCK // size)), size))
    for begin in range(0, draws, len(n)):
        n = n[: draws - begin]
        for row in n:
            row[:] = np.bincount(rng.integers(size, size=size), minlength=size)
        yield begin, n


def interval(draws: Float[np.ndarray, "B ..."], level: float) -> Float[np.ndarray, "... 2"]:
    """Percentile interval of each entry; NaN where any draw is."""
    tail = (1 - level) / 2
    return np.moveaxis(np.quantile(draws, [tail, 1 - tail], axis=0), 0, -1)


def p_value(draws: Float[np.ndarray, "B ..."]) -> Float[np.ndarray, "..."]:
    """Two-sided: twice the smaller share of draws of a difference on either side of 0; 1 where a draw is undefined.

    p = min(1, 2 min(1 + #{d ≤ 0}, 1 + #{d ≥ 0}) / (1 + B)),  at least 2/(1 + B).
    """
    below, above = ((draws <= 0).sum(axis=0), (draws >= 0).sum(axis=0))
    p = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + len(draws)))
    return np.where(np.isnan(draws).any(axis=0), 1.0, p)


@checked
def holm(p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Adjusted p-values: below α together with a chance of at most α of any false one among the M (Holm 1979).

    In ascending order, p̃_(k) = max_{j ≤ k} min(1, (M − j + 1) p_(j)).
    """
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted


def change(policy: Drawn, baseline: Drawn, at: int, level: float) -> Change:
    """The change from `baseline` to `policy` under one cap."""
    value, base = policy.value[at], baseline.value[at]
    draws, base_draws = policy.draws[:, at], baseline.draws[:, at]
    difference_draws, relative_draws = _difference(draws, base_draws), _relative(draws, base_draws)
    p = p_value(difference_draws)
    return Change(
        difference=value - base,
        difference_interval=interval(difference_draws, level),
        relative=_relative(value, base),
        relative_interval=interval(relative_draws, level),
        p=p,
        holm=holm(p),
        significant=holm(p) < 1 - level,
        relative_draws=relative_draws,
    )


def _difference(value: Any, base: Any) -> Any:
    """V − V_b; 0 where that is rounding: of a signal that is always the same it can have one sign in all draws."""
    difference = value - base
    return np.where(np.abs(difference) <= _ROUNDING * np.abs(base), 0.0, difference)


def _relative(value: Any, base: Any) -> Any:
    """V / V_b − 1; NaN where the baseline is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(base == 0, np.nan, value / base - 1)


@dataclass(frozen=True)
class Flip:
    """Two policies whose order on a signal depends on the cap."""

    signal: str
    better: str  # at `cap`; the other way round at `other_cap`
    worse: str
    cap: float  # where the two differ most, either way
    other_cap: float
    separated: bool  # some cap tells them apart: its paired interval leaves 0 out. Otherwise they are tied under all

    def __str__(self) -> str:
        return (
            f"{self.signal}: {self.better} is better than {self.worse} with cap {self.cap:g}, "
            f"worse with cap {self.other_cap:g}: their order is undecided"
        )


@dataclass(frozen=True, eq=False)
class Sweep:
    """Estimates under several caps; the last cap is infinity, which is SNIPS."""

    caps: tuple[float, ...]  # C of them, ascending
    value: Mapping[str, Float[np.ndarray, "C M"]]  # for each policy
    interval: Mapping[str, Float[np.ndarray, "C M 2"]]  # for each policy
    flips: tuple[Flip, ...]  # pairs of policies whose order changes
    relative: Mapping[str, Float[np.ndarray, "C M"]]  # V / V_b − 1 for each policy but the baseline; empty without one
    relative_interval: Mapping[str, Float[np.ndarray, "C M 2"]]  # of it, users drawn alike for both


def sweep(
    drawn: Mapping[str, Drawn],
    caps: Sequence[float],
    signals: tuple[str, ...],
    level: float,
    baseline: str | None = None,
) -> Sweep:
    """Estimates and changes under all caps, on the same draws."""
    base = None if baseline is None else drawn[baseline]
    others = {} if base is None else {name: each for name, each in drawn.items() if each is not base}
    return Sweep(
        tuple(caps),
        {name: each.value for name, each in drawn.items()},
        {name: interval(each.draws, level) for name, each in drawn.items()},
        tuple(flip for pair in combinations(drawn, 2) for flip in _flips(pair, drawn, caps, signals, level)),
        {name: _relative(each.value, base.value) for name, each in others.items() if base},
        {name: interval(_relative(each.draws, base.draws), level) for name, each in others.items() if base},
    )


def _flips(
    pair: tuple[str, str], drawn: Mapping[str, Drawn], caps: Sequence[float], signals: tuple[str, ...], level: float
) -> Iterator[Flip]:
    one, other = (drawn[name] for name in pair)
    difference = one.value - other.value
    low, high = np.moveaxis(interval(one.draws - other.draws, level), -1, 0)
    separated = ((low > 0) | (high < 0)).any(axis=0)
    for k in np.flatnonzero((difference.max(axis=0) > 0) & (difference.min(axis=0) < 0)):
        most, least = int(difference[:, k].argmax()), int(difference[:, k].argmin())
        yield Flip(signals[k], *pair, caps[most], caps[least], bool(separated[k]))
