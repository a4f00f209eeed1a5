"""A log's files and what their columns mean, as data that `moac.logs.building` is handed."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from moac.arguments import checked
from moac.choices import counted, shown

WINDOW = 20
"""A state holds so many items that were viewed before."""
RECENT = 5
"""And the responses to so many of them, beside the mean of all."""
STEPS = 127
"""Tables of features hold int8: numbers in [−1, 1] in steps of 1/127."""

_FORMATS = (".csv", ".tsv", ".txt", ".parquet", ".csv.gz", ".tsv.gz", ".txt.gz")

_LEFT_OUT = "{} left out, {} among them, since their names are neither of CSV nor of Parquet"


def column(name: str) -> str:
    """A column of SQL, whatever its name."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Table:
    """The columns of a kind of file."""

    name: str  # what messages and the manifest call it
    # the type of each column that is read, as DuckDB names it; empty: all columns, of the types that reading finds
    columns: Mapping[str, str] = field(default_factory=dict)
    # the least and the largest value, where a column may not hold all that its type can
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    required: tuple[str, ...] = ()  # columns that have no gap


@dataclass(frozen=True)
class Signal:
    """An objective: its reward is sign × column / unit."""

    name: str  # of the objective
    column: str  # of the log
    sign: int = 1  # −1 where the signal is a cost
    unit: float = 1  # what counts as one
    expression: str | None = None  # SQL of the column over those of the log; None where the log has it


@dataclass(frozen=True)
class Feature:
    """A column of numbers in [−1, 1] that states hold of a user or an item."""

    name: str  # of the feature
    expression: str  # SQL over the columns of its table
    # `scaled` is in [−1, 1] already; `number` is scaled by what train users have; `category` is one-hot where train
    # users have few values, and else a short vector by hash
    kind: Literal["scaled", "number", "category"]
    width: int = 4  # of that vector
    one_hot: bool = True  # False is a vector by hash whatever the number of values


@checked
@dataclass(frozen=True)
class Schema:
    """What the columns of a log mean."""

    log: Table  # its table
    # user, item, time: the columns that say who was shown what and when
    user: str
    item: str
    time: str
    signals: tuple[Signal, ...]  # what is maximised, in order
    # SQL expression and number of codes of each part of the context; another code is unknown
    context: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    users: Table | None = None  # the table of user features; None is none
    user_features: tuple[Feature, ...] = ()  # numbers of a user
    items: Table | None = None  # the table of item features; None is none
    item_features: tuple[Feature, ...] = ()  # numbers of an item
    day: str | None = None  # SQL expression of a row's day, in days since 1970; None is not counted
    window: int = WINDOW  # how many viewed items a state holds
    propensity: str | None = None  # the column with the probability of what was shown; None where it is not known
    candidates: str | None = None  # the column with the items that could be shown; None where all could
    # users, items and values of the context have names, which `moac.logs.numbering` numbers; the tables of users and
    # items hold them then
    named: bool = False


@checked
@dataclass(frozen=True)
class LogFiles:
    """The files that a dataset is built from."""

    name: str  # of the data
    schema: Schema  # of the files
    standard: tuple[Path, ...]  # logs of the policy that was in use; empty where there is only random exposure
    random: tuple[Path, ...] = ()  # logs of uniformly random exposure
    users: Path | None = None  # user features; None where the schema has none
    items: tuple[Path, ...] = ()  # item features
    absent: tuple[str, ...] = ()  # names of files that usually belong to the data and are not there
    warnings: tuple[str, ...] = ()  # what a reader of results should know
    context_values: tuple[tuple[str, ...], ...] = ()  # what the codes of each column of the context stand for

    @property
    def feature_files(self) -> dict[str, tuple[Path, ...]]:
        """Files of the tables of users and of items."""
        return {"users": () if self.users is None else (self.users,), "items": self.items}

    @property
    def tables(self) -> tuple[tuple[Path, Table], ...]:
        """Every file with its table."""
        tables = (self.schema.users, self.schema.items, self.schema.log)
        pairs = zip(tables, (*self.feature_files.values(), (*self.standard, *self.random)), strict=True)
        return tuple((path, table) for table, paths in pairs if table is not None for path in paths)


