"""Files of serving, a block at a time: requests in, recommendations out.

A request has a user, the columns of the context by name, and may have a history of item ids, oldest first, the
responses to it, and a list of items that are `eligible`, also called `candidates`. In CSV these lists are texts:
`a|b|c`, and `1 0 0|0 1 0|0 0 2`.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from jaxtyping import Bool, Int

from moac.choices import did_you_mean
from moac.files import replacing
from moac.logs.catalogue import Catalogue
from moac.logs.connection import Connection, naming_full_disk
from moac.logs.dataset import LoggedDataset
from moac.logs.engine import in_one_line, parquet, quoted, texts
from moac.logs.features import response_numbers
from moac.logs.source_files import is_parquet

BLOCK = 8192
_MOST_IDS = 1 << 24
"""Ids up to here are looked up in a table."""
_USERS = ("user_id", "user")
_RUNS = r"^[=+\-@\t\r]"
"""A cell that begins so is a formula to a spreadsheet."""


@dataclass(frozen=True, eq=False)
class Block:
    """Requests of n users, as `Catalogue.features` takes them."""

    users: list[Any]  # ids as they were given
    user: Int[np.ndarray, " n"]  # index of each; −1 is unknown
    codes: Int[np.ndarray, "n C"]  # of the context
    items: Int[np.ndarray, "n W"]  # viewed, newest first; −1 is none
    responses: Int[np.ndarray, "n W M"] | None  # to them
    left_out: Bool[np.ndarray, "n K"] | None = None  # actions that are not recommended
    unknown: dict[str, int] = field(default_factory=dict)  # how many users, items of histories, and contexts are


def of_dataset(dataset: LoggedDataset, rows: Any, exclude_seen: bool) -> Block:
    """Users at the state after their last row: the history includes it, the context is its own."""
    user = dataset.user[rows]
    items, responses = _windows(dataset, user, dataset.end[rows] + 1)
    seen = viewed(dataset, user, dataset.end[rows] + 1) if exclude_seen else None
    return Block(dataset.user_ids[user].tolist(), user, dataset.context[rows], items, responses, seen)


def _windows(dataset: LoggedDataset, user: Any, end: Any) -> tuple[Any, Any]:
    """The last W items of the histories that end there, and the responses to them, all of which are known."""
    tables: Any = dataset.tables
    place = np.asarray(end)[:, None] - 1 - np.arange(tables.window)
    seen = place >= tables.first[user][:, None]
    items = np.where(seen, tables.history[np.maximum(place, 0)], -1)
    return items, None if tables.responses is None else tables.responses[np.maximum(place, 0)]


def viewed(dataset: LoggedDataset, user: Any, end: Any) -> Bool[np.ndarray, "n K"]:
    """Whether each user has viewed each action before `end`."""
    tables: Any = dataset.tables
    first = tables.first[user].astype(np.int64)
    length = end - first
    row = np.repeat(np.arange(len(user)), length)
    items = tables.history[np.arange(len(row)) + np.repeat(first - np.cumsum(length) + length, length)]
    return _marked((row, Catalogue.of(dataset).actions_of(items)), (len(user), dataset.num_actions))


def _marked(listed: tuple[Any, Any], shape: tuple[int, int]) -> Bool[np.ndarray, "n K"]:
    """True at the actions that are listed: the row, and the action or −1, of each."""
    (row, action), marked = listed, np.zeros(shape, dtype=bool)
    marked[row[action >= 0], action[action >= 0]] = True
    return marked


def read(
    path: Path, catalogue: Catalogue, known: Callable[[], LoggedDataset], exclude_seen: bool = False
) -> Iterator[Block]:
    """The requests of a CSV or Parquet file to a run, whose items in the history may be left out.

    `known` gives the run's dataset, for users whose history, or context, the file does not say.
    """
    if not path.is_file():
        raise ValueError(f"`requests` must be a file, got {path}.")
    rows = parquet([path]) if is_parquet(path) else texts(path)
    with Connection() as connection:
        try:
            reading = connection.execute(f"SELECT * FROM {rows}")
            reader = _Reader(path, reading.names, catalogue, known, exclude_seen)
            while block := reading.fetchmany(BLOCK):
                yield reader.block(list(zip(*block, strict=True)))
            if not reader.done:
                raise ValueError(f"{path} must hold requests, got none.")
        except duckdb.Error as error:
            raise ValueError(in_one_line(path, str(error))) from None


class _Reader:
    """Turns columns of requests into places and codes."""

    def __init__(
        self, path: Path, header: list[str], catalogue: Catalogue, known: Callable[[], Any], exclude_seen: bool
    ) -> None:
        self.path, self.catalogue, self.exclude_seen = path, catalogue, exclude_seen
        self.at = {"eligible" if name == "candidates" else name: k for k, name in enumerate(header)}
        self.user = self._place(next((name for name in _USERS if name in self.at), _USERS[0]))
        given = [name for name in catalogue.context_names if name in self.at]
        self.context = [self._place(name) for name in catalogue.context_names] if given else []
        self.item = {str(name): k for k, name in enumerate(catalogue.item_ids.tolist())}
        self.action = {str(name): k for k, name in enumerate(catalogue.action_ids.tolist())}
        self.actions = _by_id(catalogue.action_ids)
        lacking = "history" not in self.at or len(self.context) < len(catalogue.context_sizes)
        self.dataset: Any = known() if lacking else None
        self.last = None if self.dataset is None else last_rows(self.dataset)
        self.done = 0

    def _place(self, name: str) -> int:
        if name not in self.at:
            near = did_you_mean(name, list(self.at)) or f" It has {', '.join(self.at)}."
            raise ValueError(f"{self.path} must have the column `{name}`, which is missing.{near}")
        return self.at[name]

    def block(self, columns: list[Any]) -> Block:
        """The requests of some rows."""
        users = list(columns[self.user])
        user = self.catalogue.users_at(users)
        last = np.full(len(users), -1) if self.last is None else np.where(user >= 0, self.last[user], -1)
        unknown = {"users": int((user < 0).sum())}
        if "history" in self.at:
            items, responses, seen = self._histories(columns, unknown)
        else:
            dataset, seen = self.dataset, None
            items, responses = _windows(dataset, np.maximum(user, 0), dataset.end[np.maximum(last, 0)] + 1)
            items[last < 0] = -1  # who has no rows there has no history
        codes = self._codes(columns, last, unknown)
        left_out = self._left_out(columns, user, last, seen)
        self.done += len(users)
        return Block(users, user, codes, items, responses, left_out, unknown)

    def _histories(self, columns: list[Any], unknown: dict[str, int]) -> tuple[Any, Any, Any]:
        """The last known items of each history, the responses, and the rows and actions of all known items."""
        lists = [_items(each) for each in columns[self.at["history"]]]
        row, places = _flat(lists, self.item)
        unknown["items"] = int((places < 0).sum())
        answers = self._answers(columns, lists, len(row)) if "responses" in self.at else None
        kept = places >= 0
        row, places = row[kept], places[kept]
        counts = np.bincount(row, minlength=len(lists))
        back = np.cumsum(counts)[row] - 1 - np.arange(len(row))  # 0 is the newest of its row
        recent = back < self.catalogue.window
        items = np.full((len(lists), self.catalogue.window), -1)
        items[row[recent], back[recent]] = places[recent]
        seen = row, self.catalogue.actions_of(places)
        if answers is None:
            return items, None, seen
        responses = np.zeros((*items.shape, answers.shape[1]), np.int8)
        responses[row[recent], back[recent]] = answers[kept][recent]
        return items, responses, seen

    def _answers(self, columns: list[Any], lists: list[Any], count: int) -> Any:
        """[total, M] responses to all items of the histories, as states hold them."""
        M = len(self.catalogue.signal_names)
        numbers = list[list[float]]()
        for k, (items, given) in enumerate(zip(lists, columns[self.at["responses"]], strict=True)):
            numbers.append(_numbers(given))
            if len(numbers[k]) != M * len(items) or not np.isfinite(numbers[k]).all():
                row, right = f"{self.path}, row {self.done + k + 2}", f"{M} numbers for each of {len(items)} items"
                raise ValueError(f"{row}: `responses` must hold {right}, got {given}.")
        flat = np.array(list(itertools.chain.from_iterable(numbers)), np.float64).reshape(count, M)
        return response_numbers(flat * np.array(self.catalogue.signs), self.catalogue.response_scale or (1.0,) * M)

    def _codes(self, columns: list[Any], last: Any, unknown: dict[str, int]) -> Any:
        """The context of the requests, or that of their users' last rows."""
        if not self.context:
            if not self.catalogue.context_sizes:
                return np.zeros((len(last), 0), int)
            return np.where(last[:, None] >= 0, self.dataset.context[np.maximum(last, 0)], -1)
        cache: dict[Any, Any] = {}
        given = list(zip(*(columns[k] for k in self.context), strict=True))
        for values in given:
            if values not in cache:
                cache[values] = self.catalogue.codes(values)
        codes = np.stack([cache[values] for values in given])
        strange = (codes < 0) | (codes >= np.array(self.catalogue.context_sizes))
        gap = np.array([[value is None for value in values] for values in given])
        unknown["contexts"] = int((strange & ~gap).any(axis=1).sum())
        return codes

    def _left_out(self, columns: list[Any], user: Any, last: Any, seen: Any) -> Any:
        """Actions that are seen, or not eligible."""
        shape, left = (len(user), len(self.catalogue.action_ids)), None
        if self.exclude_seen and seen is not None:
            left = _marked(seen, shape)
        elif self.exclude_seen:
            end = self.dataset.end[np.maximum(last, 0)] + 1
            left = viewed(self.dataset, np.maximum(user, 0), end) & (last >= 0)[:, None]
        if "eligible" in self.at:
            listed = columns[self.at["eligible"]]
            allowed = _marked(self._eligible(listed), shape)
            allowed[[each is None for each in listed]] = True  # no list: all of them
            left = ~allowed if left is None else left | ~allowed
        return left

    def _eligible(self, column: Any) -> tuple[Any, Any]:
        """The row, and the action or −1, of every eligible id; texts of whole numbers are read at once, for speed."""
        texts = [each or "" for each in column]
        together = "|".join(filter(None, texts)) if all(isinstance(each, str) for each in texts) else ""
        if len(self.actions) and together.replace("|", "").isdecimal() and "||" not in f"|{together}|":
            row = np.repeat(np.arange(len(texts)), [each.count("|") + bool(each) for each in texts])
            ids = np.fromstring(together, np.int64, sep="|")
            return row, self.actions[np.minimum(ids, len(self.actions) - 1)]
        return _flat([_items(each) for each in column], self.action)


