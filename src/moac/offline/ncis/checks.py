"""What could refute an estimate: negative controls, balance of covariates and tails, from rows and their weights.

Intervals here are over users and linearised: with ψ_u the sum over a user's rows of their part in the number, its
variance is Σ_u ψ_u² · U / (U − 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.offline.ncis import sensitivity
from moac.offline.ncis.estimates import holm
from moac.offline.ncis.limits import MIN_POSITIVES, MIN_USERS
from moac.offline.ncis.rows import Logged
from moac.offline.ncis.sensitivity import Sensitivity
from moac.offline.ncis.sums import Options

_HEAVIEST, _SCALE_CAP = 0.01, 0.99
"""Share of rows and users that are called heaviest; quantile at which a heavy-tailed signal is also cut off."""
_CONSTANT = 1e-9
"""A column whose standard deviation is at most such a share of its largest number does not vary."""
_LISTED = 10
"""Covariates that are listed."""
_NEAR_TIE = 0.1
"""The threshold of a tail is raised by this share of the mean excess. Where a policy is close to the log's, weights are
nearly 1 and counts nearly tied: an excess of a thousandth beside one of 1 would look like the heaviest tail."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """One method's importance ratios π/b on the rows of a log."""

    ratio: Float[np.ndarray, "R N"]  # of each training seed
    # Σ_a min(π(a|s), c b(a|s)): what a weight under the cap is on average. None where only the probabilities of logged
    # actions are known: then a check uses no cap, and 1.
    mass: Float[np.ndarray, "R N"] | None = None

    def rows(self, chosen: Any) -> Weighted:
        """Of some of the rows."""
        return Weighted(self.ratio[:, chosen], None if self.mass is None else self.mass[:, chosen])

    def shares(self, cap: float, rows: Any = slice(None)) -> tuple[Any, Any]:
        """What each row counts for in the estimate [N], and what it does on average if b is right; each sums to 1."""
        ratio = self.ratio[:, rows]
        centred = self.mass is not None or bool((ratio <= cap).all())
        w = np.minimum(cap, ratio) if centred else ratio
        m = np.ones_like(ratio) if self.mass is None else self.mass[:, rows]
        return _mean_share(w), _mean_share(m)

    def estimate(self, cap: float) -> Float[np.ndarray, " N"]:
        """What each row counts for in V = Σ share · r, mean over training seeds."""
        return _mean_share(np.minimum(cap, self.ratio))


def _mean_share(w: Float[np.ndarray, "R N"]) -> Float[np.ndarray, " N"]:
    total = w.sum(axis=1, keepdims=True)
    return np.divide(w, total, out=np.zeros_like(w), where=total > 0).mean(axis=0)


@dataclass(frozen=True, eq=False)
class Control:
    """Columns that a policy cannot have changed: by default the user's earlier rewards, one for each signal."""

    name: str
    values: Float[np.ndarray, "N J"]  # NaN where a row has none
    columns: tuple[str, ...]  # names of the J columns; those of signals stand for these signals
    no_power: str | None = None  # why it could not show anything; None where it could
    soft: bool = False  # the policy may have changed it a little: later rows
    relative: bool = True  # changes are shares of the column's mean; otherwise of its standard deviation
    weights: Mapping[str, Weighted] | None = None  # of policies, where b was refitted without the control
    influence: Mapping[str, Any] = field(default_factory=dict)  # as in `Evidence`, of the columns [T, J]


@dataclass(frozen=True, eq=False)
class Controlled:
    """How weights that may not change a control changed it."""

    name: str
    columns: tuple[str, ...]
    change: Float[np.ndarray, " J"]  # relative to its mean, or in standard deviations
    interval: Float[np.ndarray, "J 2"]
    p: Float[np.ndarray, " J"]  # two-sided, adjusted by Holm over the columns; 1 where fewer than 50 rows have any
    users: int  # that have one
    no_power: str | None
    soft: bool
    relative: bool


@dataclass(frozen=True, eq=False)
class Balance:
    """Weighted against unweighted means of what was known when items were shown, the worst first."""

    names: tuple[str, ...]
    difference: Float[np.ndarray, " D"]  # in standard deviations of the covariate
    interval: Float[np.ndarray, "D 2"]  # over users, adjusted for the number of covariates (Bonferroni)
    covariates: int  # how many were compared

    @property
    def off(self) -> Any:
        """Whose interval leaves 0 out."""
        return (self.interval[:, 0] > 0) | (self.interval[:, 1] < 0)


