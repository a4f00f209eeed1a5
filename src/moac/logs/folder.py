"""A dataset's folder: loaded, saved, and described in numbers. Describing needs no JAX.

`manifest.json` says what the dataset was built from and what came out; `encoding.json` what was fitted; the arrays are
safetensors: `shared` of all logs together, `rows` of the log trained on, `random` of random exposure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moac import files, locks
from moac.arguments import checked
from moac.files import Arrays, DamagedError
from moac.logs.candidates import ACTIONS, FIRST, known_actions
from moac.logs.schema import Schema, column
from moac.logs.splits import SPLITS

if TYPE_CHECKING:
    from moac.logs.connection import Connection
    from moac.logs.dataset import LoggedDataset

FORMAT = 2
MANIFEST = "manifest.json"
ENCODING = "encoding.json"
_NAMES = ("user_names", "item_names")
_SHARED = ("split", "user_ids", "action_ids", "action_items", "item_ids")
_ROWS = ("user", "action", "reward", "time", "context", "end", "truncated")
_OPTIONAL = ("terminated", "propensity", "answered", "row_split", "candidates")
_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset, with one clear line where there is none or it is not ours."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} is not a dataset: it has no {MANIFEST}. Build one with moac data build.")
    about = files.read_json(path)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{folder} was built by another version of moac: build the dataset again.")
    return about


def read_part(folder: Path, name: str) -> Arrays:
    """The arrays of all logs together, `shared`, or of one log; files.read_arrays checks that they are as written."""
    return files.read_arrays(folder / "arrays" / f"{name}.safetensors")[0]


def load(path: Path) -> LoggedDataset:
    """The dataset that `logs.build`, or `save`, wrote into a folder."""
    about = read_manifest(path)
    try:
        return _loaded(path, about)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError(path / MANIFEST, f"{error} is missing or wrong") from None


def _loaded(path: Path, about: dict[str, Any]) -> LoggedDataset:
    from moac.logs.dataset import LoggedDataset, Tables
    from moac.logs.states import lists_of

    shared: dict[str, Any] = read_part(path, "shared")
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
    if encoding := files.read_json(path / ENCODING):
        common["table_names"] = tuple(tuple(map(str, encoding[name])) for name in _NAMES)
    uniform = 1 / len(shared["action_ids"])
    rows = columns(read_part(path, "rows"), uniform if about["primary"] == "random" else None)
    _check_indices(path, rows, shared)
    _check_widths(path, rows, common)
    train = rows["action"][rows.get("row_split", shared["split"][rows["user"]]) == 0]
    common |= {"lists": lists_of(shared), "known_actions": known_actions(train, len(shared["action_ids"]))}
    name, content, random = about["name"], about["content"][:16], None
    if "random" in about["parts"]:
        exposed = columns(read_part(path, "random"), uniform)
        _check_indices(path, exposed, shared)
        random = LoggedDataset(f"{name}-random", **exposed, **common, fingerprint=f"{content}:random")
    return LoggedDataset(name, **rows, **common, fingerprint=content, folder=str(path.resolve()), random=random)


def _check_widths(path: Path, rows: Mapping[str, Any], common: Mapping[str, Any]) -> None:
    """Refuse signals, features or responses that are not those of the arrays."""
    tables, M, named = common["tables"], len(common["signs"]), common.get("table_names")
    right = rows["reward"].shape[1] == M and rows["context"].shape[1] == len(tables.context_sizes)
    widths = (tables.users.shape[1], tables.items.shape[1])
    right = right and (named is None or tuple(map(len, named)) == widths) and set(common["signs"]) <= {1, -1}
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
    limits = {"user": users, "action": len(shared["action_ids"]), "split": len(SPLITS), "history": items}
    if FIRST in shared:
        limits |= {ACTIONS: limits["action"], "candidates": len(shared[FIRST]) - 1, FIRST: len(shared[ACTIONS]) + 1}
    limits |= {"action_items": items, "first": after, "end": after, "answered": after}  # it may lie just after the end
    for name, limit in limits.items():
        array = arrays.get(name)
        if array is not None and array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
            raise DamagedError(path, f"`{name}` must be in [0, {limit})")


def columns(rows: Arrays, uniform: float | None) -> dict[str, Any]:
    """Columns of one log; where exposure was uniform the propensity, given that the item is an action, is 1/K."""
    count = len(rows["user"])
    propensity = rows.get("propensity") if uniform is None else np.full(count, uniform, dtype=np.float32)
    given = {name: rows[name] for name in (*_ROWS, *_OPTIONAL) if name in rows}
    return {"terminated": np.zeros(count, dtype=bool)} | given | {"propensity": propensity}


def save(dataset: LoggedDataset, out: Path) -> Path:
    """Write a dataset's arrays, and a manifest of what they hold; rows on other items than its actions are not kept."""
    locks.refuse_existing(out, "directory")
    if dataset.behaviour is not None:
        dataset = replace(dataset, propensity=None, behaviour=None)
    tables: Any = dataset.tables
    kept = {name: getattr(tables, name) for name in ("users", "items", "history", "first", "responses")}
    shared = kept | {name: getattr(dataset, name) for name in _SHARED}
    shared |= {} if dataset.lists is None else {FIRST: dataset.lists.first, ACTIONS: dataset.lists.actions}
    parts = {"rows": dataset} | ({} if dataset.random is None else {"random": dataset.random})
    arrays: dict[str, Arrays] = {"shared": {name: array for name, array in shared.items() if array is not None}}
    for part, each in parts.items():
        columns = {name: getattr(each, name) for name in (*_ROWS, *_OPTIONAL)}
        arrays[part] = {name: column for name, column in columns.items() if column is not None}
    options = {} if dataset.folder is None else read_manifest(Path(dataset.folder))["options"]
    about = {
        "format": FORMAT,
        "name": dataset.name,
        "content": dataset.fingerprint.partition(":")[0],
        "primary": "standard",
        "signals": {n: {"sign": s} for n, s in zip(dataset.signal_names, dataset.signs, strict=True)},
        "context": dict(zip(dataset.context_labels, tables.context_sizes, strict=True)),
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
            part: count_part(dataset.signal_names, arrays[part], each.row_splits) for part, each in parts.items()
        },
    }
    with locks.becoming(out) as place:
        for name, each in arrays.items():
            (place / "arrays").mkdir(exist_ok=True)
            files.write_arrays(place / "arrays" / f"{name}.safetensors", each, {})
        files.write_json(place / ENCODING, dict(zip(_NAMES, dataset.table_names or (), strict=False)))
        files.write_json(place / MANIFEST, about)
    return out