def _flat(lists: list[Any], place: dict[str, int]) -> tuple[Any, Any]:
    """The row, and the place or −1, of every id of some lists."""
    row = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    ids = itertools.chain.from_iterable(lists)
    texts = ids if any(isinstance(one, str) for each in lists for one in each[:1]) else map(str, ids)
    return row, np.fromiter(map(place.get, texts, itertools.repeat(-1)), np.int64, len(row))


def _by_id(ids: Any) -> Int[np.ndarray, " n"]:
    """The action of each whole number, −1 where there is none, also at the end; nothing where ids are no such."""
    if ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() > _MOST_IDS:
        return np.zeros(0, int)
    action = np.full(int(ids.max()) + 2, -1)
    action[ids] = np.arange(len(ids))
    return action


def _items(given: Any) -> Any:
    if given is None or given == "":
        return ()
    return given.split("|") if isinstance(given, str) else given


def _numbers(given: Any) -> list[float]:
    """Numbers of a text, NaN alone where one is none, or of a list of lists."""
    if given is not None and not isinstance(given, str):
        return [float(number) for each in given for number in each]
    try:
        return [float(text) for text in (given or "").replace("|", " ").split()]
    except ValueError:
        return [np.nan]


def last_rows(dataset: LoggedDataset) -> Int[np.ndarray, " U"]:
    """The last row of each user; −1 where it has none."""
    last = np.full(dataset.num_users, -1)
    last[dataset.user] = np.arange(dataset.num_rows)
    return last


