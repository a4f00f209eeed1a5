"""A Pareto archive: policies that no other dominates, what each is worth, its file, and how they are selected.

Exact values. A point is dropped if another is at least as good in every objective and better in one. Going by their
sums, each objective in units of its range, a point is also dropped if one with a larger sum is closer than `SAME` of
the range in every objective, or at least as good up to `SLIGHT`: it would gain next to nothing.

Estimated values, each with a 95 % interval. A point is dropped only if another is at least as good in every objective,
and better in one, with its worse ends against the other's better ends: what the intervals leave open is kept. Points
whose intervals overlap in every objective cannot be told apart: they are merged to the one with the largest sum of
lower ends, in the same units, which is the one that the data support best. More episodes, or users, separate more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from moac import files, momdp
from moac.arguments import Numbers, checked
from moac.choices import below, counted, did_you_mean, several, shown
from moac.training.trained import TrainedPolicy

FILE = "archive.safetensors"
"""Beside `policy.safetensors` of a run directory whose trials are the archived policies."""
_FORMAT = 1
_ARRAYS = ("points", "low", "high", "preferences", "weights", "trials")
SAME = 5e-3
"""Exact points closer than this share of the range, in every objective, are one."""
SLIGHT = 1e-3
"""A gain of less than this share of the range, in no objective more, is none."""
_FLOOR = re.compile(r"(?P<name>.+?)=(?P<value>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)(?P<relative>%?)")
Points = Float[np.ndarray, "N M"]


@dataclass(frozen=True, eq=False)
class Archive:
    """A policies, with what is known of each.

    Attributes:
        points: J [A, M].
        low: the lower end of each value's 95 % interval [A, M]; where values are exact, the value.
        high: the upper end, likewise.
        preferences: p [A, M] that each was trained for; NaN where its rule takes none.
        weights: λ [A, M] of its last update.
        rules: how each was trained, by name; on a model also `RULE, stage 1` …, and each with `, greedy`.
        trials: [A] its number among the trials of its rule.
        kind: how values are known: `exact`, `episodes` or `ncis`.
        objectives: their names.
        policies: the policies, one trial each, or one network for all preferences; None while only their values are at
            hand.
        exploration: how they were found (`moac.search.explore.Exploration`); None where the archive was read.
    """

    points: Float[np.ndarray, "A M"]
    low: Float[np.ndarray, "A M"]
    high: Float[np.ndarray, "A M"]
    preferences: Float[np.ndarray, "A M"]
    weights: Float[np.ndarray, "A M"]
    rules: tuple[str, ...]
    trials: Int[np.ndarray, " A"]
    kind: str
    objectives: tuple[str, ...] = ()
    policies: TrainedPolicy | None = None
    exploration: Any = None

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        size = f"{counted(len(self), 'policy')}, {counted(self.points.shape[1], 'objective')}"
        return f"Archive({size}, values: {self.kind})"

    @checked
    def policy(self, index: int) -> TrainedPolicy:
        """The policy of a point, ready to act; as an array (`momdp.evaluate`) it holds the tables of all points."""
        if self.policies is None:
            raise ValueError("the archive holds only values: moac.load(folder).archive has the policies too.")
        below(len(self)).checked("index", index)
        if self.policies.conditioned_on:
            return self.policies.at(self.preferences[index])
        return self.policies.of_trial(index)

    @checked
    def best_for(self, preference: Numbers) -> int:
        """The point with the largest pᵀJ."""
        p = np.asarray(preference, dtype=np.float64)
        if p.shape != self.points.shape[1:]:
            raise ValueError(f"`preference` must hold one number per objective ({self.points.shape[1]}), got {p.size}.")
        if not (np.isfinite(p).all() and (p >= 0).all() and p.any()):
            raise ValueError(f"`preference` must be finite numbers of at least 0, not all 0, got {shown(preference)}.")
        return int(np.argmax(self.points @ p))

    @checked
    def choose(self, protect: str | Sequence[str] = (), prefer: str | Sequence[str] = ()) -> Choice:
        """The point with the most of what is preferred, among those that keep floors; else the nearest to the floors.

        Args:
            protect: floors such as `fuel=-1.5`, or `fuel=-1%`, relative to the archive's best; the lower end of a
                point's interval keeps them, or its value where it has none.
            prefer: objectives whose sum is to be largest, each in units of its range; none are all of them.
        """
        names, unit = self.objectives, span(self.points)
        for name in several(prefer):
            _known("prefer", name, names)
        floors = _floors(several(protect), self.points.max(axis=0), names)
        preferred = tuple(dict.fromkeys(several(prefer))) or names
        short, low = np.zeros(len(self)), np.where(np.isnan(self.low), self.points, self.low)
        for name, floor in floors.items():
            i = names.index(name)
            short = np.maximum(short, (floor - low[:, i]) / unit[i])
        gain = sum((self.points[:, i] / unit[i] for i in map(names.index, preferred)), np.zeros(len(self)))
        best = int(np.lexsort((-gain, short))[0])
        return Choice(self, best, floors, preferred, float(short[best]))

    @checked
    def hypervolume(self, reference: Numbers) -> float:
        """The volume that the points dominate above a reference [M]."""
        return momdp.hypervolume(self.points, reference)

    @checked
    def save(self, directory: str | Path) -> Path:
        """Write the folder of an exploration, with its figures and its report; `moac.load` reads it."""
        from moac.report.pages import exploration

        return exploration.save(self, Path(directory))

    @property
    def trained_by(self) -> tuple[str, ...]:
        """The weighting rule of each, without stage and form."""
        return tuple(name.partition(", ")[0] for name in self.rules)

    def arrays(self) -> files.Arrays:
        """The arrays by name."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def picked(self, index: Any) -> Archive:
        """Some of the points, without their policies."""
        chosen = np.asarray(index, dtype=np.int64)
        arrays: dict[str, Any] = {name: array[chosen] for name, array in self.arrays().items()}
        rules = tuple(self.rules[k] for k in chosen)
        return Archive(**arrays, rules=rules, kind=self.kind, objectives=self.objectives)

    def record(self, k: int) -> dict[str, Any]:
        """A policy as plain data."""
        return {
            "returns": self.points[k],
            "interval": None if self.kind == "exact" else np.stack([self.low[k], self.high[k]], axis=1),
            "preference": None if np.isnan(self.preferences[k]).any() else self.preferences[k],
            "weights": self.weights[k],
            "rule": self.rules[k],
            "trial": int(self.trials[k]),
        }

    def write(self, folder: Path) -> None:
        """Values and origins; the policies are those of the folder's run."""
        about = {"format": _FORMAT, "kind": self.kind, "rules": list(self.rules), "objectives": list(self.objectives)}
        files.write_arrays(folder / FILE, self.arrays(), about)


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """The point of an archive that fits, or the one that comes nearest to its floors."""

    archive: Archive
    index: int  # of the point
    floors: dict[str, float]  # the least of each protected objective, by name
    preferred: tuple[str, ...]  # objectives whose sum is largest, in units of their ranges
    short: float  # by how much, in units of the ranges, its lower ends miss a floor at most; 0 where all are kept

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
        about = {"chosen": self.index if self.fits else None, "point": self.index, "fits": self.fits}
        about |= {"floors": self.floors, "preferred": list(self.preferred)}
        return about | {"objectives": list(self.archive.objectives)} | self.archive.record(self.index)