def signal_table(names: Iterable[str], amounts: Any, sums: Any, rows: int) -> dict[str, dict[str, float]]:
    """For each signal: amount (rows that have it), share of all amounts as in the paper, sum, and mean per row."""
    total = max(int(np.sum(amounts)), 1)
    return {
        name: {"amount": int(a), "share": int(a) / total, "sum": float(s), "mean": float(s) / max(rows, 1)}
        for name, a, s in zip(names, amounts, sums, strict=True)
    }


def count_logs(connection: Connection, schema: Schema, rows: str) -> dict[str, Any]:
    """Counts of whole logs, given SQL of all ordered rows: rows with and without duplicates, signals, days."""
    columns = [column(signal.column) for signal in schema.signals]
    counts = ", ".join(f"count_if({name} != 0), sum({name})" for name in columns)  # FILTER takes twice the time
    query = f"SELECT random, sum(copies)::BIGINT, count(*), {counts} FROM {rows} GROUP BY random ORDER BY random"
    logs, days = dict[str, Any](), _days(connection, schema, rows)
    for random, read, kept, *totals in connection.execute(query).fetchall():
        sums = [float(total) / signal.unit for total, signal in zip(totals[1::2], schema.signals, strict=True)]
        table = signal_table((signal.name for signal in schema.signals), totals[::2], sums, kept)
        own = {day: count for exposed, day, count in days if exposed == random}
        counted = {"rows_read": read, "duplicates": read - kept, "rows": kept, "signals": table, "days": own}
        logs["random" if random else "standard"] = counted
    return logs


