"""Datasets from a folder and from arrays of one's own, and as the arrays that d3rlpy reads."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from moac import files
from moac.files import Arrays, DamagedError
from moac.logs import features, folder, schema
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Tables

_WIDTH = 8
"""Numbers of an action without features, where there are many."""
_BLOCK = 8192
"""Rows whose features are assembled at a time."""


def load(path: Path) -> LoggedDataset:
    """The dataset that `logs.build` wrote into a folder."""
    about = folder.read_manifest(path)
    try:
        return _loaded(path, about)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(path / folder.MANIFEST, f"{error} is missing or wrong") from None


def _loaded(path: Path, about: dict[str, Any]) -> LoggedDataset:
    shared: dict[str, Any] = folder.read_part(path, "shared")
    _check_indices(path, shared, shared)
    context = {str(name): int(size) for name, size in about["context"].items()}
    tables = Tables(
        *(shared[name] for name in ("users", "items", "history", "first")),
        context_sizes=tuple(context.values()),
        window=int(about["window"]),
    )
    common: dict[str, Any] = {
        "tables": tables,
        **{name: shared[name] for name in ("split", "user_ids", "action_ids", "action_items", "item_ids")},
        "signal_names": tuple(about["signals"]),
        "signs": tuple(signal["sign"] for signal in about["signals"].values()),
        "context_names": tuple(context),
        "feature_names": _feature_names(files.read_json(path / folder.ENCODING), context, tables.window),
    }
    uniform = 1 / len(shared["action_ids"])
    rows = _columns(folder.read_part(path, "rows"), uniform if about["primary"] == "random" else None)
    _check_indices(path, rows, shared)
    widths = rows["reward"].shape[1], rows["context"].shape[1], tables.size
    if widths != (len(common["signs"]), len(context), len(common["feature_names"])) or not set(common["signs"]) <= {
        1,
        -1,
    }:
        raise ValueError(f"{path} is damaged: its signals or features are not those of its arrays.")
    name, content, random = about["name"], about["content"][:16], None
    if "random" in about["parts"]:
        exposed = _columns(folder.read_part(path, "random"), uniform)
        _check_indices(path, exposed, shared)
        random = LoggedDataset(f"{name}-random", **exposed, **common, fingerprint=f"{content}:random")
    return LoggedDataset(name, **rows, **common, fingerprint=content, folder=str(path.resolve()), random=random)


def _check_indices(path: Path, arrays: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
    """Refuse indices that point outside of what they index: a hash says that a file is as written, not by whom."""
    users, items, after = len(shared["user_ids"]), len(shared["item_ids"]), len(shared["history"]) + 1
    limits = {"user": users, "action": len(shared["action_ids"]), "split": len(schema.SPLITS), "history": items}
    limits |= {"action_items": items, "first": after, "end": after}  # a position may lie just after the history
    for name, limit in limits.items():
        array = arrays.get(name)
        if array is not None and array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
            raise DamagedError(path, f"`{name}` must be in [0, {limit})")


def _columns(rows: Arrays, uniform: float | None) -> dict[str, Any]:
    """Columns of one log; where exposure was uniform the propensity, given that the item is an action, is 1/K."""
    count = len(rows["user"])
    propensity = None if uniform is None else np.full(count, uniform, dtype=np.float32)
    return rows | {"terminated": np.zeros(count, dtype=bool), "propensity": propensity}


def _feature_names(encoding: Any, context: Mapping[str, int], window: int) -> tuple[str, ...]:
    """Of all numbers of a state, in the order of `states.features`."""
    codes = (f"{name}={code}" for name, size in context.items() for code in range(size))
    items = ("seen", *encoding["item_names"])
    viewed = (f"item -{k}: {name}" for k in range(1, window + 1) for name in items)
    return (*encoding["user_names"], *codes, *viewed)


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """A log as columns of equal length, for `LoggedDataset.from_numpy`."""

    user: Any  # [N] whole numbers that name users
    action: Any  # [N] whole numbers that name actions
    reward: Any  # [N, M] signals as they were logged, costs positive
    time: Any = None  # [N] order within a user; None is the order given
    # [N, C] codes 0, 1, … of the request; a code that no train user has is unknown. None is no context.
    context: Any = None
    propensity: Any = None  # [N] probability of the logged action, where known
    terminated: Any = None  # [N] nothing follows; None is never


@final
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
    shares: tuple[float, float, float] = schema.SHARES  # of users in train, validation and test
    split_seed: int = 0  # of the hash that splits them
    window: int = schema.WINDOW  # how many viewed items a state holds


def dataset(rows: Rows, about: About) -> LoggedDataset:
    """Check, order by user and time, split, and index; a user's history is its own rows."""
    columns = _checked(rows)
    user_ids, user = np.unique(columns["user"], return_inverse=True)
    action_ids, action = np.unique(columns["action"], return_inverse=True)
    order = np.lexsort((columns["time"], user))
    user, action = user[order].astype(np.int32), action[order].astype(np.int32)
    columns = {name: column[order] for name, column in columns.items()}
    split = schema.split_users(user_ids, about.split_seed, about.shares)
    train = split[user] == 0
    if not train.any():
        raise ValueError(f"`shares` must leave users to train on, got {tuple(about.shares)} of {len(user_ids)} users.")
    names, signs = _signals(about, columns["reward"].shape[1])
    codes = columns["context"][train].max(axis=0, initial=-1) + 1
    tables: tuple[Any, ...] = (
        _features("users", about.users, user_ids),
        _features("actions", about.actions, action_ids),
        action,
        np.searchsorted(user, np.arange(len(user_ids))).astype(np.int32),
    )
    arrays: dict[str, Any] = columns | {
        "user": user,
        "action": action,
        "reward": (columns["reward"] * np.array(signs) + 0.0).astype(np.float32),
        "end": np.arange(len(user), dtype=np.int32),
        "truncated": np.append(user[1:] != user[:-1], True) & ~columns["terminated"],
        "propensity": columns.get("propensity"),
        "split": split,
        "tables": Tables(*tables, context_sizes=tuple(map(int, np.maximum(codes, 0))), window=about.window),
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
    _check("propensity", column, count)
    return column


def _checked(rows: Rows) -> dict[str, Any]:
    """All columns as arrays of equal length, the optional ones filled in."""
    user = np.asarray(rows.user)
    count = len(user)
    columns: dict[str, Any] = {
        "user": user,
        "action": np.asarray(rows.action),
        "reward": np.asarray(rows.reward, dtype=np.float64),
        "time": np.arange(count) if rows.time is None else np.asarray(rows.time),
        "context": np.zeros((count, 0), np.int32) if rows.context is None else np.asarray(rows.context),
        "terminated": np.zeros(count, bool) if rows.terminated is None else np.asarray(rows.terminated, dtype=bool),
    }
    if rows.propensity is not None:
        columns["propensity"] = np.asarray(rows.propensity, dtype=np.float32)
    for name, column in columns.items():
        _check(name, column, count)
    return columns


def _check(name: str, column: Any, count: int) -> None:
    shape = "[N, …]" if name in ("reward", "context") else "[N]"
    if column.ndim != shape.count(",") + 1 or len(column) != count or not count:
        raise ValueError(f"`{name}` must have shape {shape} with N = {max(count, 1)} rows, got {column.shape}.")
    if name in ("user", "action", "context") and column.dtype.kind not in "iu":
        raise ValueError(f"`{name}` must hold whole numbers, got {column.dtype}.")
    right, rule = np.isfinite(column) if column.dtype.kind == "f" else np.True_, "finite"
    if name == "propensity" and right.all():
        right, rule = (column > 0) & (column <= 1), "in (0, 1]"
    if not right.all():
        at = tuple(int(k) for k in np.argwhere(~right)[0])
        raise ValueError(f"`{name}` must be {rule}, got {column[at]} in row {at[0]}.")


def _signals(about: About, count: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = tuple(about.signal_names or (f"signal {k}" for k in range(count)))
    signs = tuple(int(sign) for sign in about.signs or (1,) * count)
    for name, given in (("signal_names", names), ("signs", signs)):
        if len(given) != count:
            raise ValueError(f"`{name}` must hold one per signal ({count}), got {len(given)}.")
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


def mdp_arrays(dataset: LoggedDataset, weights: Sequence[float]) -> dict[str, Any]:
    """Arrays by the names that `d3rlpy.dataset.MDPDataset` takes, with one reward w·r per row; N·F·4 bytes.

    An episode ends where `terminals` (the successor is worth 0) or `timeouts` (the log ends) is 1, and never by both.
    """
    w = np.asarray(weights, dtype=np.float32)
    if w.shape != (dataset.num_signals,) or not np.isfinite(w).all():
        names = ", ".join(dataset.signal_names)
        raise ValueError(f"`weights` must be {dataset.num_signals} numbers, one for each of {names}, got {weights}.")
    observations = [np.zeros((0, dataset.num_features), np.float32)]
    for begin in range(0, dataset.num_rows, _BLOCK):
        block = np.minimum(np.arange(begin, begin + _BLOCK), dataset.num_rows - 1)  # one shape, so one compilation
        observations.append(np.asarray(dataset.features(dataset.observation(block))))
    return {
        "observations": np.concatenate(observations)[: dataset.num_rows],
        "actions": dataset.action.astype(np.int32),
        "rewards": dataset.reward @ w,
        "terminals": dataset.terminated.astype(np.float32),
        "timeouts": dataset.truncated.astype(np.float32),
        "action_size": dataset.num_actions,
    }
