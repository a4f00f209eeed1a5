"""What could refute an estimate on a dataset: controls, covariates, other models of b, and random exposure.

Past responses in states explain part of how the log chose, and blind the control that is made of them. So the estimate
has all of them in b, and the control is run with b refitted on the responses to every second view of each user, against
the responses to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Bool, Float

from moac.choices import one_of
from moac.kept import with_owner
from moac.logs import features, states
from moac.logs.dataset import LoggedDataset
from moac.offline import behaviour, ncis
from moac.offline.behaviour import BehaviourModel
from moac.offline.ncis import Control, Weighted, estimates
from moac.offline.ncis.limits import MIN_POSITIVES

Recipe = Literal["half", "none"]
"""Which past responses a refitted b knows: those to every second view, or none."""
EARLIER, LATER = "earlier rewards", "later rewards"
TASTE = "taste"
IN_STATE = "it is an input of the behaviour model"
_TENTHS = 10


def refits(dataset: LoggedDataset, split: str) -> dict[Recipe, LoggedDataset]:
    """The dataset with other models of b, fitted once; none where the log knows its propensities.

    None also where states hold no responses, and on train users, whose rows would need models that have not seen them.
    """
    if split == "train" or dataset.tables.responses is None or not isinstance(dataset.behaviour, BehaviourModel):
        return {}
    return {"half": _refitted(dataset, "half"), "none": _refitted(dataset, "none")}


@with_owner
def _refitted(dataset: LoggedDataset, recipe: Recipe) -> LoggedDataset:
    tables, model = dataset.tables, cast("BehaviourModel", dataset.behaviour)  # `refits` has looked
    responses: Any = tables.responses
    known = np.where(~held_out(dataset)[:, None] & (recipe == "half"), responses, np.int8(0))
    masked = replace(dataset, tables=replace(tables, responses=known), propensity=None, behaviour=None, bound_data=None)
    return replace(masked, behaviour=behaviour.fit(masked, model.options, cross_fit=False))


def held_out(dataset: LoggedDataset) -> Any:
    """[H] the views whose responses a control is made of: each user's first, third, fifth and so on."""
    first, H = dataset.tables.first, len(dataset.tables.history)
    return (np.arange(H) - np.repeat(first, np.diff(np.append(first, H)))) % 2 == 0


def of_rewards(
    dataset: LoggedDataset, rows: Any, signals: Sequence[str], half: Mapping[str, Weighted] | None
) -> tuple[Control, Control]:
    """The user's mean reward before and after each of the rows, in views whose responses are known.

    `half` are weights of each policy by b without the held-out responses; None where there is no such b.
    """
    columns, user = [dataset.signal_names.index(name) for name in signals], dataset.user[rows]
    if dataset.tables.responses is None or dataset.answered is None:
        rewards, end = dataset.reward, np.arange(dataset.num_rows)
        first = np.searchsorted(dataset.user, np.arange(dataset.num_users))
        known = features.request_starts(dataset.user, dataset.time)
    else:
        rewards, end, first, known = dataset.tables.responses, dataset.end, dataset.tables.first, dataset.answered
    last = np.append(first[1:], len(rewards))
    kept = np.ones(len(rewards), bool) if half is None else held_out(dataset)
    earlier = _means(rewards, columns, kept, (first[user], known[rows]))
    later = _means(rewards, columns, np.ones(len(rewards), bool), (end[rows] + 1, last[user]))
    blind = half is None and dataset.tables.responses is not None and dataset.behaviour is not None
    names = tuple(signals)
    return (
        Control(EARLIER, earlier, names, IN_STATE if blind else None, weights=half),
        Control(LATER, later, names, soft=True),
    )


def _means(values: Any, columns: Sequence[int], kept: Any, between: tuple[Any, Any]) -> Float[np.ndarray, "n J"]:
    """Means of columns of `values` over kept places in [begin, end) of each row; NaN where there is none."""
    begin, end = (np.asarray(place, np.int64) for place in between)
    end = np.maximum(begin, end)

    def total(column: Any) -> Any:
        sums = np.concatenate([[0.0], np.cumsum(np.where(kept, column, 0), dtype=np.float64)])
        return sums[end] - sums[begin]

    count = total(np.ones(len(kept)))
    sums = np.stack([total(values[:, k]) for k in columns], axis=1)
    return np.divide(sums, count[:, None], out=np.full_like(sums, np.nan), where=count[:, None] > 0)


def of_columns(dataset: LoggedDataset, rows: Any, names: Sequence[str]) -> tuple[Control, ...]:
    """Columns that the user names as controls: of the context, or `time`, which no state holds."""
    known = (*dataset.context_labels, "time")

    def control(name: str) -> Control:
        place = known.index(one_of("control", name, known))
        column = dataset.time if name == "time" else dataset.context[:, place]
        fitted = dataset.behaviour is not None and name != "time"
        values = column[rows].astype(np.float64)[:, None]
        return Control(name, values, (name,), IN_STATE if fitted else None, relative=False)

    return tuple(map(control, names))


def places_in_state(dataset: LoggedDataset) -> dict[str, slice]:
    """Covariates by name, as places in a state: the user, each column of the context, views, past responses."""
    names = ("user features", *dataset.context_labels, "viewed items", "past responses", TASTE)
    widths = states.widths(dataset.tables, len(dataset.response_scale))
    ends = np.cumsum(widths).tolist()
    return {name: slice(end - width, end) for name, end, width in zip(names, ends, widths, strict=True)}


def covariates(dataset: LoggedDataset) -> dict[str, int]:
    """The numbers of a state that balance is asked of, by name: all but those of viewed items and of taste."""
    names = dataset.feature_names
    asked = (place for block, place in places_in_state(dataset).items() if block not in ("viewed items", TASTE))
    return {names[at]: at for place in asked for at in range(place.start, place.stop)}


