"""How the answer depends on the cap: values and intervals under each, and rankings that flip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac.offline.ncis import bootstrap
from moac.offline.ncis.estimates import Drawn, relative


@final
@dataclass(frozen=True)
class Flip:
    """Two policies whose order on a signal depends on the cap.

    Attributes:
        signal: its name.
        better, worse: at `cap`; the other way round at `other_cap`.
        cap, other_cap: where the two differ most, either way.
        separated: some cap tells them apart: its paired interval leaves 0 out. Otherwise they are tied under all.
    """

    signal: str
    better: str
    worse: str
    cap: float
    other_cap: float
    separated: bool

    def __str__(self) -> str:
        return (
            f"{self.signal}: {self.better} is better than {self.worse} with cap {self.cap:g}, "
            f"worse with cap {self.other_cap:g}: their order is undecided"
        )


@final
@dataclass(frozen=True, eq=False)
class Sweep:
    """Estimates under several caps; the last cap is infinity, which is SNIPS.

    Attributes:
        caps: C of them, ascending.
        value: [C, M] for each policy.
        interval: [C, M, 2] for each policy.
        flips: pairs of policies whose order changes.
        relative: [C, M] V / V_b − 1 for each policy but the baseline; empty without one.
        relative_interval: [C, M, 2] of it, users drawn alike for both.
    """

    caps: tuple[float, ...]
    value: Mapping[str, Float[np.ndarray, "C M"]]
    interval: Mapping[str, Float[np.ndarray, "C M 2"]]
    flips: tuple[Flip, ...]
    relative: Mapping[str, Float[np.ndarray, "C M"]]
    relative_interval: Mapping[str, Float[np.ndarray, "C M 2"]]


def sweep(
    drawn: Mapping[str, Drawn], caps: Sequence[float], signals: Sequence[str], level: float, baseline: str | None = None
) -> Sweep:
    """Under all caps, on the same draws."""
    base = None if baseline is None else drawn[baseline]
    changed = {} if base is None else {name: own for name, own in drawn.items() if own is not base}
    flips = [
        flip
        for one, other in combinations(drawn, 2)
        for flip in _flips((one, other), (drawn[one], drawn[other]), (caps, signals), level)
    ]
    return Sweep(
        tuple(caps),
        {name: own.value for name, own in drawn.items()},
        {name: bootstrap.interval(own.draws, level) for name, own in drawn.items()},
        tuple(flips),
        {name: relative(own.value, base.value) for name, own in changed.items() if base},
        {name: bootstrap.interval(relative(own.draws, base.draws), level) for name, own in changed.items() if base},
    )


def _flips(names: tuple[str, str], pair: tuple[Drawn, Drawn], axes: tuple[Any, Any], level: float) -> list[Flip]:
    caps, signals = axes
    difference = pair[0].value - pair[1].value
    low, high = np.moveaxis(bootstrap.interval(pair[0].draws - pair[1].draws, level), -1, 0)
    separated = ((low > 0) | (high < 0)).any(axis=0)
    found = []
    for k in np.flatnonzero((difference.max(axis=0) > 0) & (difference.min(axis=0) < 0)):
        most, least = int(difference[:, k].argmax()), int(difference[:, k].argmin())
        found.append(Flip(signals[k], *names, caps[most], caps[least], bool(separated[k])))
    return found