def _days(connection: Connection, schema: Schema, rows: str) -> list[tuple[bool, str, int]]:
    """Whether exposure was random, a day, and its rows; counted as numbers, since texts take twice the time."""
    if schema.day is None:
        return []
    counted = f"SELECT random, ({schema.day})::INTEGER AS day, count(*) AS rows FROM {rows} GROUP BY ALL"
    return connection.execute(
        f"SELECT random, (DATE '1970-01-01' + day)::VARCHAR, rows FROM ({counted}) ORDER BY ALL"
    ).fetchall()


def count_part(names: tuple[str, ...], rows: Arrays, belongs: Any) -> dict[str, Any]:
    """Counts of a log's rows, of all of them and by split; signals as they were logged, a cost positive."""
    user, reward = rows["user"], rows["reward"]

    def counts(chosen: Any) -> dict[str, Any]:
        picked = np.abs(reward[chosen])
        amounts, sums = np.count_nonzero(picked, axis=0), picked.sum(axis=0, dtype=np.float64)
        users = len(np.unique(user[chosen]))
        return {"users": users, "rows": len(picked), "signals": signal_table(names, amounts, sums, len(picked))}

    per_split = {name: counts(belongs == k) for k, name in enumerate(SPLITS)}
    spread = per_user(np.unique(user, return_counts=True)[1])
    return {**counts(slice(None)), "rows_per_user": spread, "splits": per_split}


def per_user(counts: Any) -> dict[str, float]:
    """Mean and quantiles of a number per user."""
    counts = np.asarray(counts)
    if not len(counts):
        return dict.fromkeys((*_QUANTILES, "mean"), 0.0)
    values = np.quantile(counts, list(_QUANTILES.values()), method="inverted_cdf")
    return {**{name: float(v) for name, v in zip(_QUANTILES, values, strict=True)}, "mean": float(counts.mean())}


@dataclass(frozen=True, eq=False)
class Description:
    """A dataset in numbers."""

    manifest: dict[str, Any]  # of the dataset; `parts["rows"]` is what is trained on, `logs` are the whole logs
    rows_per_user: np.ndarray[Any, Any]  # [n] rows, for each user that has any; by split, where a user is in several
    user_splits: np.ndarray[Any, Any]  # [n] the split of each
    action_views: np.ndarray[Any, Any]  # [K] rows of each action, the most viewed by train users first

    @property
    def name(self) -> str:
        """Of the data."""
        return self.manifest["name"]

    @property
    def signals(self) -> dict[str, dict[str, float]]:
        """The paper's table: for each signal `amount`, `share` of all amounts, `sum`, and `mean` per row."""
        return self.manifest["parts"]["rows"]["signals"]

    @property
    def splits(self) -> dict[str, dict[str, Any]]:
        """Users, rows and signals of each split."""
        return self.manifest["parts"]["rows"]["splits"]

    @property
    def num_rows(self) -> int:
        """N: every row has a state of its own."""
        return self.manifest["parts"]["rows"]["rows"]

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.action_views)

    @property
    def days(self) -> dict[str, dict[str, int]]:
        """Rows of each whole log, by day."""
        return {name: log["days"] for name, log in self.manifest["logs"].items()}

    def summary(self) -> dict[str, Any]:
        """As one object for `--json`."""
        about = self.manifest
        counts = np.bincount(self.user_splits[self.user_splits >= 0], minlength=len(SPLITS))
        return {
            **{name: about[name] for name in ("name", "content", "logs", "absent", "options", "warnings")},
            "history_responses": bool(about.get("response_scale")),
            "rows": self.num_rows,
            "states": self.num_rows,
            "actions": self.num_actions,
            "users": about["parts"]["rows"]["users"],
            "signals": self.signals,
            "rows_per_user": about["parts"]["rows"]["rows_per_user"],
            "users_per_split": dict(zip(SPLITS, counts.tolist(), strict=True)),
            "splits": self.splits,
            "random": about["parts"].get("random"),
        }


@checked
def describe(path: str | Path) -> Description:
    """The description of a dataset that was built or saved."""
    about, shared, rows = read_manifest(Path(path)), read_part(Path(path), "shared"), read_part(Path(path), "rows")
    split = rows.get("row_split", shared["split"][rows["user"]])
    pairs, counts = np.unique(np.stack([rows["user"], split]), axis=1, return_counts=True)
    views = np.bincount(rows["action"], minlength=len(shared["action_ids"]))
    return Description(about, counts, pairs[1], views)
