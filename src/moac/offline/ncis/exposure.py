"""The same policies on rows of random exposure, whose propensities nobody had to estimate: do both logs agree?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis import bootstrap, estimates
from moac.offline.ncis.diagnostics import Diagnostics, diagnose
from moac.offline.ncis.estimates import Drawn, Estimate
from moac.offline.ncis.options import Options
from moac.offline.ncis.shards import Shard, supported


@final
@dataclass(frozen=True, eq=False)
class Agreement:
    """One policy's estimate on the log beside that on random exposure, where no cap is used.

    Attributes:
        estimate: on random exposure.
        diagnostics: of it, for the first training seed.
        difference: [M] on the log minus on random exposure.
        difference_interval: [M, 2] users of the two logs drawn independently: wide rather than narrow, if they are
            the same people.
        holm: [M] p-values of the difference, adjusted for M signals.
        checked: [M] random exposure has enough positives to say.
        agrees: [M] `holm` is not below 1 − level, where checked.
    """

    estimate: Estimate
    diagnostics: Diagnostics
    difference: Float[np.ndarray, " M"]
    difference_interval: Float[np.ndarray, "M 2"]
    holm: Float[np.ndarray, " M"]
    checked: Bool[np.ndarray, " M"]
    agrees: Bool[np.ndarray, " M"]


def uncapped(options: Options) -> Options:
    """For random exposure: propensities are known, and a cap would only add bias."""
    return replace(options, cap=math.inf, caps=(math.inf,))


def agreement(drawn: dict[str, Drawn], at: int, random: Shard, options: Options) -> dict[str, Agreement]:
    """Of each policy that both logs have; `random` was accumulated with `uncapped(options)`."""
    names = [name for name in drawn if name in random.policies]
    if not names or random.cap != math.inf:
        raise ValueError("random exposure must have some of the log's policies, accumulated with `uncapped(options)`.")
    if any(own.value.shape[1] != len(random.signal_names) for own in drawn.values()):
        raise ValueError(f"random exposure must have the log's signals, got {', '.join(random.signal_names)}.")
    supported(random)
    there = estimates.draw(random, replace(uncapped(options), seed=options.seed + 1))
    return {name: _compared((drawn[name], at), there[name], random.policies[name][0], options) for name in names}


def _compared(ours: tuple[Drawn, int], theirs: Drawn, sums: Any, options: Options) -> Agreement:
    drawn, at = ours
    draws = drawn.draws[:, at] - theirs.draws[:, -1]
    adjusted = bootstrap.holm(bootstrap.p_value(draws))
    diagnostics = diagnose(sums, -1, theirs.mean_weight[0], options.level)
    return Agreement(
        estimate=theirs.estimate(-1, options.level),
        diagnostics=diagnostics,
        difference=drawn.value[at] - theirs.value[-1],
        difference_interval=bootstrap.interval(draws, options.level),
        holm=adjusted,
        checked=diagnostics.estimable,
        agrees=~diagnostics.estimable | (adjusted >= 1 - options.level),
    )
