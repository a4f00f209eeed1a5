"""Files of one's own log to files that `building` knows: numbers in place of names, every value checked.

Users and items are numbered in the order of their ids, values of the context in the order of their text. A row that is
wrong ends with one line that names the file, the row and the column; rows of a CSV file count from the header, row 1.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from moac.choices import did_you_mean
from moac.logs import engine
from moac.logs.engine import Connection, File, Limits, quoted
from moac.logs.reading import Progress
from moac.logs.schema import Feature, LogFiles, Schema, Table, column
from moac.logs.splits import Rule, per_second

_WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
_REAL_TYPES = ("FLOAT", "DOUBLE", "DECIMAL")
_BYTES_PER_ROW = 64
"""Of a row, whatever the file: so that buckets, and so the result, depend on the rows alone."""
_MOST_VALUES, _BLOCK = 1000, 1 << 20
_IDENTITY = Feature("item", "name", "category", 8)
"""Of an item beside its features: one-hot where train users viewed few items, else eight numbers by hash."""


def _bare(expression: str) -> str:
    """The column that an expression is, if it is one alone, quoted."""
    return expression[1:-1].replace('""', '"') if expression[:1] == expression[-1:] == '"' else expression


def names(connection: Connection, table: Path, ids: Any) -> Any:
    """What the numbers of users or items stand for: whole numbers where all ids are, else texts."""
    connection.register("wanted", {"id": ids, "place": np.arange(len(ids))})
    query = f"SELECT name, whole FROM wanted JOIN {engine.parquet([table])} USING (id) ORDER BY place"
    found = connection.execute(query).fetchnumpy()
    texts = np.asarray(found["name"], dtype=str)
    return texts.astype(np.int64) if len(texts) and bool(np.asarray(found["whole"]).all()) else texts


def converted(files: LogFiles, place: Path, limits: Limits, rule: Rule, say: Progress) -> tuple[LogFiles, list[File]]:
    """The same rows as one Parquet file of numbers, and tables of users and items; see `_Conversion`."""
    work = place / "work"
    work.mkdir(parents=True, exist_ok=True)
    with engine.connect(limits, work / "spill") as connection:
        return _Conversion(connection, files, place, rule).run(say)


@dataclass(frozen=True)
class _Source:
    """A file as a table of SQL."""

    path: Path
    rows: str  # SQL
    types: dict[str, str]  # of its columns, as DuckDB names them

    def at(self, row: int) -> str:
        """`FILE, row N`; the header of a CSV file is row 1."""
        return f"{self.path}, row {row + (1 if self.path.suffix == '.parquet' else 2)}"

    def check(self, name: str) -> None:
        """Refuse a column that is not there."""
        if name not in self.types:
            near = did_you_mean(name, list(self.types)) or f" It has {', '.join(self.types)}."
            raise ValueError(f"{self.path} must have the column `{name}`, and has not.{near}")


def _source(connection: Connection, path: Path, texts: tuple[str, ...]) -> _Source:
    """A file, its types found by reading all of it; ids are read as they are written."""
    if not path.stat().st_size:
        raise ValueError(f"{path} must hold rows, got an empty file.")
    if path.suffix == ".parquet":
        return _Source(path, engine.parquet([path]), _described(connection, path, engine.parquet([path])))
    mark, header = _header(path)
    how = f"read_csv({quoted(path)}, header = true, delim = {quoted(mark)}, quote = '\"', escape = '\"'"
    types = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in texts if name in header)
    rows = f"{how}, sample_size = -1{f', types = {{{types}}}' if types else ''})"
    try:
        return _Source(path, rows, _described(connection, path, rows))
    except ValueError:  # without guessing, the error names the row
        columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in header)
        _described(connection, path, f"(SELECT count(*) FROM {how}, auto_detect = false, columns = {{{columns}}}))", "")
        raise


def _header(path: Path) -> tuple[str, list[str]]:
    """What stands between the columns of a CSV file, and their names."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        line = re.split(rb"[\r\n]", stream.read(_BLOCK).removeprefix(codecs.BOM_UTF8), maxsplit=1)[0]
    mark = max(",;\t|", key=lambda mark: line.count(mark.encode()))
    return mark, next(csv.reader([line.decode(errors="replace")], delimiter=mark), [])


