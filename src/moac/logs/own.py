"""A log of one's own, CSV, Parquet or a dataframe, as a dataset."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from moac.arguments import checked
from moac.choices import did_you_mean
from moac.logs.connection import Connection, naming_full_disk
from moac.logs.engine import first_line, quoted
from moac.logs.schema import LogFiles, declared, find

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset


@checked
def build(  # noqa: PLR0913 - one of each meaning
    log: Any,
    *,
    user: str = "user_id",
    item: str = "item_id",
    time: str = "time",
    signals: str | Iterable[str] = (),
    context: str | Iterable[str] = (),
    propensity: str | None = None,
    candidates: str | None = None,
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
        candidates: the column with the items that could be shown, a list or a text such as `a|b|c`; None where all
            could. All items are actions then, also those that only `items` has.
        out: a folder that keeps the dataset; None keeps nothing on disk.
        options: `users` and `items`, files or dataframes of features; `name`; those of `logs.Options`; `executor` and
            `progress`.
    """
    from moac.logs import building
    from moac.logs.dataset import LoggedDataset

    doing = {name: options.pop(name, None) for name in ("executor", "progress")}
    tables = {name: options.pop(name, None) for name in ("users", "items", "name")}
    known = [*(each.name for each in fields(building.Options)), *doing, *tables]
    for strange in (name for name in options if name not in known):
        raise TypeError(
            f"build() takes no option `{strange}`: it has {', '.join(known)}.{did_you_mean(strange, known)}"
        )
    with tempfile.TemporaryDirectory() as place, _frames_by_name(place):
        if log is None:
            raise ValueError("`log` must be a path or a dataframe, got None.")
        if not isinstance(log, LogFiles):
            frames = {"log": log, "users": tables["users"], "items": tables["items"]}
            paths = {n: as_parquet(f, Path(place, f"{n}.parquet")) if _is_frame(f) else f for n, f in frames.items()}
            schema = declared(user, item, time, signals, context, propensity, candidates)
            log = find(paths["log"], schema, users=paths["users"], items=paths["items"], name=tables["name"])
        target = Path(place, "data") if out is None else Path(out)
        building.build(log, target, building.Options(**options), **doing)
        dataset = LoggedDataset.load(target)
    return dataset if out is not None else replace(dataset, folder=None)


@contextmanager
def _frames_by_name(place: str) -> Generator[None]:
    """While entered, an error on a file that a dataframe was written to names the argument instead."""
    try:
        yield
    except ValueError as error:
        named = re.sub(rf"{re.escape(place)}/(\w+)\.parquet", r"`\1`", str(error))
        raise error if named == str(error) else ValueError(named) from None


def _is_frame(given: Any) -> bool:
    texts = isinstance(given, list | tuple) and all(isinstance(one, str | Path) for one in given)
    return not (given is None or texts or isinstance(given, str | Path))


def as_parquet(frame: Any, path: Path) -> Path:
    """A dataframe as a file: pandas, polars, Arrow, a DuckDB relation, or arrays by name."""
    if hasattr(frame, "write_parquet"):
        frame.write_parquet(str(path))
        return path
    if not hasattr(frame, "columns") and not isinstance(frame, Mapping):
        raise ValueError(f"`{path.stem}` must be a path or a dataframe, got {type(frame).__name__}.")
    frame = _columns(frame, path.stem) if isinstance(frame, Mapping) else frame
    for name in getattr(frame, "columns", frame):
        if isinstance(name, str) and getattr(frame[name], "dtype", None) == np.dtype(object):
            values = (each for each in frame[name] if not (isinstance(each, float) and each != each))
            kinds = sorted({type(each).__name__ for each in values if each is not None})
            if len(kinds) > 1:
                raise ValueError(f"`{name}` must hold values of one type, got {', '.join(kinds)}.")
    try:
        with naming_full_disk(path.parent), Connection() as connection:
            connection.register("frame", frame)
            connection.execute(f"COPY (SELECT * FROM frame) TO {quoted(path)} (FORMAT parquet)")
    except duckdb.Error as error:
        right = "a path or a dataframe with columns of one type each"
        raise ValueError(f"`{path.stem}` must be {right}: {first_line(error)}.") from None
    return path


def _columns(frame: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """Arrays by name, as DuckDB takes them: all of one length, texts as objects."""
    arrays = {name: each if hasattr(each, "dtype") else _as_array(each) for name, each in frame.items()}
    shapes = {name: each.shape for name, each in arrays.items()}
    if len({*shapes.values()}) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"`{argument}` must hold columns of one length, got {shapes}.")
    return {name: each.astype(object) if each.dtype.kind == "U" else each for name, each in arrays.items()}


def _as_array(values: Any) -> Any:
    """A list as an array; lists in it stay lists."""
    if not any(isinstance(each, list | tuple) for each in values):
        return np.asarray(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array
