"""A log of one's own, CSV, Parquet or a dataframe, and which of its columns mean what."""

from __future__ import annotations

import glob
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from moac.logs.engine import quoted
from moac.logs.schema import Columns, LogFiles, Schema, Signal, Table, column

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

_ANY, _USERS, _ITEMS = Table("log", {}), Table("user features", {}), Table("item features", {})
_FORMATS = (".csv", ".tsv", ".txt", ".parquet", ".csv.gz", ".tsv.gz", ".txt.gz")


def find(log: Any, columns: Columns, *, users: Any = None, items: Any = None, name: str | None = None) -> LogFiles:
    """The files of a log: a file, a folder, a glob, or several of them.

    Args:
        log: where it is.
        columns: which of its columns mean what.
        users: a file of user features, with the ids in a column of the same name as in the log; None is none.
        items: likewise of items.
        name: of the data; None is that of the file.
    """
    paths = _paths("LOG", log)
    signals = tuple(Signal(signal, f"signal{k}", sign) for k, (signal, _, sign) in enumerate(columns.signals))
    people, shown = (() if each is None else _paths(what, each) for what, each in (("USERS", users), ("ITEMS", items)))
    if len(people) > 1:
        raise ValueError(f"`USERS` must be one file, got {len(people)}.")
    described = _USERS if people else None, (_ITEMS,) if shown else ()
    schema = Schema(_ANY, "user", "item", "time", signals, users=described[0], items=described[1])
    label = name or re.sub(r"(\.\w+)+$", "", paths[0].name) or "log"
    return LogFiles(label, schema, paths, (), people[0] if people else None, (shown,) if shown else (), own=columns)


def columns(user: str, item: str, time: str, signals: Any, context: Any = (), propensity: str | None = None) -> Columns:
    """Which columns mean what, from texts such as `click,-returned,watch=play/duration` and `tab,hour`."""
    parsed = parse("signals", signals)
    if not parsed:
        raise ValueError("`signals` must name what is maximised, such as click,-returned, got nothing.")
    shown = tuple((name, expression) for name, expression, _ in parse("context", context))
    return Columns(user, item, time, parsed, shown, propensity)


def parse(name: str, given: Any) -> tuple[tuple[str, str, int], ...]:
    """Columns or expressions by name, from `click,-returned,watch=play/duration`, a list of such, or a mapping."""
    if isinstance(given, dict):
        given = [f"{key}={value}" for key, value in given.items()]
    texts = _commas(given) if isinstance(given, str) else [str(text) for text in given or ()]
    parsed = list[tuple[str, str, int]]()
    for text in texts:
        sign, rest = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text.strip())
        label, equals, expression = rest.partition("=")
        label = label.strip()
        if not label or (equals and not expression.strip()):
            right = "columns, or names with expressions such as watch=play/duration"
            raise ValueError(f"`{name}` must be {right}, got {text!r}.")
        parsed.append((label, expression.strip() if equals else column(label), sign))
    for label, _, sign in parsed:
        if [other for other, _, _ in parsed].count(label) > 1:
            raise ValueError(f"`{name}` must name each once, got {label!r} twice.")
        if name == "context" and sign < 0:
            raise ValueError(f"`context` must be columns, got -{label}: only a signal can be a cost.")
    return tuple(parsed)


def _commas(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _paths(name: str, given: Any) -> tuple[Path, ...]:
    """All files of a kind that can be read, in order."""
    listed = [given] if isinstance(given, str | Path) else list(given)
    found = list[Path]()
    for each in listed:
        path = Path(each)
        below = [path] if path.is_file() else path.rglob("*") if path.is_dir() else map(Path, glob.glob(str(each)))
        files = sorted(one for one in below if one.is_file() and (one == path or one.name.endswith(_FORMATS)))
        if not files:
            raise ValueError(f"`{name}` must be CSV or Parquet: a file, a folder or a glob; nothing is at {each}.")
        found += files
    return tuple(found)


def as_parquet(frame: Any, path: Path) -> Path:
    """A dataframe as a file: pandas, polars, Arrow, a DuckDB relation, or arrays by name."""
    if hasattr(frame, "write_parquet"):
        frame.write_parquet(str(path))
        return path
    for name in getattr(frame, "columns", frame):
        if isinstance(name, str) and getattr(frame[name], "dtype", None) == np.dtype(object):
            kinds = sorted({type(each).__name__ for each in frame[name] if each is not None and each == each})
            if len(kinds) > 1:
                raise ValueError(f"`{name}` must hold values of one type, got {', '.join(kinds)}.")
    try:
        with duckdb.connect() as connection:
            connection.register("frame", frame)
            connection.execute(f"COPY (SELECT * FROM frame) TO {quoted(path)} (FORMAT parquet)")
    except duckdb.Error as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"`log` must be a path or a dataframe with columns of one type each: {first}.") from None
    return path


def build(  # noqa: PLR0913 - one of each meaning
    log: Any,
    *,
    user: str = "user_id",
    item: str = "item_id",
    time: str = "time",
    signals: Any = (),
    context: Any = (),
    propensity: str | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> LoggedDataset:
    """A log of one's own as a dataset: its actions are the K items that train users were shown most.

    >>> dataset = moac.logs.build("log.csv", time="ts", signals="click,-returned", context="tab", out="data")

    Args:
        log: a dataframe (pandas, polars, Arrow, a DuckDB relation, arrays by name), or CSV or Parquet: a file, a folder
            or a glob, also with gzip; or what `moac.kuairand.find` finds, which knows its columns.
        user: the column of users' ids, texts or whole numbers.
        item: likewise of what was shown.
        time: when: dates, or numbers.
        signals: what is maximised, `click,-returned,watch=play/duration` or a list of such: columns, or names with SQL
            expressions over columns; a minus marks a cost.
        context: what else is known of a request, likewise: at most 1,000 values each.
        propensity: the column with the probability of what was shown; None where it is not known.
        out: a folder that keeps the dataset; None keeps nothing on disk.
        options: `users` and `items`, files or dataframes of features; `name`; those of `logs.Options`; `executor` and
            `progress`.
    """
    from moac.logs import building
    from moac.logs.dataset import LoggedDataset

    doing = {name: options.pop(name, None) for name in ("executor", "progress")}
    tables = {name: options.pop(name, None) for name in ("users", "items", "name")}
    with tempfile.TemporaryDirectory() as place:
        if not isinstance(log, LogFiles):
            given = columns(user, item, time, signals, context, propensity)
            frames = {"log": log, "users": tables["users"], "items": tables["items"]}
            paths = {n: as_parquet(f, Path(place, f"{n}.parquet")) if _is_frame(f) else f for n, f in frames.items()}
            log = find(paths["log"], given, users=paths["users"], items=paths["items"], name=tables["name"])
        target = Path(place, "data") if out is None else Path(out)
        building.build(log, target, building.Options(**options), **doing)
        dataset = LoggedDataset.load(target)
    return dataset if out is not None else replace(dataset, folder=None)


def _is_frame(given: Any) -> bool:
    texts = isinstance(given, list | tuple) and all(isinstance(one, str | Path) for one in given)
    return not (given is None or texts or isinstance(given, str | Path))