def tenths_of_time(dataset: LoggedDataset, rows: Any) -> dict[str, Any]:
    """Which tenth of the rows' time each row is in, as covariates."""
    time = dataset.time[rows]
    tenth = np.searchsorted(np.quantile(time, np.linspace(0, 1, _TENTHS + 1)[1:-1]), time, side="right")
    return {f"time, tenth {k + 1}": tenth == k for k in range(_TENTHS)}


@dataclass(frozen=True, eq=False)
class Exposure:
    """The relative change of each signal from the behaviour policy to another, by chance and by the log."""

    signals: tuple[str, ...]
    rows: int  # of random exposure
    users: int  # that have any
    events: Float[np.ndarray, " M"]  # rows of random exposure with the signal
    change: Float[np.ndarray, " M"]  # on random exposure
    interval: Float[np.ndarray, "M 2"]  # over users
    standard: Float[np.ndarray, " M"]  # on the same users' standard rows
    standard_interval: Float[np.ndarray, "M 2"]
    difference: Float[np.ndarray, " M"]  # standard minus random: what the log shows and chance does not
    difference_interval: Float[np.ndarray, "M 2"]  # users drawn alike for both
    level: Float[np.ndarray, " M"]  # mean reward of the behaviour policy on random exposure
    standard_level: Float[np.ndarray, " M"]  # and on the same users' standard rows

    def of(self, signal: str) -> dict[str, Any] | None:
        """One signal as plain data, each change with the ends of its interval; None where there is too little."""
        k = self.signals.index(signal) if signal in self.signals else None
        if k is None or not self.estimable[k]:
            return None
        ends = {"change": self.interval, "standard": self.standard_interval, "difference": self.difference_interval}
        told = {name: [float(getattr(self, name)[k]), *map(float, end[k])] for name, end in ends.items()}
        levels = {"level": float(self.level[k]), "standard_level": float(self.standard_level[k])}
        return told | {"rows": self.rows, "users": self.users, "events": int(self.events[k])} | levels

    @property
    def estimable(self) -> Bool[np.ndarray, " M"]:
        """Whether there are enough rows with the signal."""
        return self.events >= MIN_POSITIVES


def exposures(
    dataset: LoggedDataset, methods: Mapping[str, Any], probabilities: Any, options: ncis.Options
) -> dict[str, Exposure]:
    """What random exposure says of each method; nothing where the log has none, or no model of how it chose.

    On rows of uniformly random exposure nothing unobserved can have decided, and no policy was trained on them: all of
    them are used, whatever the split of their users. Beside it stands the same change on the same users' standard rows,
    and the difference of the two, which is 0 on average where the standard log is not confounded. Levels differ for
    other reasons, such as who is shown random items and where, and are a footnote.

    `probabilities` is `evaluate.probabilities`: (dataset, policy, θ, rows) ↦ [R, n] of logged actions.
    """
    random, model, known = dataset.random, dataset.behaviour, dataset.propensity
    if random is None or model is None or known is None or len(np.unique(random.user)) < 2:
        return {}
    users, everywhere = np.unique(random.user), np.arange(random.num_rows)
    rows = np.flatnonzero(np.isin(dataset.user, users))
    by_chance = partial(_sums, random, everywhere, users, np.inf)
    by_log = partial(_sums, dataset, rows, users, options.cap)
    base, logged = by_chance(probabilities(random, *model.method, everywhere)), by_log(known[rows][None])

    def one(method: Any) -> Exposure:
        theirs = by_chance(probabilities(random, *method, everywhere)), by_log(probabilities(dataset, *method, rows))
        changes = [_changes(*pair, options) for pair in zip(theirs, (base, logged), strict=True)]
        events = (random.reward != 0).sum(axis=0)
        (change, chance_draws), (standard, log_draws) = changes
        intervals = (estimates.interval(draws, options.level) for draws in (chance_draws, log_draws))
        difference = estimates.interval(log_draws - chance_draws, options.level)
        levels = (np.abs(_value(sums)[0]) for sums in (base, logged))
        first, second = intervals
        about = (dataset.signal_names, random.num_rows, len(users), events)
        return Exposure(*about, change, first, standard, second, standard - change, difference, *levels)

    return {name: one(method) for name, method in methods.items()}


def _sums(
    source: LoggedDataset, rows: Any, users: Any, cap: float, p: Float[np.ndarray, "R n"]
) -> Float[np.ndarray, "U R 1+M"]:
    """Σ w and Σ w r of each user under each training seed, w = min(C, π/π_b); zeros of a user without rows."""
    known: Any = source.propensity
    w = np.minimum(p / known[rows], cap)
    reward = np.column_stack([np.ones(len(rows)), source.reward[rows]]).astype(np.float64)
    sums = np.zeros((len(users), len(w), reward.shape[1]))
    np.add.at(sums, np.searchsorted(users, source.user[rows]), w.T[:, :, None] * reward[:, None])
    return sums


def _value(sums: Float[np.ndarray, "U R 1+M"]) -> Float[np.ndarray, "1 M"]:
    """Σ w r / Σ w, mean over training seeds."""
    return _ratio(sums.sum(axis=0)[None])


def _ratio(total: Float[np.ndarray, "B R 1+M"]) -> Float[np.ndarray, "B M"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (total[..., 1:] / total[..., :1]).mean(axis=1)


def _changes(policy: Any, base: Any, options: ncis.Options) -> tuple[Any, Any]:
    """V / V_b − 1, and in each draw of users; a cost that falls is negative."""
    drawn = estimates.resampled([policy, base], options.draws, options.seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (_value(policy) / _value(base) - 1)[0], _ratio(drawn[0]) / _ratio(drawn[1]) - 1
