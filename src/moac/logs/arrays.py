"""Logs as arrays: a log of one's own to a dataset, and a dataset in the forms that d3rlpy and Minari read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.logs import features, splits
from moac.logs.dataset import LoggedDataset
from moac.logs.schema import WINDOW
from moac.logs.states import Tables

_WIDTH = 8
"""Numbers of an action without features, where there are many."""
_BLOCK = 8192
"""Rows whose features are assembled at a time."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """A log as columns of equal length, for `LoggedDataset.from_numpy`.

    Attributes:
        user: [N] whole numbers that name users.
        action: [N] whole numbers that name actions.
        reward: [N, M] signals as they were logged, costs positive.
        time: [N] order within a user; None is the order given.
        context: [N, C] codes 0, 1, … of the request; a code that no train user has is unknown. None is no context.
        propensity: [N] probability of the logged action, where known.
        terminated: [N] nothing follows; None is never.
    """

    user: Any
    action: Any
    reward: Any
    time: Any = None
    context: Any = None
    propensity: Any = None
    terminated: Any = None


@final
@dataclass(frozen=True, eq=False)
class About:
    """What is known of a log beyond its rows.

    Attributes:
        name: of the data.
        signal_names: M of them; None is `signal 0`, …
        signs: −1 for a cost; None is +1 for all.
        users: [U, d] features, for the user ids in ascending order; None is none.
        actions: [K, e] features, for the action ids in ascending order; None is one-hot up to 16 actions, and eight
            numbers by hash beyond.
        shares: of users in train, validation and test.
        split_seed: of the hash that splits them.
        window: how many viewed items a state holds.
    """

    name: str = "log"
    signal_names: Sequence[str] | None = None
    signs: Sequence[int] | None = None
    users: Any = None
    actions: Any = None
    shares: tuple[float, float, float] = splits.SHARES
    split_seed: int = 0
    window: int = WINDOW


def dataset(rows: Rows, about: About) -> LoggedDataset:
    """Check, order by user and time, split, and index; a user's history is its own rows."""
    columns = _checked(rows)
    user_ids, user = np.unique(columns["user"], return_inverse=True)
    action_ids, action = np.unique(columns["action"], return_inverse=True)
    order = np.lexsort((columns["time"], user))
    user, action = user[order].astype(np.int32), action[order].astype(np.int32)
    columns = {name: column[order] for name, column in columns.items()}
    split = splits.of_users(user_ids, about.split_seed, about.shares)
    train = split[user] == 0
    if not train.any():
        raise ValueError(f"`shares` must leave users to train on, got {tuple(about.shares)} of {len(user_ids)} users.")
    last = np.append(user[1:] != user[:-1], True)
    names, signs = _signals(about, columns["reward"].shape[1])
    arrays: dict[str, Any] = columns | {
        "user": user,
        "action": action,
        "reward": (columns["reward"] * np.array(signs) + 0.0).astype(np.float32),
        "end": np.arange(len(user), dtype=np.int32),
        "truncated": last & ~columns["terminated"],
        "propensity": columns.get("propensity"),
        "split": split,
        "tables": _tables(about, (user_ids, action_ids), (user, action), _sizes(columns["context"][train])),
    }
    return LoggedDataset(
        about.name,
        **arrays,
        user_ids=user_ids,
        action_ids=action_ids,
        action_items=np.arange(len(action_ids), dtype=np.int32),
        item_ids=action_ids,
        signal_names=names,
        signs=signs,
        feature_names=(),
        fingerprint=_fingerprint(arrays),
    )


def propensities(values: Any, count: int) -> Any:
    """One per row, finite and in (0, 1], as float32."""
    column = np.asarray(values, dtype=np.float32)
    if column.shape != (count,):
        raise ValueError(f"`propensity` must have shape [N] with N = {count} rows, got {column.shape}.")
    _check_values("propensity", column)
    return column


def _checked(rows: Rows) -> dict[str, Any]:
    """All columns as arrays of equal length, the optional ones filled in."""
    user, reward = np.asarray(rows.user), np.asarray(rows.reward, dtype=np.float64)
    count = len(user)
    columns: dict[str, Any] = {
        "user": user,
        "action": np.asarray(rows.action),
        "reward": reward,
        "time": np.arange(count) if rows.time is None else np.asarray(rows.time),
        "context": np.zeros((count, 0), np.int32) if rows.context is None else np.asarray(rows.context),
        "terminated": np.zeros(count, bool) if rows.terminated is None else np.asarray(rows.terminated, dtype=bool),
    }
    if rows.propensity is not None:
        columns["propensity"] = np.asarray(rows.propensity, dtype=np.float32)
    for name, column in columns.items():
        axes = 2 if name in ("reward", "context") else 1
        if column.ndim != axes or len(column) != count or not count:
            shape = "[N, …]" if axes == 2 else "[N]"
            raise ValueError(f"`{name}` must have shape {shape} with N = {max(count, 1)} rows, got {column.shape}.")
        _check_values(name, column)
    return columns


