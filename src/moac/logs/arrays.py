"""Datasets from arrays of one's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moac.arguments import checked
from moac.choices import LARGEST_REWARD, SMALLEST_PROPENSITY, counted
from moac.logs import candidates, features, schema
from moac.logs.dataset import LoggedDataset
from moac.logs.splits import SHARES, Rule
from moac.logs.states import Tables, lists_of

_KINDS = {"user": ("iuU", "whole numbers or texts"), "action": ("iuU", "whole numbers or texts")}
_KINDS |= {"context": ("iu", "whole numbers"), "time": ("iuf", "numbers, or dates of NumPy")}
_WIDTH = 8
"""Numbers of an action without features, where there are many."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A log as columns of equal length, for `LoggedDataset.from_numpy`."""

    user: Any  # [N] whole numbers or texts that name users
    action: Any  # [N] whole numbers or texts that name actions
    reward: Any  # [N, M] signals as they were logged, costs positive
    time: Any = None  # [N] order within a user; None is the order given
    # [N, C] codes 0, 1, … of the request; a code that no train user has is unknown. None is no context.
    context: Any = None
    propensity: Any = None  # [N] probability of the logged action, where known
    terminated: Any = None  # [N] nothing follows; None is never
    candidates: Any = None  # N lists of actions that could be shown; None where all could


@checked
@dataclass(frozen=True, eq=False)
class About:
    """What is known of a log beyond its rows."""

    name: str = "log"  # of the data
    signal_names: Sequence[str] | None = None  # M of them; None is `signal 0`, …
    signs: Sequence[int] | None = None  # −1 for a cost; None is +1 for all
    users: Any = None  # [U, d] features, for the user ids in ascending order; None is none
    # [K, e] features, for the action ids in ascending order; None is one-hot up to 16 actions, and eight numbers by
    # hash beyond
    actions: Any = None
    action_ids: Any = ()  # of actions that no row shows and that could be
    shares: tuple[float, float, float] = SHARES  # of users in train, validation and test
    split_seed: int = 0  # of the hash that splits them
    split: str = "users"  # or time:DATE, or unseen:DATE; see `splits.Rule`
    history_responses: bool = True  # whether states hold the responses to viewed items
    window: int = schema.WINDOW  # how many viewed items a state holds


def dataset(rows: Rows, about: About) -> LoggedDataset:
    """Check, order by user and time, split, and index; a user's history is its own rows."""
    columns = _checked(rows)
    if about.window < 0:
        raise ValueError(f"`window` must be at least 0, got {about.window}.")
    user_ids, user = np.unique(columns["user"], return_inverse=True)
    action_ids = np.unique(columns["action"])
    kind = str if action_ids.dtype.kind == "U" else action_ids.dtype  # texts of any length
    action_ids = np.union1d(action_ids, _as_ids(about.action_ids).astype(kind))
    action = np.searchsorted(action_ids, columns["action"])
    index, lists = (None, {}) if rows.candidates is None else candidates.of_rows(rows.candidates, action, action_ids)
    order = np.lexsort((columns["time"], user))
    user, action = user[order].astype(np.int32), action[order].astype(np.int32)
    columns = {name: column[order] for name, column in columns.items()}
    rule = Rule.of(about.split, about.split_seed, about.shares)
    split, since = rule.users(user_ids), rule.since(int(columns["time"].max()))
    by_row = rule.rows(split[user], columns["time"], since)
    train = by_row == 0
    if not train.any():
        raise ValueError(
            f"`shares` must leave users to train on, got {tuple(about.shares)} of {counted(len(user_ids), 'user')}."
        )
    names, signs = _signals(about, columns["reward"].shape[1])
    reward = (columns["reward"] * np.array(signs) + 0.0).astype(np.float32)
    scale = _scale(reward[train]) if about.history_responses else ()
    codes = columns["context"][train].max(axis=0, initial=-1) + 1
    host: tuple[Any, ...] = (
        _features("users", about.users, user_ids),
        _features("actions", about.actions, action_ids),
        action,
        np.searchsorted(user, np.arange(len(user_ids))).astype(np.int32),
        tuple(map(int, np.maximum(codes, 0))),
        about.window,
        features.response_numbers(reward, scale) if scale else None,
    )
    arrays: dict[str, Any] = columns | {
        "user": user,
        "action": action,
        "reward": reward,
        "end": np.arange(len(user), dtype=np.int32),
        "truncated": np.append(user[1:] != user[:-1], True) & ~columns["terminated"],
        "propensity": columns.get("propensity"),
        "answered": features.request_starts(user, columns["time"]) if scale else None,
        "row_split": None if since is None else by_row,
        "split": split,
        "tables": Tables(*host),
    }
    listed = {} if index is None else {"candidates": index[order]}
    return LoggedDataset(
        about.name,
        **arrays,
        user_ids=user_ids,
        action_ids=action_ids,
        action_items=np.arange(len(action_ids), dtype=np.int32),
        item_ids=action_ids,
        signal_names=names,
        signs=signs,
        fingerprint=_fingerprint(arrays | listed | lists),
        **listed,
        lists=lists_of(lists),
        known_actions=candidates.known_actions(action[train], len(action_ids)),
        response_scale=scale,
        how_split=about.split,
    )