def joined(archives: Sequence[Archive]) -> Archive:
    """All points of several archives, one after the other."""
    arrays: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in archives]) for name in _ARRAYS}
    rules, first = tuple(rule for each in archives for rule in each.rules), archives[0]
    return Archive(**arrays, rules=rules, kind=first.kind, objectives=first.objectives)


def read(folder: Path, policies: TrainedPolicy) -> Archive | None:
    """The archive of a run directory, whose trials are the policies; None where it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    stored, about = files.read_arrays(path)
    if about.get("format") != _FORMAT:
        raise files.DamagedError(path, f"its format is {about.get('format')!r} in place of {_FORMAT}")
    with files.interpreting(path):
        arrays: dict[str, Any] = {name: stored[name] for name in _ARRAYS}
        arrays |= {"rules": tuple(about["rules"]), "objectives": tuple(about.get("objectives", ()))}
        archive = Archive(**arrays, kind=str(about["kind"]), policies=policies)
    count = len(archive.rules) if policies.conditioned_on else policies.num_trials
    expected = (count, archive.points.shape[-1])
    for name, array in archive.arrays().items():
        if array.shape != (expected if name != "trials" else expected[:1]) or len(archive.rules) != expected[0]:
            raise files.DamagedError(path, f"`{name}` has shape {array.shape}, the run has {expected[0]} policies")
    return archive


def select(candidates: Archive) -> Int[np.ndarray, " A"]:
    """Indices of the points that make the archive, in lexicographic order of their values, best first."""
    return selected(candidates.points, candidates.low, candidates.high, exact=candidates.kind == "exact")


def selected(points: Points, low: Points, high: Points, exact: bool = False) -> Int[np.ndarray, " A"]:
    """The same for points with the ends of their intervals, or with exact values."""
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    if not len(known):
        raise ValueError("no policy has finite values in all objectives: nothing to archive. Try smaller step sizes.")
    points, low, high = (array[known] for array in (points, low, high))
    unit = span(points)
    if exact:
        gain = points[:, None] - points[None]
        alike = np.asarray((np.abs(gain) <= SAME * unit).all(axis=2) | (gain <= SLIGHT * unit).all(axis=2))
        kept = _merged(np.flatnonzero(momdp.non_dominated(points)), points / unit, alike)
    else:
        kept = _merged(np.flatnonzero(~surely_dominated(low, high)), low / unit, overlapping(low, high))
    order = np.lexsort(-points[kept].T[::-1])
    return known[np.array(kept)[order]]


def surely_dominated(low: Points, high: Points) -> Bool[np.ndarray, " N"]:
    """Where another point's lower ends are at least the upper ends, and above in one objective."""
    better = (low[:, None] >= high[None]).all(axis=2) & (low[:, None] > high[None]).any(axis=2)
    return np.asarray(better.any(axis=0))


