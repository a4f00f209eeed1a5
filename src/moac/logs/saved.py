"""A dataset's folder to a `LoggedDataset` and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from moac import files
from moac.files import Arrays, DamagedError
from moac.logs import folder, splits
from moac.logs.dataset import LoggedDataset
from moac.logs.schema import RECENT
from moac.logs.states import Tables

_SHARED = ("split", "user_ids", "action_ids", "action_items", "item_ids")
_ROWS = ("user", "action", "reward", "time", "context", "end", "truncated")
_OPTIONAL = ("terminated", "propensity", "answered", "row_split")


def load(path: Path) -> LoggedDataset:
    """The dataset that `logs.build`, or `save`, wrote into a folder."""
    about = folder.read_manifest(path)
    try:
        return _loaded(path, about)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(path / folder.MANIFEST, f"{error} is missing or wrong") from None


def _loaded(path: Path, about: dict[str, Any]) -> LoggedDataset:
    shared: dict[str, Any] = folder.read_part(path, "shared")
    _check_indices(path, shared, shared)
    context = {str(name): int(size) for name, size in about["context"].items()}
    sizes, scale = tuple(context.values()), tuple(map(float, about.get("response_scale") or ()))
    users, items, history, first = (shared[name] for name in ("users", "items", "history", "first"))
    responses = shared["responses"] if scale else None
    tables = Tables(users, items, history, first, sizes, int(about["window"]), responses)
    signals = about["signals"]
    common: dict[str, Any] = {
        "tables": tables,
        **{name: shared[name] for name in _SHARED},
        "signal_names": tuple(signals),
        "signs": tuple(signal["sign"] for signal in signals.values()),
        "context_names": tuple(context) if about.get("context_named", True) else (),
        "context_values": tuple(tuple(map(str, values)) for values in about.get("context_values") or ()),
        "response_scale": scale,
        "how_split": str(about["options"].get("split", "users")),
    }
    encoding = files.read_json(path / folder.ENCODING)
    common["feature_names"] = _feature_names(encoding, tables, context, tuple(signals) if scale else ())
    uniform = 1 / len(shared["action_ids"])
    rows = _columns(folder.read_part(path, "rows"), uniform if about["primary"] == "random" else None)
    _check_indices(path, rows, shared)
    _check_widths(path, rows, common)
    name, content, random = about["name"], about["content"][:16], None
    if "random" in about["parts"]:
        exposed = _columns(folder.read_part(path, "random"), uniform)
        _check_indices(path, exposed, shared)
        random = LoggedDataset(f"{name}-random", **exposed, **common, fingerprint=f"{content}:random")
    return LoggedDataset(name, **rows, **common, fingerprint=content, folder=str(path.resolve()), random=random)


def _check_widths(path: Path, rows: Mapping[str, Any], common: Mapping[str, Any]) -> None:
    """Refuse signals, features or responses that are not those of the arrays."""
    tables, M, named = common["tables"], len(common["signs"]), common["feature_names"]
    right = rows["reward"].shape[1] == M and rows["context"].shape[1] == len(tables.context_sizes)
    right = right and len(named) in (0, tables.size) and set(common["signs"]) <= {1, -1}
    values, scale = common["context_values"], common["response_scale"]
    right = right and (not values or tuple(map(len, values)) == tables.context_sizes)
    if scale:
        shape = (len(tables.history), M)
        right = right and len(scale) == M and tables.responses.shape == shape and tables.responses.dtype == np.int8
        right = right and "answered" in rows and min(scale) > 0
    if not right:
        raise ValueError(f"{path} is damaged: its signals or features are not those of its arrays.")


def _check_indices(path: Path, arrays: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
    """Refuse indices that point outside of what they index: a hash says that a file is as written, not by whom."""
    users, items, after = len(shared["user_ids"]), len(shared["item_ids"]), len(shared["history"]) + 1
    limits = {"user": users, "action": len(shared["action_ids"]), "split": len(splits.SPLITS), "history": items}
    limits |= {"action_items": items, "first": after, "end": after, "answered": after}  # it may lie just after the end
    for name, limit in limits.items():
        array = arrays.get(name)
        if array is not None and array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
            raise DamagedError(path, f"`{name}` must be in [0, {limit})")


def _columns(rows: Arrays, uniform: float | None) -> dict[str, Any]:
    """Columns of one log; where exposure was uniform the propensity, given that the item is an action, is 1/K."""
    count = len(rows["user"])
    propensity = rows.get("propensity") if uniform is None else np.full(count, uniform, dtype=np.float32)
    given = {name: rows[name] for name in (*_ROWS, *_OPTIONAL) if name in rows}
    return {"terminated": np.zeros(count, dtype=bool)} | given | {"propensity": propensity}


def _feature_names(
    encoding: Any, tables: Tables, context: Mapping[str, int], signals: tuple[str, ...]
) -> tuple[str, ...]:
    """Of all numbers of a state, in the order of `states.features`; none where the folder has none."""
    if not encoding:
        return ()
    codes = (f"{name}={code}" for name, size in context.items() for code in range(size))
    viewed = (f"item -{k}: {name}" for k in range(1, tables.window + 1) for name in ("seen", *encoding["item_names"]))
    recent = (f"{signal} -{k}" for k in range(1, min(RECENT, tables.window) + 1) for signal in signals)
    return (*encoding["user_names"], *codes, *viewed, *(f"mean {signal}" for signal in signals), *recent)


def save(dataset: LoggedDataset, out: Path) -> Path:
    """Write a dataset's arrays, and a manifest of what they hold; rows on other items than its actions are not kept."""
    folder.refuse_existing(out, "directory")
    if dataset.behaviour is not None:
        dataset = replace(dataset, propensity=None, behaviour=None)
    tables: Any = dataset.tables
    kept = {name: getattr(tables, name) for name in ("users", "items", "history", "first", "responses")}
    shared = kept | {name: getattr(dataset, name) for name in _SHARED}
    parts = {"rows": dataset} | ({} if dataset.random is None else {"random": dataset.random})
    arrays: dict[str, Arrays] = {"shared": {name: array for name, array in shared.items() if array is not None}}
    for part, each in parts.items():
        columns = {name: getattr(each, name) for name in (*_ROWS, *_OPTIONAL)}
        arrays[part] = {name: column for name, column in columns.items() if column is not None}
    options = {} if dataset.folder is None else folder.read_manifest(Path(dataset.folder))["options"]
    names = dataset.context_names or tuple(f"context {k}" for k in range(len(tables.context_sizes)))
    about = {
        "format": folder.FORMAT,
        "name": dataset.name,
        "content": dataset.fingerprint.partition(":")[0],
        "primary": "standard",
        "signals": {n: {"sign": s} for n, s in zip(dataset.signal_names, dataset.signs, strict=True)},
        "context": dict(zip(names, tables.context_sizes, strict=True)),
        "context_named": bool(dataset.context_names),
        "context_values": dataset.context_values,
        "window": tables.window,
        "response_scale": dataset.response_scale,
        "options": options | {"split": dataset.how_split},
        "users": dataset.num_users,
        "logs": {},
        "absent": [],
        "warnings": [],
        "parts": {
            part: folder.count_part(dataset.signal_names, arrays[part], each.row_splits) for part, each in parts.items()
        },
    }
    with folder.becoming(out) as place:
        for name, each in arrays.items():
            (place / "arrays").mkdir(exist_ok=True)
            files.write_arrays(place / "arrays" / f"{name}.safetensors", each, {})
        files.write_json(place / folder.ENCODING, _encoding(dataset))
        files.write_json(place / folder.MANIFEST, about)
    return out


def _encoding(dataset: LoggedDataset) -> dict[str, Any]:
    """Names of features of users and items, from those of states."""
    if not dataset.feature_names:
        return {}
    d, tables = dataset.tables.users.shape[1], dataset.tables
    first = d + sum(tables.context_sizes) + 1
    viewed = dataset.feature_names[first : first + tables.items.shape[1]]
    return {"user_names": dataset.feature_names[:d], "item_names": [name.partition(": ")[2] for name in viewed]}