def _scale(reward: Any) -> tuple[float, ...]:
    """Of responses, by train rows."""
    squares = (reward.astype(np.float64) ** 2).mean(axis=0)
    return tuple(map(features.response_scale, np.abs(reward).max(axis=0).tolist(), squares.tolist()))


def propensities(values: Any, count: int) -> Any:
    """One per row, finite and in (0, 1], as float32."""
    column = np.asarray(values, dtype=np.float32)
    _check("propensity", column, count)
    return column


def _checked(rows: Rows) -> dict[str, Any]:
    """All columns as arrays of equal length, the optional ones filled in."""
    user = _as_ids(rows.user)
    count = len(user)
    columns: dict[str, Any] = {
        "user": user,
        "action": _as_ids(rows.action),
        "reward": _numbers("reward", rows.reward, np.float64),
        "time": np.arange(count) if rows.time is None else _as_times(rows.time),
        "context": np.zeros((count, 0), np.int32) if rows.context is None else np.asarray(rows.context),
        "terminated": np.zeros(count, bool) if rows.terminated is None else np.asarray(rows.terminated, dtype=bool),
    }
    if rows.propensity is not None:
        columns["propensity"] = _numbers("propensity", rows.propensity, np.float32)
    for name, column in columns.items():
        _check(name, column, count)
    return columns


def _as_ids(values: Any) -> Any:
    """Ids as an array; texts that stand in an array of objects as texts."""
    ids = np.asarray(values)
    texts = ids.dtype == object and all(isinstance(each, str) for each in ids.flat)
    return ids.astype(str) if texts else ids


def _as_times(values: Any) -> Any:
    """Times as numbers; of dates, microseconds since 1970."""
    times = np.asarray(values)
    return times.astype("datetime64[us]").astype(np.int64) if times.dtype.kind == "M" else times


def _numbers(name: str, values: Any, kind: Any) -> Any:
    try:
        return np.asarray(values, dtype=kind)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be an array of numbers: {error}.") from None


def _check(name: str, column: Any, count: int) -> None:
    shape = "[N, …]" if name in ("reward", "context") else "[N]"
    if column.ndim != shape.count(",") + 1 or len(column) != count or not count:
        raise ValueError(f"`{name}` must have shape {shape} with N = {max(count, 1)} rows, got {column.shape}.")
    kinds, kind = _KINDS.get(name, ("", ""))
    if kinds and column.dtype.kind not in kinds:
        raise ValueError(f"`{name}` must hold {kind}, got {column.dtype}.")
    right, rule = np.isfinite(column) if column.dtype.kind == "f" else np.True_, "finite"
    if name == "propensity" and right.all():
        right, rule = (column > 0) & (column <= 1), "in (0, 1]"
        if right.all():
            right, rule = column >= SMALLEST_PROPENSITY, f"at least {SMALLEST_PROPENSITY}"
    if name == "reward" and right.all():
        right, rule = np.abs(column) <= LARGEST_REWARD, f"within ±{LARGEST_REWARD:.0e}"
    if not right.all():
        at = tuple(int(k) for k in np.argwhere(~right)[0])
        raise ValueError(f"`{name}` must be {rule}, got {column[at]} in row {at[0]}.")


def _signals(about: About, count: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = tuple(f"signal {k}" for k in range(count)) if about.signal_names is None else tuple(about.signal_names)
    signs = (1,) * count if about.signs is None else tuple(int(sign) for sign in about.signs)
    for name, given in (("signal_names", names), ("signs", signs)):
        if len(given) != count:
            raise ValueError(f"`{name}` must hold one per signal ({count}), got {len(given)}.")
    if len(set(names)) < count:
        raise ValueError(f"`signal_names` must differ, got {', '.join(names)}.")
    if not set(signs) <= {1, -1}:
        raise ValueError(f"`signs` must be 1 or -1, got {list(signs)}.")
    return names, signs


def _features(name: str, table: Any, ids: Any) -> Any:
    """The features given for some ids, checked; where there are none, users have no numbers and actions a category."""
    if table is None and name == "users":
        return np.zeros((len(ids), 0), np.float32)
    if table is None:
        fitted = features.category("action", map(str, ids), _WIDTH)
        return features.quantised([fitted.numbers(ids.astype(str))])
    table = np.array(table, dtype=np.float32)
    if table.ndim != 2 or len(table) != len(ids) or not np.isfinite(table).all():
        raise ValueError(f"`{name}` must be finite, with one row for each of {len(ids)} ids, got {table.shape}.")
    return table


def _fingerprint(arrays: dict[str, Any]) -> str:
    parts = {name: column for name, column in arrays.items() if name != "tables"} | vars(arrays["tables"])
    digest = hashlib.sha256()
    for name, part in sorted(parts.items()):
        digest.update(name.encode() + np.ascontiguousarray(part if part is not None else math.nan).tobytes())
    return digest.hexdigest()[:16]
