"""Choose a policy of an archive: floors under some objectives are kept, others are to be as large as possible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from moac.choices import did_you_mean
from moac.training.trained import TrainedPolicy

if TYPE_CHECKING:
    from moac.search.archive import Archive

_FLOOR = re.compile(r"(?P<name>.+?)=(?P<value>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)(?P<relative>%?)")


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """The point of an archive that fits, or the one that comes nearest to its floors.

    Attributes:
        archive: what is chosen from.
        index: of the point.
        floors: the least of each protected objective, by name.
        preferred: objectives whose sum is largest, in units of their ranges.
        short: by how much, in units of the ranges, the point's lower ends miss a floor at most; 0 where all are kept.
    """

    archive: Archive
    index: int
    floors: dict[str, float]
    preferred: tuple[str, ...]
    short: float

    def __repr__(self) -> str:
        values = zip(self.archive.objectives, self.archive.points[self.index], strict=True)
        told = ", ".join(f"{name} {value:.4g}" for name, value in values)
        return f"Choice(point {self.index}: {told}{'' if self.fits else '; no point keeps every floor'})"

    @property
    def fits(self) -> bool:
        """Whether the point keeps every floor."""
        return self.short <= 0

    @property
    def policy(self) -> TrainedPolicy:
        """Ready to act."""
        return self.archive.policy(self.index)

    def record(self) -> dict[str, Any]:
        """Plain data."""
        about = {"point": self.index, "fits": self.fits, "floors": self.floors, "preferred": list(self.preferred)}
        return about | {"objectives": list(self.archive.objectives)} | self.archive.record(self.index)


def choose(archive: Archive, protect: Sequence[str], prefer: Sequence[str]) -> Choice:
    """The best of the points that keep all floors; where none does, the one that misses them by least."""
    from moac.search.archive import span

    names, unit = archive.objectives, span(archive.points)
    for name in prefer:
        _known("prefer", name, names)
    floors = _floors(protect, archive.points.max(axis=0), names)
    preferred = tuple(dict.fromkeys(prefer)) or names
    short = np.zeros(len(archive))
    for name, floor in floors.items():
        i = names.index(name)
        short = np.maximum(short, (floor - archive.low[:, i]) / unit[i])
    gain = sum((archive.points[:, i] / unit[i] for i in map(names.index, preferred)), np.zeros(len(archive)))
    best = int(np.lexsort((-gain, short))[0])
    return Choice(archive, best, floors, preferred, float(short[best]))


def _floors(texts: Sequence[str], best: Float[np.ndarray, " M"], names: tuple[str, ...]) -> dict[str, float]:
    """The floor of each objective; one in per cent lies so much of the best value's size below the best."""
    floors: dict[str, float] = {}
    for text in texts:
        match = _FLOOR.fullmatch(text.strip())
        if match is None:
            right = "an objective and its least value, such as fuel=-1.5, or a change from the best, such as fuel=-1%"
            raise ValueError(f"`protect` must be {right}, got {text!r}.")
        name, value = match["name"], float(match["value"])
        _known("protect", name, names)
        if name in floors:
            raise ValueError(f"`protect` must name an objective once, got {name!r} twice.")
        highest = float(best[names.index(name)])
        floors[name] = highest - abs(highest * value) / 100 if match["relative"] else value
    return floors


def _known(argument: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        near = did_you_mean(name, names)
        raise ValueError(f"`{argument}` must name one of {', '.join(names)}, got {name!r}.{near}")