def write(path: Path, blocks: Iterable[dict[str, Any]]) -> None:
    """Write columns, block by block, as Parquet or, by the name of the file, CSV: wholly or not at all.

    In CSV a text that a spreadsheet would run as a formula begins with an apostrophe. Blocks wait on disk for the last
    one, in a folder beside the file.
    """
    kind, parts = "parquet" if path.suffix == ".parquet" else "csv", list[Path]()
    with (
        naming_full_disk(path),
        tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place,
        Connection() as connection,
        replacing(path) as file,
    ):
        for block in blocks:
            connection.register("block", block)
            parts.append(Path(place, f"{len(parts)}.parquet"))
            connection.execute(f"COPY (FROM block) TO {quoted(parts[-1])} (FORMAT parquet)")
        described = connection.execute(f"DESCRIBE FROM {parquet(parts[:1])}").fetchall()
        columns = [_safe(row[0]) if kind == "csv" and row[1] == "VARCHAR" else row[0] for row in described]
        query = f"SELECT {', '.join(columns)} FROM {parquet(parts)}"
        connection.execute(f"COPY ({query}) TO {quoted(file.name)} (FORMAT {kind})")


def _safe(name: str) -> str:
    return f"CASE WHEN regexp_matches({name}, {quoted(_RUNS)}) THEN '''' || {name} ELSE {name} END AS {name}"