def _described(connection: Connection, path: Path, rows: str, verb: str = "DESCRIBE ") -> dict[str, str]:
    """The columns of SQL rows, and their types."""
    try:
        found = connection.execute(f"{verb}SELECT * FROM {rows}").fetchall()
        return {str(row[0]): str(row[1]) for row in found if verb}
    except duckdb.Error as error:
        raise ValueError(engine.told(path, str(error))) from None


class _Conversion:
    """From files with names to files with numbers, each step out of core."""

    def __init__(self, connection: Connection, files: LogFiles, place: Path, rule: Rule) -> None:
        if files.own is None:
            raise ValueError("`own` must be given.")
        self.connection, self.files, self.own, self.place, self.rule = connection, files, files.own, place, rule
        self.work = place / "work"
        self.columns = {"user": column(self.own.user), "item": column(self.own.item), "time": column(self.own.time)}
        self.columns |= {f"signal{k}": expression for k, (_, expression, _) in enumerate(self.own.signals)}
        self.columns |= {f"code{k}": expression for k, (_, expression) in enumerate(self.own.context)}
        if self.own.propensity is not None:
            self.columns["propensity"] = column(self.own.propensity)

    def run(self, say: Progress) -> tuple[LogFiles, list[File]]:
        """All steps."""
        pieces, paths = list[Path](), self.files.standard
        for k, path in enumerate(paths):
            say("reading files", k, len(paths))
            pieces.append(self._typed(path, self.work / f"typed{k}.parquet"))
        typed = engine.parquet(pieces)
        count, num_users, newest = self._all(f"SELECT count(*), count(DISTINCT user), max(time) FROM {typed}")[0]
        if not count:
            raise ValueError(f"{paths[0]} must hold rows, got none.")
        if num_users < 2:
            raise ValueError(f"{paths[0]} must have rows of at least two users, got one.")
        features = {what: self._numbered(what, typed) for what in ("users", "items")}
        values = self._values(typed, self.rule.since(newest))
        say("reading files", len(paths), len(paths))
        return self._written(typed, count, newest, features, values)

    def _all(self, query: str) -> list[Any]:
        return self.connection.execute(query).fetchall()

    def _typed(self, path: Path, out: Path) -> Path:
        """A file's columns with their types, in the same order; a row that cannot be is an error."""
        if out.exists():
            return out
        source = _source(self.connection, path, (self.own.user, self.own.item))
        for expression in self.columns.values():
            if column(_bare(expression)) == expression:
                source.check(_bare(expression))
        selected = ", ".join(f"{self._cast(source, name)} AS {name}" for name in self.columns)
        partial = out.with_suffix(".tmp")
        try:
            query = f"SELECT {selected} FROM {source.rows}"
            self.connection.execute(f"COPY ({query}) TO {quoted(partial)} (FORMAT parquet)")
        except duckdb.BinderException as error:
            missing = re.search(r'Referenced column "(.+?)" not found', str(error))
            if missing is not None:
                source.check(missing[1])
            told = str(error).splitlines()[0].removeprefix("Binder Error: ").rstrip(".")
            raise ValueError(f"{path}: {told}.") from None
        except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
            raise ValueError(engine.told(path, str(error))) from None
        self._check(source, partial)
        return partial.replace(out)

    def _cast(self, source: _Source, name: str) -> str:
        """A column as what it must be; NULL where it is not."""
        expression = self.columns[name]
        kind = source.types.get(_bare(expression), "").partition("(")[0]
        if name in ("user", "item") and kind in (*_REAL_TYPES, "BOOLEAN"):
            right = "whole numbers or texts"
            raise ValueError(f"{source.path}: `{_bare(expression)}` must hold {right}, got {kind}: mixed types?")
        if name in ("user", "item") or name.startswith("code"):
            return f"({expression})::VARCHAR"
        if name == "time" and kind in _REAL_TYPES:
            return f"round({expression} * 1000)::BIGINT"  # seconds with a fraction
        if name == "time" and kind not in _WHOLE_TYPES:
            return f"epoch_ms(try_cast({expression} AS TIMESTAMP))"
        return f"try_cast({expression} AS {'BIGINT' if name == 'time' else 'DOUBLE'})"

    def _check(self, source: _Source, typed: Path) -> None:
        """Refuse the first value that is not what its column must hold."""
        rules = {"user": ("user <> ''", "an id"), "item": ("item <> ''", "an id"), "time": ("true", "a time")}
        labels = dict(zip(self.columns, (self.own.user, self.own.item, self.own.time), strict=False))
        for k, (label, _, _) in enumerate(self.own.signals):
            rules[f"signal{k}"], labels[f"signal{k}"] = (f"isfinite(signal{k})", "a finite number"), label
        if self.own.propensity is not None:
            rules["propensity"] = ("propensity > 0 AND propensity <= 1", "in (0, 1]")
            labels["propensity"] = self.own.propensity
        rows = f"read_parquet({quoted(typed)}, file_row_number = true)"
        for name, (rule, what) in rules.items():
            wrong = f"NOT coalesce({rule} AND {name} IS NOT NULL, false)"
            (row,) = self._all(f"SELECT min(file_row_number) FROM {rows} WHERE {wrong}")[0]
            if row is not None:
                (got,) = self._all(f"SELECT ({self.columns[name]})::VARCHAR FROM {source.rows} LIMIT 1 OFFSET {row}")[0]
                gap = f": {labels[name]}=coalesce({labels[name]}, 0) makes a gap 0" if name.startswith("signal") else ""
                shown = f"nothing{gap}" if got is None else repr(got)
                raise ValueError(f"{source.at(row)}: `{labels[name]}` must be {what}, got {shown}.")

    def _numbered(self, what: str, typed: str) -> tuple[Feature, ...]:
        """Write the table of users or items, numbered by id, with their features; which features these are."""
        key = what.removesuffix("s")
        distinct = f"SELECT DISTINCT {key} AS name FROM {typed}"
        whole = "bool_and(coalesce(try_cast(name AS BIGINT)::VARCHAR = name, false)) OVER ()"
        listed = f"SELECT name, {whole} AS whole FROM ({distinct})"
        order = "row_number() OVER (ORDER BY CASE WHEN whole THEN name::BIGINT END, name) - 1"
        numbered = f"SELECT ({order})::INTEGER AS id, name, whole FROM ({listed})"
        paths = [self.files.users] if key == "user" else [path for table in self.files.items for path in table]
        features, joined = ((_IDENTITY,) if key == "item" else ()), f"({numbered})"
        if paths and paths[0] is not None:
            found, table = self._features(key, [path for path in paths if path is not None])
            features, joined = (*features, *found), f"({numbered}) LEFT JOIN ({table}) USING (name)"
        engine.copy_whole(self.connection, f"SELECT * FROM {joined} ORDER BY id", self.work / f"{what}.parquet")
        return features

    def _features(self, key: str, paths: list[Path]) -> tuple[tuple[Feature, ...], str]:
        """The features that files describe, each column by its type, and SQL of their table, with ids in `name`."""
        wanted = self.own.user if key == "user" else self.own.item
        sources = [_source(self.connection, path, (wanted,)) for path in paths]
        for source in sources:
            source.check(wanted)
        types = {name: kind for name, kind in sources[0].types.items() if name != wanted}
        rows = " UNION ALL BY NAME ".join(f"SELECT * FROM {source.rows}" for source in sources)
        table = f"SELECT {column(wanted)}::VARCHAR AS name, * EXCLUDE ({column(wanted)}) FROM ({rows})"
        twice = self._all(f"SELECT name FROM ({table}) GROUP BY name HAVING count(*) > 1 ORDER BY name LIMIT 1")
        if twice:
            raise ValueError(f"{paths[0]}: `{wanted}` {twice[0][0]} must be there once, got it again.")
        found = list[Feature]()
        for name, kind in types.items():
            found += self._feature(name, kind, table)
        renamed = ", ".join(f"{column(name)} AS {column(f'feature {name}')}" for name in types)
        return tuple(found), f"SELECT name{', ' if types else ''}{renamed} FROM ({table})"

    def _feature(self, name: str, kind: str, table: str) -> list[Feature]:
        """A number, two of them where it can be negative, or a category."""
        at = column(f"feature {name}")
        if kind == "BOOLEAN":
            return [Feature(name, f"{at}::INTEGER", "scaled")]
        if kind.partition("(")[0] not in (*_WHOLE_TYPES, *_REAL_TYPES):
            return [Feature(name, f"{at}::VARCHAR", "category")]
        (negative,) = self._all(f"SELECT coalesce(min({column(name)}) < 0, false) FROM ({table})")[0]
        below = [Feature(f"-{name}", f"greatest(-{at}, 0)", "number")] if negative else []
        return [Feature(name, f"greatest({at}, 0)" if negative else at, "number"), *below]

    def _values(self, typed: str, since: int | None) -> tuple[tuple[str, ...], ...]:
        """The values of each column of the context that train rows have."""
        users = self.connection.execute(f"SELECT id FROM {engine.parquet([self.work / 'users.parquet'])} ORDER BY id")
        ids = users.fetchnumpy()["id"]
        called = names(self.connection, self.work / "users.parquet", ids)
        split = self.rule.users(called)
        train = split == 0 if self.rule.name != "time" else np.ones(len(split), bool)
        if not train.any():
            raise ValueError(f"`shares` must leave users to train on, got {self.rule.shares} of {len(ids)} users.")
        self.connection.register("train", {"name": np.asarray(called, str).astype(object)[train]})
        early = "" if since is None else f" AND time < {since}"
        found = list[tuple[str, ...]]()
        for k, (label, _) in enumerate(self.own.context):
            query = f"SELECT DISTINCT code{k} FROM {typed} WHERE user IN (SELECT name FROM train){early}"
            values = sorted(str(value) for (value,) in self._all(query) if value is not None)
            if len(values) > _MOST_VALUES:
                raise ValueError(f"`context` {label} must have at most {_MOST_VALUES} values, got {len(values):,}.")
            found.append(tuple(values))
        return tuple(found)

    def _written(self, typed: str, count: int, newest: int, features: Any, values: Any) -> tuple[LogFiles, list[File]]:
        """Write all rows with numbers in place of names; the files, with their schema."""
        joins, codes = [], {f"code{k}": f"coalesce(value{k}.code, -1)" for k in range(len(values))}
        for k, known in enumerate(values):
            listed = np.array(known or [""], object)
            self.connection.register(f"values{k}", {"value": listed, "code": np.arange(len(listed), dtype=np.int32)})
            joins.append(f"LEFT JOIN values{k} AS value{k} ON value{k}.value = t.code{k}")
        numbered = {"user": "u.id", "item": "i.id"} | codes
        columns = {name: numbered.get(name, f"t.{name}") for name in self.columns}
        users, items = (engine.parquet([self.work / f"{what}.parquet"]) for what in ("users", "items"))
        people = f"{typed} AS t JOIN {users} AS u ON t.user = u.name JOIN {items} AS i ON t.item = i.name"
        selected = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
        path, vocabulary = self.work / "log.parquet", f"SELECT id, name, whole FROM {items} ORDER BY id"
        engine.copy_whole(self.connection, f"SELECT {selected} FROM {people} {' '.join(joins)}", path)
        engine.copy_whole(self.connection, vocabulary, self.place / "items.parquet")
        kinds = {"user": "INTEGER", "item": "INTEGER", "time": "BIGINT"} | dict.fromkeys(codes, "INTEGER")
        table = Table("log", {name: kinds.get(name, "DOUBLE") for name in columns})
        second = per_second(newest, dated=False)
        schema = Schema(
            table, "user", "item", "time", self.files.schema.signals,
            {label: (f"code{k}", len(values[k])) for k, (label, _) in enumerate(self.own.context)},
            user_features=features["users"], item_features=features["items"],
            day=f"time // {86400 * second}" if second else None,
            propensity="propensity" if self.own.propensity is not None else None, named=True,
        )  # fmt: skip
        made = LogFiles(self.files.name, schema, (path,), warnings=self.files.warnings, context_values=values)
        return made, [File(path, table, tuple(columns), count * _BYTES_PER_ROW, "")]