def _check_values(name: str, column: Any) -> None:
    if name in ("user", "action", "context") and column.dtype.kind not in "iu":
        raise ValueError(f"`{name}` must hold whole numbers, got {column.dtype}.")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        at = tuple(int(k) for k in np.argwhere(~np.isfinite(column))[0])
        raise ValueError(f"`{name}` must be finite, got {column[at]} in row {at[0]}.")
    if name == "propensity" and not ((column > 0) & (column <= 1)).all():
        at = int(np.argmin((column > 0) & (column <= 1)))
        raise ValueError(f"`propensity` must be in (0, 1], got {column[at]} in row {at}.")


def _signals(about: About, count: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = tuple(about.signal_names or (f"signal {k}" for k in range(count)))
    signs = tuple(int(sign) for sign in about.signs or (1,) * count)
    for name, given in (("signal_names", names), ("signs", signs)):
        if len(given) != count:
            raise ValueError(f"`{name}` must hold one per signal ({count}), got {len(given)}.")
    if not set(signs) <= {1, -1}:
        raise ValueError(f"`signs` must be 1 or -1, got {list(signs)}.")
    return names, signs


def _sizes(context: Any) -> tuple[int, ...]:
    """How many codes each column of train rows' context has."""
    return tuple(int(size) for size in np.maximum(context.max(axis=0, initial=-1) + 1, 0))


def _tables(about: About, ids: tuple[Any, Any], rows: tuple[Any, Any], sizes: tuple[int, ...]) -> Tables:
    (user_ids, action_ids), (user, action) = ids, rows
    no_features = np.zeros((len(user_ids), 0), np.float32)
    users: Any = no_features if about.users is None else _checked_features("users", about.users, user_ids)
    if about.actions is None:
        fitted = features.category("action", map(str, action_ids), _WIDTH)
        items: Any = features.quantised([fitted.vectors[fitted.codes(map(str, action_ids))]])
    else:
        items = _checked_features("actions", about.actions, action_ids)
    first: Any = np.searchsorted(user, np.arange(len(user_ids))).astype(np.int32)
    return Tables(users, items, action, first, sizes, about.window)


def _checked_features(name: str, table: Any, ids: Any) -> Any:
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


def mdp_arrays(dataset: LoggedDataset, weights: Sequence[float]) -> dict[str, Any]:
    """Arrays by the names that `d3rlpy.dataset.MDPDataset` takes, with one reward w·r per row; N·F·4 bytes.

    An episode ends where `terminals` (the successor is worth 0) or `timeouts` (the log ends) is 1, and never by both.
    """
    w = _checked_weights(dataset, weights)
    return {
        "observations": _states(dataset, np.arange(dataset.num_rows), following=False),
        "actions": dataset.action.astype(np.int32),
        "rewards": dataset.reward @ w,
        "terminals": dataset.terminated.astype(np.float32),
        "timeouts": dataset.truncated.astype(np.float32),
        "action_size": dataset.num_actions,
    }


def episodes(dataset: LoggedDataset, weights: Sequence[float]) -> Iterator[dict[str, Any]]:
    """One after the other, as `minari.data_collector.EpisodeBuffer` takes them: T steps, T + 1 observations.

    The last observation is what is known after the last row. `infos["reward_vector"]` has T + 1 rows as well: the
    first, which belongs to no step, is zero.
    """
    w = _checked_weights(dataset, weights)
    ends = np.flatnonzero(dataset.terminated | dataset.truncated) + 1
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        rows = np.arange(begin, end)
        reward = dataset.reward[rows]
        yield {
            "observations": np.concatenate([_states(dataset, rows, False), _states(dataset, rows[-1:], True)]),
            "actions": dataset.action[rows].astype(np.int64),
            "rewards": reward @ w,
            "terminations": dataset.terminated[rows],
            "truncations": dataset.truncated[rows],
            "infos": {"reward_vector": np.concatenate([np.zeros_like(reward[:1]), reward])},
        }


def _checked_weights(dataset: LoggedDataset, weights: Sequence[float]) -> Float[np.ndarray, " M"]:
    w = np.asarray(weights, dtype=np.float32)
    if w.shape != (dataset.num_signals,) or not np.isfinite(w).all():
        names = ", ".join(dataset.signal_names)
        raise ValueError(f"`weights` must be {dataset.num_signals} numbers, one for each of {names}, got {weights}.")
    return w


def _states(dataset: LoggedDataset, rows: Int[np.ndarray, " n"], following: bool) -> Float[np.ndarray, "n F"]:
    """Features of the rows, or of what is known after them."""
    blocks = [np.zeros((0, dataset.num_features), np.float32)]
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        padded = np.resize(block, 1 << (len(block) - 1).bit_length())  # few shapes, so few compilations
        observation = (dataset.next_observation if following else dataset.observation)(padded)
        blocks.append(np.asarray(dataset.features(observation))[: len(block)])
    return np.concatenate(blocks)