def overlapping(low: Points, high: Points) -> Bool[np.ndarray, "N N"]:
    """Pairs whose intervals meet in every objective."""
    return np.asarray(((low[:, None] <= high[None]) & (low[None] <= high[:, None])).all(axis=2))


def span(points: Points) -> Float[np.ndarray, " M"]:
    """The range of each objective; where that is nothing, the size of its values, or 1."""
    width, size = np.ptp(points, axis=0), np.abs(points).max(axis=0)
    return np.where(width > 0, width, np.where(size > 0, size, 1.0))


def _merged(indices: Any, scaled: Points, alike: Bool[np.ndarray, "N N"]) -> list[int]:
    """Indices in falling order of their sums, without those that are like one kept before: `alike[k, kept]`."""
    kept: list[int] = []
    for k in indices[np.argsort(-scaled[indices].sum(axis=1), kind="stable")]:
        if not alike[k, kept].any():
            kept.append(int(k))
    return kept


def _floors(texts: Sequence[str], best: Float[np.ndarray, " M"], names: tuple[str, ...]) -> dict[str, float]:
    """The floor of each objective; one in per cent lies so much of the best value's size below the best."""
    floors: dict[str, float] = {}
    for text in texts:
        match = _FLOOR.fullmatch(text.strip())
        if match is None:
            right = "an objective and its least value, such as fuel=-1.5, or a change from the best, such as fuel=-1%"
            raise ValueError(f"`protect` must be {right}, got {shown(text)}.")
        name, value = match["name"], float(match["value"])
        _known("protect", name, names)
        if name in floors:
            raise ValueError(f"`protect` must name an objective once, got {shown(name)} twice.")
        if match["relative"] and value > 0:
            raise ValueError(f"`protect` must be at most 0%, a change from the archive's best, got {shown(text)}.")
        highest = float(best[names.index(name)])
        floors[name] = highest - abs(highest * value) / 100 if match["relative"] else value
    return floors


def _known(argument: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        near = did_you_mean(name, names)
        raise ValueError(f"`{argument}` must name one of {', '.join(names)}, got {shown(name)}.{near}")