def declared(  # noqa: PLR0913 - one of each meaning
    user: str,
    item: str,
    time: str,
    signals: Any,
    context: Any = (),
    propensity: str | None = None,
    candidates: str | None = None,
) -> Schema:
    """Which columns mean what, from texts such as `click,-returned,watch=play/duration` and `tab,hour`."""
    if len({user, item, time}) < 3:
        raise ValueError(f"`user`, `item` and `time` must be three columns, got {user}, {item}, {time}.")
    parsed = enumerate(_parsed("signals", signals))
    objectives = tuple(Signal(name, f"signal{k}", sign, expression=sql) for k, (name, sql, sign) in parsed)
    if not objectives:
        raise ValueError("`signals` must name what is maximised, such as click,-returned, got nothing.")
    shown = {name: (expression, 0) for name, expression, _ in _parsed("context", context)}
    rest: dict[str, Any] = {"propensity": propensity, "candidates": candidates, "named": True}
    return Schema(Table("log"), user, item, time, objectives, shown, **rest)


def _parsed(name: str, given: Any) -> list[tuple[str, str, int]]:
    """Name, SQL and sign of each, from `click,-returned,watch=play/duration`, a list of such, or a mapping."""
    if isinstance(given, dict):
        given = [f"{key}={value}" for key, value in given.items()]
    texts = _commas(given) if isinstance(given, str) else [str(text) for text in given or ()]
    parsed = dict[str, tuple[str, str, int]]()
    for text in (text.strip() for text in texts if text.strip()):
        label, equals, expression = text.removeprefix("-").partition("=")
        label, expression, sign = label.strip(), expression.strip(), -1 if text.startswith("-") else 1
        if not label or (equals and not expression):
            right = "columns, or names with expressions such as watch=play/duration"
            raise ValueError(f"`{name}` must be {right}, got {shown(text)}.")
        if label in parsed:
            raise ValueError(f"`{name}` must name each once, got {shown(label)} twice.")
        if name == "context" and sign < 0:
            raise ValueError(f"`context` must be columns, got -{label}: only a signal can be a cost.")
        parsed[label] = (label, expression or column(label), sign)
    return list(parsed.values())


def _commas(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        depth += 0 if quote else (letter in "([") - (letter in ")]")
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def find(log: Any, schema: Schema, *, users: Any = None, items: Any = None, name: str | None = None) -> LogFiles:
    """The files of a log: a file, a folder, a glob, or several of them.

    Args:
        log: where it is.
        schema: which of its columns mean what; see `declared`.
        users: a file of user features, with the ids in a column of the same name as in the log; None is none.
        items: likewise of items.
        name: of the data; None is that of the file.
    """
    (paths, left), (people, _), (shown, others) = _paths("LOG", log), _paths("USERS", users), _paths("ITEMS", items)
    if len(people) > 1:
        raise ValueError(f"`USERS` must be one file, got {len(people)}.")
    tables = {"users": Table("user features") if people else None, "items": Table("item features") if shown else None}
    label = name or re.sub(r"(\.\w+)+$", "", paths[0].name) or "log"
    unread = [path.name for path in (*left, *others)]
    warnings = (_LEFT_OUT.format(counted(len(unread), "file", ","), unread[0]),) if unread else ()
    return LogFiles(label, replace(schema, **tables), paths, (), next(iter(people), None), shown, warnings=warnings)


def _paths(name: str, given: Any) -> tuple[tuple[Path, ...], list[Path]]:
    """All files of a kind that can be read, in order, and those of folders and globs that cannot."""
    paths, left = list[Path](), list[Path]()
    for each in () if given is None else [given] if isinstance(given, str | Path) else given:
        path = Path(each)
        found = _below(path) if path.is_dir() else map(Path, glob.glob(str(each), recursive=True))
        below = [path] if path.is_file() else sorted(one for one in found if one.is_file())
        files = [one for one in below if one == path or one.name.lower().endswith(_FORMATS)]
        if not files:
            here = f"{below[0]} is neither" if below else f"nothing is at {each}"
            raise ValueError(f"`{name}` must be CSV or Parquet: a file, a folder or a glob; {here}.")
        paths += files
        left += sorted({*below} - {*files})
    return tuple(paths), left


def _below(folder: Path) -> Iterator[Path]:
    """All in a folder but what begins with a dot or an underscore: copies of editors, and what Spark and Delta keep."""
    return (one for one in folder.rglob("*") if not any(part[0] in "._" for part in one.relative_to(folder).parts))