@dataclass(frozen=True, eq=False)
class Tails:
    """How much of each signal's estimate hangs on few rows."""

    pareto_k: Float[np.ndarray, " M"]  # of w·|r| summed over each user's rows: at ½ its variance ends, at 1 its mean
    heaviest_rows: Float[np.ndarray, " M"]  # share of Σ w|r| on the heaviest 1 % of the rows
    heaviest_users: Float[np.ndarray, " M"]  # the same of the users
    # the relative change of the signal cut off at its 99th percentile, whatever its tail
    capped_at: Float[np.ndarray, " M"]
    capped_change: Float[np.ndarray, " M"]
    capped_interval: Float[np.ndarray, "M 2"]


@dataclass(frozen=True, eq=False)
class Checks:
    """What was tried to refute one policy's estimate."""

    controls: tuple[Controlled, ...]
    balance: Balance | None  # None where no covariates are known, or none varies
    sensitivity: Sensitivity
    tails: Tails
    half_width: Float[np.ndarray, " M"]  # of the interval of the relative change to the log: what controls are held to
    rows: int  # that were checked: all, or those of some users
    users: int


@dataclass(frozen=True, eq=False)
class Evidence:
    """The rows that checks are made on."""

    log: Logged
    weights: Mapping[str, Weighted]  # of each policy
    controls: tuple[Control, ...] = ()
    covariates: Mapping[str, Any] = field(default_factory=dict)  # by name, [N]
    # what each train user's rows move each signal's estimate by, through the fitted behaviour model: by policy [T, M]
    influence: Mapping[str, Any] = field(default_factory=dict)
    strongest: tuple[str, float] | None = None  # the covariate that moves b's odds most, and by how much

    def check(self, name: str, options: Options, noise: Any = None) -> Checks:
        """All checks of one policy; `noise` [B, M] are draws of the behaviour model's error."""
        weights = self.weights[name]
        share = weights.estimate(options.cap)
        mean, _, width = self._moved(share, self.log.reward, options.level)
        width = _with_error_of_b(width, self.influence.get(name), options.level)
        sensitive = sensitivity.analyse(self.log, weights.ratio, options, noise, self.strongest)
        return Checks(
            tuple(self._controlled(control, name, options) for control in self.controls),
            self._balance(share, options.level) if self.covariates else None,
            sensitive,
            self._tails(share, options.level),
            np.divide(width, np.abs(mean), out=np.full_like(width, np.inf), where=mean != 0),
            len(share),
            len(self.log.users[0]),
        )

    def _moved(self, share: Any, columns: Any, level: float) -> tuple[Any, Any, Any]:
        """Unweighted means, differences of the weighted ones to them, and half-widths of their intervals."""
        N, mean = len(share), columns.mean(axis=0)
        weighted = share @ columns
        parts = share[:, None] * (columns - weighted) - (columns - mean) / N
        return mean, weighted - mean, self._half_width(parts, level)

    def _half_width(self, parts: Any, level: float, rows: Any = slice(None)) -> Any:
        sums, count = self.log.user_sums(parts, rows), max(2, len(np.unique(self.log.users[1][rows])))
        return NormalDist().inv_cdf((1 + level) / 2) * np.sqrt((sums**2).sum(axis=0) * count / (count - 1))

    def _controlled(self, control: Control, name: str, options: Options) -> Controlled:
        """Σ w z / Σ w − Σ m z / Σ m over rows that have a value z: 0 on average where nothing unobserved decided."""
        rows = np.flatnonzero(np.isfinite(control.values).all(axis=1))
        z, users = control.values[rows], len(np.unique(self.log.users[1][rows]))
        weak = f"only {users} users have a value" if users < MIN_USERS else None
        about = (users, control.no_power or weak, control.soft, control.relative)
        if not len(rows):
            none = np.full(len(control.columns), np.nan)
            return Controlled(control.name, control.columns, none, np.stack([none, none], 1), none, *about)
        weights = self.weights if control.weights is None else control.weights
        w, m = weights[name].shares(options.cap, rows)
        before, after = m @ z, w @ z
        parts = w[:, None] * (z - after) - m[:, None] * (z - before)
        scale = before if control.relative else z.std(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = (after - before) / scale
            of_rows = self._half_width(parts, options.level, rows)
            half = _with_error_of_b(of_rows, control.influence.get(name), options.level) / np.abs(scale)
        more = varies(z)
        change, half = np.where(more, change, np.nan), np.where(more, half, np.nan)  # not by rounding
        told = more & ((z != 0).sum(axis=0) >= MIN_POSITIVES)  # of a rarer one nothing can be said
        p = np.ones(len(change))
        p[told] = holm(_p_values(change[told], half[told], options.level))
        return Controlled(control.name, control.columns, change, np.stack([change - half, change + half], 1), p, *about)

    def _balance(self, share: Any, level: float) -> Balance | None:
        names = tuple(self.covariates)
        columns = np.stack([np.asarray(self.covariates[name], np.float64) for name in names], axis=1)
        kept, spread = np.flatnonzero(varies(columns)), columns.std(axis=0)
        if not len(kept):
            return None
        each = 1 - (1 - level) / len(kept)
        _, moved, half = self._moved(share, columns[:, kept] / spread[kept], each)
        worst = np.argsort(-np.abs(moved), kind="stable")[:_LISTED]
        interval = np.stack([moved - half, moved + half], axis=1)[worst]
        return Balance(tuple(names[kept[j]] for j in worst), moved[worst], interval, len(kept))

    def _tails(self, share: Any, level: float) -> Tails:
        size = np.abs(self.log.reward)
        parts = share[:, None] * size
        by_user = self.log.user_sums(parts)
        limit = np.quantile(size, _SCALE_CAP, axis=0)
        cut = np.where(limit > 0, limit, size.max(axis=0))  # a signal that fires in fewer rows is left as it is
        mean, moved, half = self._moved(share, np.clip(self.log.reward, -cut, cut), level)
        with np.errstate(divide="ignore", invalid="ignore"):
            change, half = moved / mean, half / np.abs(mean)
        heaviest = (_top(parts), _top(by_user))
        k = np.array([pareto_k(column) for column in by_user.T])
        return Tails(k, *heaviest, cut, change, np.stack([change - half, change + half], 1))


def varies(columns: Float[np.ndarray, "n J"]) -> Any:
    """[J] whether a column has more than one value, up to rounding."""
    return columns.std(axis=0) > _CONSTANT * np.abs(columns).max(axis=0)


def _with_error_of_b(half_width: Any, influence: Any, level: float) -> Any:
    """Half-widths with what train users' rows move through the behaviour model: of other users, so variances add up."""
    if influence is None:
        return half_width
    return np.hypot(half_width, NormalDist().inv_cdf((1 + level) / 2) * np.sqrt((influence**2).sum(axis=0)))


def _p_values(change: Any, half_width: Any, level: float) -> Any:
    """Two-sided, of a normal distribution; 1 where nothing varies."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    size = np.divide(np.abs(change) * z, half_width, out=np.zeros(len(change)), where=half_width > 0)
    return np.array([math.erfc(float(one) / math.sqrt(2)) for one in size])


def _top(parts: Any) -> Any:
    """Share of each column's sum that is in its largest entries."""
    count, total = max(1, round(_HEAVIEST * len(parts))), parts.sum(axis=0)
    top = np.partition(parts, len(parts) - count, axis=0)[len(parts) - count :].sum(axis=0)
    return np.divide(top, total, out=np.zeros_like(total), where=total > 0)


def pareto_k(values: Float[np.ndarray, " n"]) -> float:
    """Shape of the generalised Pareto distribution of the largest values (Zhang & Stephens, Technometrics 2009).

    The tail are the largest min(n/5, 3√n) values, as Vehtari, Simpson, Gelman, Yao and Gabry (2024) take it. Moments of
    order 1/k and above do not exist; bounded values have k < 0. −1 where the tail is constant or has fewer than 5.
    """
    count = int(min(0.2 * len(values), 3 * math.sqrt(len(values))))
    ordered = np.sort(values)
    x = ordered[len(ordered) - count :] - ordered[len(ordered) - count - 1] if count < len(ordered) else ordered
    x = x - _NEAR_TIE * x.mean() if len(x) else x  # a higher threshold has the same k
    x = x[x > 0]
    n = len(x)
    if n < 5 or x[-1] - x[0] <= 1e-12 * x[-1]:
        return -1.0
    grid = 30 + int(math.sqrt(n))
    b = 1 / x[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * x[int(n / 4 + 0.5) - 1])
    b = b[b != 0]
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    score = n * (np.log(-b / k) - k - 1)
    weight = np.exp(score - score.max())
    return float(np.log1p(-(weight @ b / weight.sum()) * x).mean())
